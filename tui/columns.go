package tui

import (
	"errors"
	"slices"
	"strings"

	"github.com/rivo/tview"

	"orrery.dev/api"
)

// chooseColumns shows the columns that are named, in that order, or lets the user pick.
func (a *app) chooseColumns(c call) {
	t := c.table
	all := t.rows.names()
	if len(all) == 0 { // a tree, or nothing has come yet
		a.fail(errors.New(a.words.say("not for %s", t.crumb())))
		return
	}
	if len(c.args) == 0 {
		a.pickColumns(t, all)
		return
	}
	var chosen []string
	for _, word := range strings.FieldsFunc(strings.Join(c.args, " "), func(r rune) bool { return r == ',' }) {
		at := slices.IndexFunc(all, func(name string) bool { return strings.EqualFold(name, strings.TrimSpace(word)) })
		if at < 0 && word != "default" {
			a.fail(errors.New(a.words.say("no column %q; there are %s", strings.TrimSpace(word), strings.Join(all, ", "))))
			return
		}
		if at >= 0 {
			chosen = append(chosen, all[at])
		}
	}
	a.keepColumns(t, chosen)
}

// pickColumns lists all columns, of which Enter shows or hides one.
func (a *app) pickColumns(t *tablePane, all []string) {
	shown := t.rows.shown()
	label := func(i int) string {
		if slices.Contains(shown, all[i]) {
			return "✓ " + tview.Escape(all[i])
		}
		return "  " + tview.Escape(all[i])
	}
	var labels []string
	for i := range all {
		labels = append(labels, label(i))
	}
	a.pick(a.words.say("columns"), labels, func(list *tview.List, i int) {
		if slices.Contains(shown, all[i]) {
			if len(shown) == 1 {
				return // something must be seen
			}
			shown = slices.DeleteFunc(slices.Clone(shown), func(name string) bool { return name == all[i] })
		} else { // where the server has it
			shown = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name != all[i] && !slices.Contains(shown, name) })
		}
		list.SetItemText(i, label(i), "")
		a.keepColumns(t, shown)
	})
}

// keepColumns shows some columns of a kind from now on; none are the server's choice.
func (a *app) keepColumns(t *tablePane, chosen []string) {
	t.model.show(func(v *view) { v.columns = chosen })
	of := t.kind.scope()
	a.remember(a.words.say("columns of %s are kept", of), func(s *settings) {
		if s.Columns == nil {
			s.Columns = map[string][]string{}
		}
		if s.Columns[of] = chosen; len(chosen) == 0 {
			delete(s.Columns, of)
		}
	})
}

// names are all columns' names.
func (m *rows) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return namesOf(m.allColumns())
}

// shown are the names of those on screen.
func (m *rows) shown() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.allColumns()
	var some []api.RowColumn
	for _, i := range m.chosen(all) {
		some = append(some, all[i])
	}
	return namesOf(some)
}

func namesOf(columns []api.RowColumn) (out []string) {
	for _, c := range columns {
		out = append(out, c.Name)
	}
	return out
}

// chosen are the columns that are shown, by their place among all, from left to right.
func (m *rows) chosen(all []api.RowColumn) (out []int) {
	for _, name := range m.want.columns {
		if at := slices.IndexFunc(all, func(c api.RowColumn) bool { return strings.EqualFold(c.Name, name) }); at >= 0 {
			out = append(out, at)
		}
	}
	if len(out) > 0 {
		return out
	}
	for i, c := range all {
		if c.Priority == 0 || m.want.wide {
			out = append(out, i)
		}
	}
	return out
}
