package tui

import (
	"context"
	"regexp"
	"strconv"

	"github.com/gdamore/tcell/v2"
)

// listener is a terminal that hears among what is typed whether its background
// is light, if it tells. tcell takes no notice of that, nor of an answer that
// comes late.
type listener struct {
	tcell.Tty
	light chan bool // one slot: the answer

	heard []byte // of an answer, until it is whole; this and told are of who reads
	told  bool
}

func listenTo(tty tcell.Tty) *listener { return &listener{Tty: tty, light: make(chan bool, 1)} }

var background = regexp.MustCompile(`\x1b\]11;rgb:([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})/([0-9a-fA-F]{1,4})[\x07\x1b]`)

// Read implements tcell.Tty.
func (l *listener) Read(p []byte) (int, error) {
	n, err := l.Tty.Read(p)
	if l.told {
		return n, err
	}
	l.heard = append(l.heard, p[:n]...)
	if m := background.FindSubmatch(l.heard); m != nil {
		l.light <- luminous(m[1:])
		l.heard, l.told = nil, true // it is asked once
	}
	l.heard = l.heard[max(len(l.heard)-64, 0):]
	return n, err
}

// luminous says whether red, green and blue, in hexadecimal digits, are light.
func luminous(rgb [][]byte) bool {
	sum := 0.0
	for i, weight := range []float64{0.3, 0.6, 0.1} {
		n, _ := strconv.ParseUint(string(rgb[i]), 16, 16)
		sum += weight * float64(n) / float64(int(1)<<(4*len(rgb[i]))-1)
	}
	return sum > 0.5
}

// askBackground asks the terminal what its background is, if the theme is by
// that. Terminals of few colours may not know the question.
func (a *app) askBackground(ctx context.Context) {
	l := a.ears
	if l == nil || a.config.ASCII || a.theme.plain || a.under.Colors() < 256 || a.config.Theme != "" && a.config.Theme != themeAuto {
		return
	}
	if _, err := l.Write([]byte("\x1b]11;?\x1b\\")); err != nil {
		return
	}
	a.work.Go(func() {
		select {
		case <-ctx.Done():
		case light := <-l.light:
			if p, _ := paletteOf("light"); light {
				a.post(func() { a.put(p) })
			}
		}
	})
}
