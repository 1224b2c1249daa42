package tui

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"

	"orrery.dev/api"
	"orrery.dev/client"
)

// look is a screen to be looked at: how one gets there, and what is on it.
type look struct {
	name    string
	command string
	keys    []any
	then    func(*app) // what keys can't do
	usage   bool       // the server tells what is used
	await   []string
}

func looks() []look {
	pod := []any{"/", "cart", tcell.KeyEnter}
	on := func(keys ...any) []any { return append(slices.Clone(pod), keys...) }
	return []look{
		{name: "pods", await: []string{"web-7d4b9c-mw4tj"}},
		{name: "pods_wide", keys: []any{tcell.KeyCtrlW}, await: []string{"node-4"}},
		{name: "pods_filter", keys: []any{"/", "web"}, await: []string{"/web"}},
		{name: "pods_marked", keys: []any{"G", "k", " ", " "}, await: []string{"web-7d4b9c-mw4tj"}},
		{name: "pods_usage", usage: true, keys: []any{"C"}, await: []string{"%CPU/R", "1.2"}},
		{name: "nodes_usage", command: "nodes", usage: true, await: []string{"%CPU/A", "95%"}},
		{name: "usage", command: "usage", usage: true, await: []string{"147%", "no route"}},
		{name: "workload", command: "wk", await: []string{"search", "log-shipper", "backup-29400120"}},
		{name: "xray", command: "xray deployments shop", keys: []any{"jj"}, await: []string{"migrate", "ServiceAccount", "proxy", "90d"}},
		{name: "containers", keys: on(tcell.KeyEnter), await: []string{"migrate", "CrashLoopBackOff"}},
		{name: "describe", keys: on("d"), await: []string{"Service Account:  cart"}},
		{name: "yaml", keys: on("y"), await: []string{"kind: Pod"}},
		{name: "logs", keys: on("l"), await: []string{"leaving"}},
		{name: "journey", keys: on("T"), await: []string{"no such file"}},
		{name: "why", then: func(a *app) {
			a.showWhy(target{kind: kind{group: "apps", version: "v1", plural: "deployments", name: "Deployment"}, namespace: "troubles", name: "wrong-image"})
		}, await: []string{"registry.example/shpo:1.0"}},
		{name: "map", command: "map", await: []string{"node-4", "one", "scheduler"}},
		{name: "map_etcd", command: "etcd", await: []string{"no route to host"}},
		{name: "map_node", command: "map", then: func(a *app) {
			p := newMap(a)
			p.closeUp = "node-2"
			a.push(p)
		}, await: []string{"search-0"}},
		{name: "pulse", command: "pulse", await: []string{"etcd three", "troubles/bad-selector", "node-4"}},
		{name: "help", keys: []any{"?"}, await: []string{":describe"}},
		{name: "prompt", keys: []any{":", "depl"}, await: []string{"deployments"}},
		{name: "delete", keys: on(tcell.KeyCtrlD), await: []string{"shop/cart-5f6c8d-k9r2x"}},
		{name: "drain", command: "nodes", keys: []any{"r"}, await: []string{"node-4", "emptyDir"}},
		{name: "choose", then: func(a *app) { a.do("theme") }, await: []string{"deuteranopia"}},
		{name: "aliases", command: "alias", await: []string{"deployments.apps"}},
		{name: "editor", keys: on("e"), await: []string{"kind: Pod"}},
		{name: "who_can", command: "can delete pods", await: []string{"RoleBinding/developers", "system:masters may do it"}},
		{name: "rights", command: "can s:shop:deployer", await: []string{"deployments.apps", "certificate"}},
		{name: "rules", command: "can s:shop:deployer", keys: []any{"/", "secrets", tcell.KeyEnter, tcell.KeyEnter}, await: []string{"Role/certificate"}},
		{name: "groups", command: "grp", await: []string{"system:masters"}},
		{name: "disconnected", then: func(a *app) {
			f := a.feed.(*fakeFeed)
			f.mu.Lock()
			f.link = client.Link{State: client.LinkReconnecting, Since: testNow.Add(-3 * time.Second), Err: fmt.Errorf("dial tcp 10.0.0.1:6443: connect: connection refused")}
			f.mu.Unlock()
		}, await: []string{"3s", "refused"}},
		{name: "forbidden", command: "services", await: []string{"forbidden"}},
		{name: "empty", command: "events", await: []string{"0"}},
		{name: "loading", command: "namespaces", await: []string{"namespaces"}},
		{name: "refused", keys: []any{":", "nonsense", tcell.KeyEnter}, await: []string{"nonsense"}},
	}
}

