package tui

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"
)

func TestDiffLines(t *testing.T) {
	for _, c := range [][3]string{
		{"", "", ""},
		{"a b", "a b", "  a,  b"},
		{"a b c", "a x c", "  a,- b,+ x,  c"},
		{"a b c d e", "x b c d y", "- a,+ x,  b,  c,  d,- e,+ y"},
		{"a", "a b", "  a,+ b"},
		{"a b", "b", "- a,  b"},
		{"", "a b", "+ a,+ b"},
		{"a b a b", "b a", "- a,  b,  a,- b"},
	} {
		if got := strings.Join(diffLines(strings.Fields(c[0]), strings.Fields(c[1])), ","); got != c[2] {
			t.Errorf("%s to %s: %s, want %s", c[0], c[1], got, c[2])
		}
	}
}

func TestDiffOfMuch(t *testing.T) {
	numbered := func(format string) (out []string) {
		for i := range 20000 {
			out = append(out, fmt.Sprintf(format, i))
		}
		return out
	}
	was := numbered("line %d")
	now := slices.Clone(was)
	now[1], now[19998] = "new", "new"
	if got := hunks(diffLines(was, now), 1); strings.Join(got, ",") != "  line 0,- line 1,+ new,  line 2,…,  line 19997,- line 19998,+ new,  line 19999" {
		t.Errorf("%q", got)
	}
	if got := hunks(diffLines(was, was), 1); len(got) > 0 {
		t.Errorf("equal texts: %q", got)
	}
	if got := diffLines(was, numbered("other %d")); len(got) != 40000 || got[0] != "- line 0" || got[20000] != "+ other 0" {
		t.Errorf("%d lines", len(got))
	}
}

func TestEditorOfItsOwn(t *testing.T) {
	server := startServer(t)
	of := server.make(configMaps, `{apiVersion: v1, kind: ConfigMap, metadata: {name: shop}, data: {door: closed}}`)
	s := server.console(t, Config{Terminal: elsewhere{}, Editor: "not-to-be-run"})
	s.app.post(func() { s.app.edit(of) })
	s.await("edit default/shop", "door: closed", "<ctrl-s>")
	s.keys(tcell.KeyCtrlF, "closed", tcell.KeyEnter)
	s.await("edit default/shop /closed")
	s.keys("op:en?") // letters are no commands; they replace what was found
	s.await("door: op:en?")
	s.keys(tcell.KeyBackspace2, tcell.KeyCtrlS)
	s.await("review default/shop", "-   door: closed", "+   door: op:en", "<e>")
	s.keys(tcell.KeyEscape)
	s.keys(tcell.KeyEscape)
	s.await("what you changed is not saved", "Discard")
	s.keys(tcell.KeyEscape, tcell.KeyCtrlS)
	s.await("+   door: op:en")
	s.keys(tcell.KeyCtrlS)
	s.await("saved", "pods(all)")
	server.has(of, "data.door=op:en")
	s.app.post(func() { s.app.edit(of) })
	s.await("door: op:en")
	s.keys(tcell.KeyCtrlC) // nothing is lost
	s.await("pods(all)")
}
