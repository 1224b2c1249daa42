package tui

import (
	"math"
	"testing"

	"github.com/gdamore/tcell/v2"

	"orrery.dev/api"
)

// light is a colour as amounts of red, green and blue light, each 0 to 1.
type light [3]float64

func lightOf(c tcell.Color) light {
	r, g, b := c.RGB()
	var l light
	for i, v := range []int32{r, g, b} {
		if s := float64(v) / 255; s <= 0.04045 {
			l[i] = s / 12.92
		} else {
			l[i] = math.Pow((s+0.055)/1.055, 2.4)
		}
	}
	return l
}

func (l light) luminance() float64 { return 0.2126*l[0] + 0.7152*l[1] + 0.0722*l[2] }

// contrast is that of WCAG, 1 to 21.
func contrast(a, b tcell.Color) float64 {
	x, y := lightOf(a).luminance(), lightOf(b).luminance()
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// deuteranope is how somebody sees it who has no cones for green (after Machado,
// Oliveira and Fernandes).
func (l light) deuteranope() light {
	var out light
	for i, row := range [3][3]float64{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.01182, 0.04294, 0.968881}} {
		out[i] = min(max(row[0]*l[0]+row[1]*l[1]+row[2]*l[2], 0), 1)
	}
	return out
}

// distance is how different two colours look: in CIE L*a*b*, where 2 can just be
// seen.
func distance(x, y light) float64 {
	lab := func(l light) [3]float64 {
		f := func(t float64) float64 {
			if t > 0.008856 {
				return math.Cbrt(t)
			}
			return 7.787*t + 16.0/116
		}
		fx, fy, fz := f((0.4124*l[0]+0.3576*l[1]+0.1805*l[2])/0.95047), f(l.luminance()), f((0.0193*l[0]+0.1192*l[1]+0.9505*l[2])/1.08883)
		return [3]float64{116*fy - 16, 500 * (fx - fy), 200 * (fy - fz)}
	}
	a, b := lab(x), lab(y)
	return math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
}

// Text has a contrast of 4.5 at least, lines of 3, in the high contrast theme 7;
// of 256 colours each is one, so that it looks the same on all terminals that
// have these.
func TestThemesAreLegible(t *testing.T) {
	for _, p := range palettes() {
		th := newTheme(p, 1<<24)
		letters, styles := th.roles()
		for i, style := range styles {
			fore, back, _ := th.dress(style).Decompose()
			want := 4.5
			switch {
			case p.name == "high-contrast":
				want = 7
			case letters[i] == 'b':
				want = 3
			}
			if got := contrast(fore, back); got < want {
				t.Errorf("%s: %c has a contrast of %.1f, not %.1f", p.name, letters[i], got, want)
			}
			if near := tcell.FindColor(fore, fixedColours()); near.Hex() != fore.Hex() {
				t.Errorf("%s: %c is %06x, of 256 colours %06x", p.name, letters[i], fore.Hex(), near.Hex())
			}
		}
	}
}

// The states' colours are far from each other, for the colour blind too.
func TestStatesAreToldApart(t *testing.T) {
	for _, p := range palettes() {
		th := newTheme(p, 1<<24)
		blind := 12.0
		if p.name == "deuteranopia" {
			blind = 30
		}
		for a, x := range th.states {
			for b, y := range th.states {
				if a == b {
					continue
				}
				fx, _, _ := x.Decompose()
				fy, _, _ := y.Decompose()
				if d := distance(lightOf(fx), lightOf(fy)); d < 30 {
					t.Errorf("%s: %s and %s are %.0f apart", p.name, a, b, d)
				}
				if d := distance(lightOf(fx).deuteranope(), lightOf(fy).deuteranope()); d < blind {
					t.Errorf("%s: %s and %s are %.0f apart for a deuteranope", p.name, a, b, d)
				}
			}
		}
	}
	seen := map[string]api.State{}
	for s, g := range glyphs {
		form := asciiOf()[g]
		if form == "" {
			form = g
		}
		if other, taken := seen[form]; taken {
			t.Errorf("in ASCII %s and %s are both %s", s, other, form)
		}
		seen[form] = s
	}
}