// at goes to a look in a console of the shop.
func (l look) at(t *testing.T, cfg Config, w, h, colours int) *show {
	t.Helper()
	cfg.Command = l.command
	s := makeShow(t, cfg, shop(troubled(t)), func(a *app) {
		if l.usage {
			telling(func() (*api.Usage, error) { return measuredShop(), nil })(a)
		}
	})
	s.colours = colours
	s.run(w, h)
	s.await("v1.37.2", "ada")
	s.keys(l.keys...)
	if l.then != nil {
		s.app.post(func() { l.then(s.app) })
	}
	s.await(l.await...)
	return s
}

// TestLooks holds every view in the dark theme, and of the others what differs.
func TestLooks(t *testing.T) {
	for _, c := range []struct {
		of      string
		config  Config
		colours int
		only    []string
	}{
		{of: "dark", config: Config{Theme: "dark"}},
		{of: "light", config: Config{Theme: "light"}, only: []string{"pods_marked", "logs", "pulse", "delete"}},
		{of: "high-contrast", config: Config{Theme: "high-contrast"}, only: []string{"pods_marked", "pulse"}},
		{of: "deuteranopia", config: Config{Theme: "deuteranopia"}, only: []string{"pods_marked", "pulse"}},
		{of: "no-colour", config: Config{NoColor: true}, only: []string{"pods_marked", "logs", "delete"}},
		{of: "16-colours", colours: 16, only: []string{"pods_marked", "logs", "pulse"}},
		{of: "8-colours-light", config: Config{Theme: "light"}, colours: 8, only: []string{"pods_marked"}},
		{of: "ascii", config: Config{ASCII: true}, only: []string{"pods_marked", "xray", "journey", "why", "map", "map_etcd", "map_node", "pulse", "delete", "rights"}},
		{of: "zh-TW", config: Config{Language: "zh_TW"}, only: []string{"pods", "containers", "xray", "workload", "why", "journey", "map", "map_etcd", "pulse", "help", "drain", "empty", "rights"}},
	} {
		for _, l := range looks() {
			if c.only == nil || slices.Contains(c.only, l.name) {
				t.Run(c.of+"/"+l.name, func(t *testing.T) {
					t.Parallel()
					s := l.at(t, c.config, 100, 30, c.colours)
					golden(t, "screens/"+c.of+"/"+l.name, s.picture())
				})
			}
		}
	}
}

// In ASCII nothing on screen but what users named is of other characters.
func TestLooksInASCII(t *testing.T) {
	for _, l := range looks() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := l.at(t, Config{ASCII: true, Language: "zh_TW"}, 100, 30, 0)
			for i, line := range strings.Split(s.text(), "\n") {
				if at := strings.IndexFunc(line, func(r rune) bool { return r > 0x7e }); at >= 0 {
					t.Errorf("line %d has %q: %s", i, []rune(line[at:])[0], line)
				}
			}
		})
	}
}

