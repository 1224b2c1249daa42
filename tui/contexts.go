package tui

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"orrery.dev/api"
	"orrery.dev/client"
)

// Context is a cluster that the user's kubeconfig knows, and whom one is there.
type Context struct{ Name, Cluster, Server, User, Namespace string }

// Connection is the way to the cluster of a context.
type Connection struct {
	Context string
	REST    *rest.Config
	Instead http.Handler
	self    *rest.Config // as Config's
}

// newContexts is the table of the contexts; Enter changes to one.
func (a *app) newContexts() *tablePane {
	current := a.config.Context
	t := a.newList("contexts", []string{"Name", "Cluster", "Server", "User", "Namespace"}, 0, func(context.Context) ([]api.Row, error) {
		all, err := a.contexts()
		var rows []api.Row
		for _, c := range all {
			state := api.StateDone
			if c.Name == current {
				state = api.StateOK
			}
			rows = append(rows, listRow(state, c.Name, c.Cluster, c.Server, c.User, c.Namespace))
		}
		return rows, err
	})
	t.opens = func(name string) { a.changeTo(name, "") }
	return t
}

func contextActions() []action {
	on, instead := []string{"contexts"}, "it shows one cluster only"
	return []action{
		{name: "rename-context", hint: "rename", help: "another name for the context, in the kubeconfig", on: on, instead: instead, run: one((*app).askRenameContext)},
		{name: "delete-context", hint: "delete", help: "take the context out of the kubeconfig, after asking", on: on, instead: instead, run: one((*app).askForgetContext)},
	}
}

func (a *app) askRenameContext(t target) {
	if a.config.Rename == nil {
		a.fail(errors.New(a.words.say("this console shows one cluster only")))
		return
	}
	a.question(question{title: a.words.say("rename") + " " + t.name, ask: a.words.say("name"), value: t.name, yes: "OK", do: func(typed string) {
		name := strings.TrimSpace(typed)
		if name == t.name {
			return
		}
		a.changeContexts(a.words.say("renamed"), func() error { return a.config.Rename(t.name, name) }, func() {
			if a.config.Context == t.name {
				a.config.Context = name
			}
			if chosen := a.settings.Favourites[t.name]; chosen != nil {
				a.remember(a.words.say("renamed"), func(s *settings) { s.favour(name, chosen); delete(s.Favourites, t.name) })
			}
		})
	}})
}

func (a *app) askForgetContext(t target) {
	switch {
	case a.config.Forget == nil:
		a.fail(errors.New(a.words.say("this console shows one cluster only")))
		return
	case t.name == a.config.Context:
		a.fail(errors.New(a.words.say("%s is the one you are in; change to another first", t.name)))
		return
	}
	text := []string{"  " + t.name, "", a.words.say("its cluster and user stay in the kubeconfig"), ""}
	a.question(question{title: a.words.say("Delete") + " context", text: text, yes: "Delete", do: func(string) {
		a.changeContexts(a.words.say("deleted"), func() error { return a.config.Forget(t.name) }, func() {})
	}})
}

// changeContexts changes the kubeconfig, and shows the contexts as they are then.
func (a *app) changeContexts(done string, change func() error, then func()) {
	a.async(func(context.Context) func() {
		err := change()
		return func() {
			if err != nil {
				a.fail(err)
				return
			}
			a.note("%s", done)
			then()
			if t, ok := a.top().(*tablePane); ok && t.kind.plural == "contexts" {
				a.replace(a.newContexts())
			}
		}
	})
}

func (a *app) contexts() ([]Context, error) {
	if a.config.Contexts == nil {
		return nil, errors.New(a.words.say("this console shows one cluster only"))
	}
	return a.config.Contexts()
}

// changeTo makes this the console of another context's cluster, which begins with
// a command. Nothing is asked of the cluster before: one that cannot be reached is
// shown as such.
func (a *app) changeTo(name, command string) {
	if a.config.Connect == nil {
		a.fail(errors.New(a.words.say("this console shows one cluster only")))
		return
	}
	a.async(func(context.Context) func() {
		to, err := a.config.Connect(name)
		var c *cluster
		if err == nil {
			c, err = newCluster(to.REST, to.Instead)
		}
		return func() {
			if err != nil {
				a.fail(fmt.Errorf("context %s: %w", name, err))
				return
			}
			a.leaveFor(to, c, command)
		}
	})
}

// leaveFor gives the desk to an app of another cluster, so that nothing that was
// begun in this one can act on that.
func (a *app) leaveFor(to Connection, c *cluster, command string) {
	cfg := a.config
	cfg.Context, cfg.REST, cfg.self, cfg.Instead, cfg.Namespace, cfg.Command = to.Context, to.REST, to.self, to.Instead, "", command
	next := newApp(cfg, c)
	next.desk = a.desk
	if to.Context == a.config.Context { // the same cluster, for another user
		next.kinds = a.kinds
	}
	next.feed = client.NewStream(cfg.REST, cfg.Instead, next.dirty)
	a.top().close()
	a.leave()
	next.begin()
	if to.self != nil {
		next.note(":as comes back")
	}
}

// elsewhere changes to the context that a command names, if it is another one.
func (a *app) elsewhere(line string, c command) bool {
	if c.context == "" || c.context == a.config.Context {
		return false
	}
	a.changeTo(c.context, strings.TrimSpace(strings.Replace(line, "@"+c.context, "", 1)))
	return true
}
