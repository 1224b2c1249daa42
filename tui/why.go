package tui

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"orrery.dev/api"
)

// whyScopes are the tables whose objects have a chain.
var whyScopes = []string{"pods", "containers", "services", "persistentvolumeclaims", "replicationcontrollers", "deployments.apps",
	"replicasets.apps", "statefulsets.apps", "daemonsets.apps", "jobs.batch", "cronjobs.batch"}

// askAgain is how often what the API server found out is asked for anew.
const askAgain = 10 * time.Second

// troubles are what does not run in some namespaces, "" being all.
func (a *app) troubles(ctx context.Context, namespaces string) (*api.Troubles, error) {
	query := url.Values{}
	if namespaces != "" {
		query["namespace"] = strings.Split(namespaces, ",")
	}
	var found api.Troubles
	return &found, a.ask(ctx, api.WhyPath, query, &found)
}

// showWhy shows the chain of evidence of an object.
func (a *app) showWhy(t target) {
	var p *textPane
	p = newText(a, "why "+t.String(), func(ctx context.Context) ([]string, error) {
		var why api.Why
		err := a.ask(ctx, api.WhyPath, url.Values{"group": {t.kind.group}, "resource": {t.kind.plural}, "namespace": {t.namespace}, "name": {t.name}}, &why)
		if err != nil {
			return nil, err
		}
		p.command = firstCommand(why)
		return a.whyLines(why, a.now()), nil
	})
	p.of, p.again = t, askAgain
	p.scope = []string{"why", "text"}
	p.pager.paint = a.theme.paintWhy
	a.push(p)
}

// targetOfRef is the target that a finding names.
func (a *app) targetOfRef(o api.ObjectRef) target {
	name := o.Resource
	if o.Group != "" {
		name += "." + o.Group
	}
	k, ok := a.kinds.resolve(name)
	if !ok { // not discovered yet; all that have a chain are of version v1
		k = kind{group: o.Group, version: "v1", plural: o.Resource, singular: strings.ToLower(o.Kind), name: o.Kind, namespaced: true}
	}
	return target{kind: k, namespace: o.Namespace, name: o.Name}
}

// firstBreak is the link that a chain breaks or waits at.
func firstBreak(why api.Why) (api.WhyLink, bool) {
	for _, l := range why.Links {
		if why.State != api.WhyOK && l.State == why.State && len(l.Findings) > 0 {
			return l, true
		}
	}
	return api.WhyLink{}, false
}

// firstCommand is the first command that mends the first broken link.
func firstCommand(why api.Why) string {
	l, _ := firstBreak(why)
	for _, f := range l.Findings {
		for _, m := range f.Mends {
			if m.Command != "" {
				return m.Command
			}
		}
	}
	return ""
}

// whyLines tells a chain: what breaks it and how to mend that, then each link,
// then the evidence.
func (a *app) whyLines(why api.Why, now time.Time) []string {
	text := a.shared.Say
	out := []string{whyGlyph(why.State) + " " + text("why.verdict."+string(why.State), nil)}
	first, found := firstBreak(why)
	if found {
		out[0] += " " + text("why.link."+first.Name, nil)
		for _, f := range first.Findings {
			if f.State == first.State {
				out = append(out, "", "  "+a.shared.Finding(f))
				out = append(out, a.mendLines(f)...)
			}
		}
	}
	out = append(out, "")
	for _, l := range why.Links {
		out = append(out, a.linkLines(l)...)
	}
	if found {
		out = append(out, a.evidenceLines(first, now)...)
	}
	return out
}

func (a *app) mendLines(f api.Finding) []string {
	if len(f.Mends) == 0 {
		return nil
	}
	out := []string{"  " + a.shared.Say("why.mend", nil)}
	for _, m := range f.Mends {
		out = append(out, "    "+a.shared.Mend(m))
		if m.Command != "" {
			out = append(out, "      $ "+m.Command)
		}
	}
	return out
}

// linkLines are a link of the chain and what was found there.
func (a *app) linkLines(l api.WhyLink) []string {
	head := whyGlyph(l.State) + " " + padText(a.shared.Say("why.link."+l.Name, nil), 28)
	if len(l.Findings) == 0 {
		return []string{head + a.shared.Say("why.state."+string(l.State), nil)}
	}
	var out []string
	for _, f := range l.Findings {
		line := head + a.shared.Finding(f)
		if f.PodCount > 1 {
			line += " (" + a.shared.Say("why.podsOf", map[string]string{"count": fmt.Sprint(f.PodCount)}) + ")"
		}
		out, head = append(out, line), whyGlyph(f.State)+strings.Repeat(" ", 29)
	}
	return out
}

func (a *app) evidenceLines(l api.WhyLink, now time.Time) []string {
	var out []string
	for _, f := range l.Findings {
		for _, e := range f.Evidence {
			head := "  " + e.Object.Kind + "/" + e.Object.Name + "  " + e.From
			if e.Time != nil {
				head += "  " + age(e.Time.Format(time.RFC3339), now)
			}
			out = append(out, head)
			if e.Words != "" {
				out = append(out, "    "+oneLine(e.Words))
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return append([]string{"", a.shared.Say("why.evidence", nil)}, out...)
}

// whyState is the state in which the console shows a link, as the page does.
func whyState(s api.WhyState) api.State {
	switch s {
	case api.WhyBroken:
		return api.StateError
	case api.WhyWaiting:
		return api.StateProgressing
	case api.WhyOK:
		return api.StateOK
	}
	return api.StateUnknown
}

func whyGlyph(s api.WhyState) string {
	if s == api.WhyNotReached {
		return "·"
	}
	return glyphOf(whyState(s))
}

// paintWhy colours a line by the glyph that it begins with, and commands.
func (t *theme) paintWhy(line string) []span {
	if strings.HasPrefix(strings.TrimSpace(line), "$ ") {
		return []span{{plainText(line), t.key}}
	}
	for _, state := range []api.State{api.StateError, api.StateProgressing, api.StateOK, api.StateUnknown} {
		if rest, ok := strings.CutPrefix(line, glyphOf(state)); ok {
			return []span{{glyphOf(state), t.state(state)}, {plainText(rest), t.text}}
		}
	}
	return []span{{plainText(line), t.text}}
}

func whyActions() []action {
	list := []action{
		{name: "why", hint: "why", help: "why is this not running: the chain of evidence, and the mend", on: append([]string{"pulse"}, whyScopes...), run: func(a *app, c call) {
			if p, ok := a.top().(*pulse); ok {
				p.enter()
				return
			}
			one((*app).showWhy)(a, c)
		}},
		{name: "journey", hint: "journey", help: "what became of the last change: who did what, and how long it took", on: []string{"objects"}, run: one((*app).showJourney)},
		{name: "copy-mend", hint: "copy the mend", help: "copy the command that mends it", on: []string{"why"}, run: func(a *app, _ call) {
			if p, ok := a.top().(*textPane); ok {
				a.copy(p.command)
			}
		}},
		{name: "show-pulse", help: "the overview: what is wrong now", run: func(a *app, _ call) { a.push(newPulse(a)) }},
	}
	for i := range 9 {
		list = append(list, action{name: fmt.Sprintf("problem-%d", i+1), help: "open the problem with this number", on: []string{"pulse"}, run: func(a *app, _ call) {
			p := a.top().(*pulse)
			if at := p.find(p.keys[i]); p.keys[i] != "" && at >= 0 {
				p.at = at
				p.enter()
			}
		}})
	}
	return list
}
