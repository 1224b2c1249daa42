package tui

import (
	"fmt"

	"github.com/gdamore/tcell/v2"
)

// screen is a tcell.Screen that sends only what differs from what is on the
// terminal. tview clears and redraws everything in each frame, and tcell marks
// every such cell for sending; so tview draws into a buffer of ours, and Show
// hands on the cells that are not as they were: in the theme's colours and,
// where the terminal has no more, in ASCII.
type screen struct {
	tcell.Screen
	theme *theme
	ascii map[string]string
	back  tcell.CellBuffer
	front []shown
	width int
	gone  bool // the terminal could not be had again
}

// shown is a cell as it was sent last. The second half of a wide character has
// an empty text.
type shown struct {
	text  string
	style tcell.Style
}

func newScreen(under tcell.Screen) *screen { return &screen{Screen: under, theme: plainTheme()} }

// Init implements tcell.Screen.
func (s *screen) Init() error {
	if err := s.Screen.Init(); err != nil {
		return err
	}
	s.fit()
	return nil
}

// fit makes the buffers as large as the terminal; a new size voids what is
// known of it.
func (s *screen) fit() {
	w, h := s.Screen.Size()
	if bw, bh := s.back.Size(); bw == w && bh == h && len(s.front) == w*h {
		return
	}
	s.back.Resize(w, h)
	s.width = w
	s.front = make([]shown, w*h)
	s.forget()
}

// forget makes the next Show send every cell.
func (s *screen) forget() {
	for i := range s.front {
		s.front[i] = shown{text: "\x00"}
	}
}

// Clear implements tcell.Screen; only the buffer is cleared.
func (s *screen) Clear() {
	s.fit()
	s.back.Fill(' ', tcell.StyleDefault)
}

// Fill implements tcell.Screen.
func (s *screen) Fill(r rune, style tcell.Style) { s.fit(); s.back.Fill(r, style) }

// Put implements tcell.Screen.
func (s *screen) Put(x, y int, text string, style tcell.Style) (string, int) {
	if x > 0 {
		if _, was, width := s.back.Get(x-1, y); width == 2 { // no half of a wide character stays
			s.back.Put(x-1, y, " ", was)
		}
	}
	rest, width := s.back.Put(x, y, text, style)
	if width == 2 {
		s.back.Put(x+1, y, " ", style) // nor what was under its other half
	}
	return rest, width
}

// PutStr implements tcell.Screen.
func (s *screen) PutStr(x, y int, text string) { s.PutStrStyled(x, y, text, tcell.StyleDefault) }

// PutStrStyled implements tcell.Screen.
func (s *screen) PutStrStyled(x, y int, text string, style tcell.Style) {
	for w := 0; text != "" && x < s.width; x += w {
		text, w = s.Put(x, y, text, style)
		if w == 0 {
			return
		}
	}
}

// SetCell implements tcell.Screen.
func (s *screen) SetCell(x, y int, style tcell.Style, ch ...rune) {
	s.Put(x, y, string(ch), style)
}

// SetContent implements tcell.Screen.
func (s *screen) SetContent(x, y int, primary rune, combining []rune, style tcell.Style) {
	if len(combining) == 0 && primary < 0x80 {
		s.Put(x, y, asciiText[primary&0x7f], style)
		return
	}
	s.Put(x, y, string(append([]rune{primary}, combining...)), style)
}

// Get implements tcell.Screen.
func (s *screen) Get(x, y int) (string, tcell.Style, int) { return s.back.Get(x, y) }

// GetContent implements tcell.Screen.
func (s *screen) GetContent(x, y int) (rune, []rune, tcell.Style, int) {
	return s.back.GetContent(x, y)
}

// Show implements tcell.Screen: it sends the differences.
func (s *screen) Show() {
	w, h := s.back.Size()
	if s.gone || len(s.front) != w*h {
		return // resized while drawing: the next frame has the right size
	}
	for y := range h {
		for x := 0; x < w; {
			text, style, width := s.back.Get(x, y)
			now := shown{text, style}
			if at := y*w + x; s.front[at] != now || (width == 2 && x+1 < w && s.front[at+1].text != "") {
				s.front[at] = now
				if plain, ok := s.ascii[text]; ok {
					text = plain
				}
				s.Screen.Put(x, y, text, s.theme.dress(style))
				if width == 2 && x+1 < w {
					s.front[at+1] = shown{}
				}
			}
			x += max(width, 1)
		}
	}
	s.Screen.Show()
}

// Sync implements tcell.Screen: everything is sent again.
func (s *screen) Sync() {
	s.fit()
	s.forget()
	s.Show()
	if !s.gone {
		s.Screen.Sync()
	}
}

// Suspend implements tcell.Screen; what was typed before is nobody's.
func (s *screen) Suspend() error {
	defer s.quiet()()
	return s.Screen.Suspend()
}

// Fini implements tcell.Screen.
func (s *screen) Fini() {
	defer s.quiet()()
	s.Screen.Fini()
}

// quiet stops what is typed, and empties the queue of events until done is called:
// with it full, tcell would wait for ever for its own goroutine that fills it.
func (s *screen) quiet() (done func()) {
	queue, ok := s.Screen.(interface{ EventQ() chan tcell.Event })
	if !ok {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-queue.EventQ():
			case <-stop:
				return
			}
		}
	}()
	if tty, ok := s.Tty(); ok {
		if t, ok := tty.(*holdable); ok {
			t.hold()
		}
	}
	return func() { close(stop); <-stopped }
}

// Resume implements tcell.Screen; another program has drawn meanwhile. A terminal
// that is gone ends the console: tview would draw on, and tcell, which has no cells
// then, never come to the end of a line.
func (s *screen) Resume() error {
	if err := s.Screen.Resume(); err != nil {
		s.gone = true
		_ = s.Screen.PostEvent(tcell.NewEventError(fmt.Errorf("the terminal is gone: %w", err)))
		return err
	}
	s.fit()
	s.forget()
	return nil
}

// asciiText has the string of each ASCII character, so that drawing one does
// not allocate.
var asciiText = func() (out [128]string) {
	for i := range out {
		out[i] = string(rune(i))
	}
	out[0] = " "
	return out
}()