// Whatever the size, the border of the view is whole, nothing is drawn over it,
// and the way back is shown; so it is after the terminal was very small.
func TestLooksOfAllSizes(t *testing.T) {
	for _, l := range looks() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := l.at(t, Config{}, 100, 30, 0)
			before := s.text()
			for _, size := range [][2]int{{80, 24}, {160, 48}, {40, 10}, {20, 5}, {1, 1}, {100, 30}} {
				s.resize(size[0], size[1])
				if size[0] >= 40 {
					s.framed(size[0], size[1])
				}
			}
			if after := s.text(); after != before && l.name != "journey" {
				t.Errorf("there and back it is\n%s\nwas\n%s", after, before)
			}
		})
	}
}

// resize is what the user does to the terminal.
func (s *show) resize(w, h int) {
	s.screen.SetSize(w, h)
	s.screen.PostEventWait(tcell.NewEventResize(w, h))
	s.app.dirty()
	for deadline := time.Now().Add(time.Minute); strings.Count(s.text(), "\n") != h; {
		if time.Now().After(deadline) {
			s.t.Fatal("the size stays")
		}
	}
	s.text() // one frame of the size
}

// framed finds the view's border: lines that begin and end with it, between two
// corners each; dialogs are within.
func (s *show) framed(w, h int) {
	s.t.Helper()
	out := make(chan string, 1)
	s.app.post(func() {
		x, y, wide, high := s.app.top().GetRect()
		bad := ""
		if x != 0 || wide != w || y+high > h || high < 3 {
			bad = fmt.Sprintf("the view is at %d,%d, %d by %d", x, y, wide, high)
		}
		at := func(x, y int) string { text, _, _ := s.screen.Get(x, y); return text }
		for i := range high {
			left, right := "│", "│"
			switch i {
			case 0:
				left, right = "┌", "┐"
			case high - 1:
				left, right = "└", "┘"
			}
			if covered := s.app.dialogOpen() && w < 80; !covered && (at(0, y+i) != left || at(w-1, y+i) != right) {
				bad += fmt.Sprintf("line %d: %q…%q. ", y+i, at(0, y+i), at(w-1, y+i))
			}
		}
		if bad != "" {
			bad = fmt.Sprintf("%d by %d: %s\n%s", w, h, bad, s.read())
		}
		out <- bad
	})
	select {
	case bad := <-out:
		if bad != "" {
			s.t.Error(bad)
		}
	case <-time.After(time.Minute):
		s.t.Fatal("the console does not answer")
	}
}

// picture is the screen as text, then in which style each cell is: a letter for
// what the theme has it for, and what the letters look like.
func (s *show) picture() string {
	s.t.Helper()
	out := make(chan string, 1)
	s.app.post(func() { out <- s.read() + s.styles() })
	select {
	case picture := <-out:
		return picture
	case <-time.After(time.Minute):
		s.t.Fatal("the console does not answer")
		return ""
	}
}

// roles are what the letters of a picture stand for.
func (t *theme) roles() (letters string, styles []tcell.Style) {
	return ".fntkhcmbaFopwexdu", []tcell.Style{t.text, t.faint, t.strong, t.title, t.key, t.head, t.chosen, t.marked, t.border, t.crumb, t.found,
		t.states["ok"], t.states["progressing"], t.states["warning"], t.states["error"], t.states["terminating"], t.states["done"], t.states["unknown"]}
}

func (s *show) styles() string {
	letters, styles := s.app.theme.roles()
	legend := map[tcell.Style]byte{}
	for i, style := range slices.Backward(styles) {
		legend[s.app.theme.dress(style)] = letters[i]
	}
	cells, w, h := s.screen.GetContents()
	var b strings.Builder
	var used []tcell.Style
	others := byte(0)
	for y := range h {
		line := []byte{}
		for x := 0; x < w; {
			style, n := cells[y*w+x].Style, min(max(textWidth(string(cells[y*w+x].Runes)), 1), w-x)
			x += n // the second half of a wide character has what was there before it
			if _, known := legend[style]; !known {
				others++
				legend[style] = '0' + others
			}
			if !slices.Contains(used, style) {
				used = append(used, style)
			}
			line = append(line, bytes.Repeat([]byte{legend[style]}, n)...)
		}
		b.WriteString(strings.TrimRight(string(line), ".") + "\n")
	}
	slices.SortFunc(used, func(x, y tcell.Style) int { return int(legend[x]) - int(legend[y]) })
	for _, style := range used {
		fmt.Fprintf(&b, "%c %s\n", legend[style], styleText(style))
	}
	return b.String()
}

