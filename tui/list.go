package tui

import (
	"context"
	"slices"
	"strings"
	"time"

	"orrery.dev/api"
)

// newList is a table of what is no object of the cluster. It is loaded when it is
// opened, and again after a while if that is not zero. Columns of numbers begin
// with ">".
func (a *app) newList(plural string, columns []string, again time.Duration, load func(context.Context) ([]api.Row, error)) *tablePane {
	t := newTable(a, kind{plural: plural, singular: strings.TrimSuffix(plural, "s")})
	t.own = true
	t.source = func(tell func(api.Tell)) func() {
		ctx, stop := context.WithCancel(a.ctx)
		head := api.Tell{Type: "columns"}
		for _, c := range columns {
			column := api.RowColumn{Name: c, Type: "string"}
			if name, number := strings.CutPrefix(c, ">"); number {
				column = api.RowColumn{Name: name, Type: "number"}
			}
			head.Columns = append(head.Columns, column)
		}
		tell(head)
		a.work.Go(func() {
			for ctx.Err() == nil {
				rows, err := load(ctx)
				switch {
				case ctx.Err() != nil:
				case err != nil:
					tell(api.Tell{Type: "error", Error: &api.Error{Message: err.Error()}})
				default:
					tell(api.Tell{Type: "rows", Reset: true, Live: true, Rows: rows})
				}
				if again == 0 {
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(again):
				}
			}
		})
		return stop
	}
	return t
}

// listRow is a row of such a table; its first cell is its name.
func listRow(state api.State, cells ...string) api.Row {
	r := api.Row{UID: cells[0], Name: cells[0], State: state}
	for _, c := range cells {
		r.Cells = append(r.Cells, c)
	}
	return r
}

// newAliases is the table of all kinds with their names; Enter shows one.
func (a *app) newAliases() *tablePane {
	ks := a.kinds
	t := a.newList("aliases", []string{"Name", "Aliases", "Group", "Namespaced"}, 0, func(context.Context) ([]api.Row, error) {
		var rows []api.Row
		for _, k := range ks {
			names := append([]string{k.singular}, k.short...)
			for extra, plural := range extraNames {
				if plural == k.plural && !slices.Contains(names, extra) {
					names = append(names, extra)
				}
			}
			within := "false"
			if k.namespaced {
				within = "true"
			}
			rows = append(rows, listRow("", k.scope(), strings.Join(names, ", "), strings.TrimPrefix(k.group+"/"+k.version, "/"), within))
		}
		return rows, nil
	})
	t.opens = func(name string) { a.execute(name) }
	return t
}