// Few colours are chosen by name, each one that the terminal has, and no text is
// on its own colour; what programs write in is legible too.
func TestFewColours(t *testing.T) {
	for _, colours := range []int{8, 16, 256, 1 << 24} {
		for _, p := range palettes() {
			th := newTheme(p, colours)
			letters, styles := th.roles()
			for i := range 16 {
				letters, styles = letters+string(rune('A'+i)), append(styles, tcell.StyleDefault.Foreground(tcell.PaletteColor(i)))
			}
			for i, style := range styles {
				program := i >= len(styles)-16
				fore, back, _ := th.dress(style).Decompose()
				if colours <= 16 && !program && (fore-tcell.ColorBlack >= tcell.Color(colours) || back-tcell.ColorBlack >= tcell.Color(colours)) {
					t.Errorf("%s of %d: %c is %s on %s", p.name, colours, letters[i], fore.Name(), back.Name())
				}
				// Of eight and sixteen the terminal has the last word.
				want := map[int]float64{8: 1.8, 16: 3}[colours]
				if colours > 16 {
					want = 4.5
				}
				if program && colours <= 16 {
					want = 1.01
				}
				if letters[i] == 'b' {
					want = min(want, 3)
				}
				if got := contrast(fore, back); got < want {
					t.Errorf("%s of %d: %c, %s on %s, has a contrast of %.1f", p.name, colours, letters[i], fore.Name(), back.Name(), got)
				}
			}
		}
	}
}

func TestWhatTerminalsTell(t *testing.T) {
	for told, want := range map[string]bool{"": false, "15;0": false, "0;15": true, "0;default;15": true, "0;7": true, "7;8": false} {
		if got := lightBackground(told); got != want {
			t.Errorf("COLORFGBG=%s is light: %v", told, got)
		}
	}
	for _, c := range []struct {
		locale, terminal string
		want             bool
	}{
		{"", "xterm-256color", false}, {"C.UTF-8", "xterm", false}, {"zh_TW.utf8", "tmux-256color", false}, {"zh_TW", "xterm", false},
		{"C", "xterm", true}, {"POSIX", "xterm", true}, {"de_DE.ISO-8859-1", "xterm", true}, {"en_US.UTF-8", "linux", true}, {"en_US.UTF-8", "dumb", true},
	} {
		if got := asciiOnly(c.locale, c.terminal); got != c.want {
			t.Errorf("LANG=%s TERM=%s: %v", c.locale, c.terminal, got)
		}
	}
	c := Config{Theme: "dark"}
	c.FromEnvironment(func(name string) string {
		return map[string]string{"COLORFGBG": "0;15", "LC_CTYPE": "C", "LANG": "zh_TW.UTF-8"}[name]
	})
	if c.Theme != "dark" || !c.ASCII || c.Language != "zh_TW.UTF-8" {
		t.Errorf("what is asked for goes before what the terminal tells: %+v", c)
	}
	for name, want := range map[string]bool{"": true, "auto": true, "light": true, "beige": false} {
		if _, ok := paletteOf(name); ok != want {
			t.Errorf("theme %q: %v", name, ok)
		}
	}
}

// fakeTTY is a terminal of which a test writes what is typed.
type fakeTTY struct {
	tcell.Tty
	typed []string
}

func (f *fakeTTY) Read(p []byte) (int, error) {
	n := copy(p, f.typed[0])
	f.typed = f.typed[1:]
	return n, nil
}

func TestBackgroundIsHeard(t *testing.T) {
	for _, c := range []struct {
		typed []string
		want  string
	}{
		{[]string{"\x1b]11;rgb:ffff/ffff/ffff\x1b\\"}, "light"},
		{[]string{"j", "j\x1b]11;rgb:1e", "1e/1e1e/2e2e\a:pods"}, "dark"},
		{[]string{"\x1b]11;rgb:fd/f6/e3\a"}, "light"},
		{[]string{"\x1b]11;rgb:fd/f6/e"}, ""},
		{[]string{"jjj", "\x1b[A"}, ""},
	} {
		tty := &fakeTTY{typed: c.typed}
		l := listenTo(tty)
		for len(tty.typed) > 0 {
			if _, err := l.Read(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
		got := ""
		select {
		case light := <-l.light:
			got = map[bool]string{true: "light", false: "dark"}[light]
		default:
		}
		if got != c.want {
			t.Errorf("%q: %q, want %q", c.typed, got, c.want)
		}
	}
}