func styleText(s tcell.Style) string {
	fore, back, attributes := s.Decompose()
	text := colourText(fore) + " on " + colourText(back)
	for _, a := range []struct {
		mask tcell.AttrMask
		name string
	}{{tcell.AttrBold, " bold"}, {tcell.AttrDim, " dim"}, {tcell.AttrReverse, " reverse"}, {tcell.AttrUnderline, " underline"}} {
		if attributes&a.mask != 0 {
			text += a.name
		}
	}
	return text
}

func colourText(c tcell.Color) string {
	if c == tcell.ColorDefault {
		return "default"
	}
	if name := c.Name(); c <= tcell.ColorWhite {
		return strings.ReplaceAll(name, "grey", "gray") // it has both
	}
	return fmt.Sprintf("#%06x", c.Hex())
}

// A theme can be changed at any time: what is on screen is drawn anew, its
// borders too.
func TestThemeIsChanged(t *testing.T) {
	s := newShow(t, Config{}, 100, 30)
	s.await("db-0")
	s.keys(":", "theme li")
	s.await(":theme light")
	s.keys(tcell.KeyTab, tcell.KeyEnter)
	corner := func(p palette) string {
		th := newTheme(p, 256)
		return styleText(th.dress(th.border))
	}
	light, _ := paletteOf("light")
	for deadline := time.Now().Add(time.Minute); ; {
		got := make(chan string, 1)
		s.app.post(func() { _, style, _ := s.screen.Get(99, 29-1); got <- styleText(style) })
		if text := <-got; text == corner(light) {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the border is %s, want %s", text, corner(light))
		}
	}
	s.keys(":", "theme beige", tcell.KeyEnter)
	s.await(`no theme "beige"`)
}

// Wide characters take two cells in every row: the column after them begins
// where it does in all others, and none is cut in half by what is drawn over it.
func TestWideCharacters(t *testing.T) {
	for _, width := range []int{100, 60, 47, 46, 45, 44, 43, 42} {
		s := newShow(t, Config{Language: "zh_TW"}, width, 20)
		s.await("節點-測試", "db-0")
		s.app.post(func() {
			s.app.question(question{title: "刪除 節點-測試", text: []string{"節點-測試"}, yes: "OK", do: func(string) {}})
		})
		s.await("取消")
		out := make(chan []string, 1)
		s.app.post(func() { out <- halves(s.app.screen) })
		for _, bad := range <-out {
			t.Errorf("%d wide: %s", width, bad)
		}
		s.keys(tcell.KeyEscape)
		s.app.post(func() { s.app.closeDialog() })
		text := s.await("節點-測試")
		column := -1
		for line := range strings.SplitSeq(text, "\n") {
			before, _, found := strings.Cut(line, "1/1")
			if !found {
				continue
			}
			if at := textWidth(before); column >= 0 && at != column {
				t.Errorf("%d wide: a column begins at %d and at %d\n%s", width, column, at, text)
			} else {
				column = at
			}
		}
	}
}

// halves are the wide characters of which the terminal has not both cells.
func halves(s tcell.Screen) []string {
	var out []string
	w, h := s.Size()
	for y := range h {
		for x := range w {
			text, _, width := s.Get(x, y)
			if width < 2 {
				continue
			}
			if next, _, _ := s.Get(x+1, y); x+1 >= w || next != " " && next != "" {
				out = append(out, fmt.Sprintf("%q at %d,%d is followed by %q", text, x, y, next))
			}
		}
	}
	return out
}
