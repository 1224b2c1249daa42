package tui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// settings are what the console remembers of its user from one time to the next.
type settings struct {
	Favourites map[string][]string `json:"favourites,omitempty"` // namespaces, by context
	Columns    map[string][]string `json:"columns,omitempty"`    // shown, by kind
	Begin      map[string]string   `json:"begin,omitempty"`      // the first view, as a command, by context
}

// readSettings reads them; a file that is not there yet is empty.
func readSettings(path string) (s settings, err error) {
	if path == "" {
		return s, nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return s, err
}

// remember changes the settings, those in the file too: another console may have
// changed that meanwhile. Where there is no file, they last as long as this one.
func (a *app) remember(done string, change func(*settings)) {
	change(&a.settings)
	if a.config.Settings == "" {
		a.note("%s; %s", done, a.words.say("until you leave"))
		return
	}
	a.call(done, func(context.Context) error {
		s, err := readSettings(a.config.Settings)
		if err != nil {
			return err
		}
		change(&s)
		data, err := json.MarshalIndent(s, "", "  ")
		if err != nil {
			return err
		}
		return writeFile(a.config.Settings, append(data, '\n'), 0o600)
	})
}

// favour makes namespaces the favourites of a context.
func (s *settings) favour(context string, namespaces []string) {
	if s.Favourites == nil {
		s.Favourites = map[string][]string{}
	}
	s.Favourites[context] = namespaces
}

// beginHere has consoles of this cluster begin in the view on screen.
func (a *app) beginHere() {
	a.keepPlace()
	here, context := a.trail.here(), a.contextName()
	a.remember(a.words.say("the console of this cluster begins with :%s", here), func(s *settings) {
		if s.Begin == nil {
			s.Begin = map[string]string{}
		}
		s.Begin[context] = here
	})
}

// contextName is the cluster as the settings know it.
func (a *app) contextName() string { return cmp.Or(a.config.Context, hostOf(a.config.REST)) }

const mostFavourites = 9

// chosenNamespaces are the favourites that are there.
func (a *app) chosenNamespaces() (out []string) {
	for _, ns := range a.settings.Favourites[a.contextName()] {
		if len(a.namespaces) == 0 || slices.Contains(a.namespaces, ns) {
			out = append(out, ns)
		}
	}
	return out
}

// favourites are the namespaces of the keys 1 to 9, as the header lists them:
// those chosen, in the order in which they were, and then others.
func (a *app) favourites() []string {
	out := a.chosenNamespaces()
	others := slices.DeleteFunc(slices.Clone(a.namespaces), func(ns string) bool { return slices.Contains(out, ns) })
	slices.SortStableFunc(others, func(x, y string) int { return usual(x) - usual(y) })
	out = append(out, others...)
	return out[:min(len(out), mostFavourites)]
}

// usual ranks the namespaces that nobody chose.
func usual(ns string) int {
	switch ns {
	case "default":
		return 0
	case "kube-system":
		return 1
	case "kube-node-lease", "kube-public":
		return 3
	}
	return 2
}

// turnFavourite makes a namespace a favourite, or no longer one.
func (a *app) turnFavourite(t target) {
	context := a.contextName()
	was := a.chosenNamespaces()
	with, done := append(slices.Clone(was), t.name), a.words.say("%s has the key %d", t.name, len(was)+1)
	switch {
	case slices.Contains(was, t.name):
		with, done = slices.DeleteFunc(slices.Clone(was), func(ns string) bool { return ns == t.name }), a.words.say("%s is no favourite any more", t.name)
	case len(was) >= mostFavourites:
		a.fail(errors.New(a.words.say("there are nine favourites; f on one of them makes room")))
		return
	}
	a.remember(done, func(s *settings) { s.favour(context, with) })
}
