package tui

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"

	"orrery.dev/api"
	"orrery.dev/client"
	sentences "orrery.dev/client/words"
)

// pane is what fills the middle of the screen. Its methods run on tview's
// goroutine.
type pane interface {
	tview.Primitive
	crumb() string
	// scopes are where its keys are looked up, the most specific first.
	scopes() []string
	// open starts what feeds the pane, close ends it; a pane that is left with
	// another on top is closed, and opened again on the way back.
	open()
	close()
	// refresh takes over what came since the last frame.
	refresh(now time.Time)
}

// desk is what stays when the console changes to another cluster. Fields without
// a note belong to tview's goroutine.
type desk struct {
	tv        *tview.Application
	under     tcell.Screen
	screen    *screen   // over it
	ears      *listener // at its terminal, if there is one
	theme     *theme
	now       func() time.Time
	slot      time.Duration // frameSlot
	suspended atomic.Bool
	life      context.Context //nolint:containedctx // of run
	quit      context.CancelFunc
	work      sync.WaitGroup
	forwards  forwards
	settings  settings
	logColumn *int // where all logs begin, if that is locked

	commands, filters history // of the prompt

	headerOff, crumbsOff, fullScreen bool
}

// app is the console of one cluster.
type app struct {
	*desk
	config  Config
	cluster *cluster
	feed    client.Feed
	words   words
	shared  sentences.Words                        // what both faces say
	plane   func(context.Context) (api.Map, error) // what the control plane says of itself
	ask     asker
	consult func(ctx context.Context, path string, question, answer any) error

	stale   chan struct{}   // one slot: a frame is wanted
	painted chan struct{}   // one slot: it was made
	ctx     context.Context //nolint:containedctx // what actions start must end with the app
	leave   context.CancelFunc

	mu    sync.Mutex // protects posts
	posts []func()

	kinds      kinds
	namespaces []string
	namespace  string // "" is all
	facts      facts
	bindings   []binding
	actions    map[string]action
	rights     *rights
	usage      *usage

	stack  []pane
	root   *tview.Pages
	layout *tview.Flex
	body   *tview.Flex
	header *header
	prompt *prompt
	footer *footer
	trail  trail
}

// asker gets one of the API server's own answers.
type asker func(ctx context.Context, path string, query url.Values, answer any) error

func newApp(cfg Config, c *cluster) *app {
	if cfg.ASCII { // which has no other language
		cfg.Language = "en"
	}
	a := &app{desk: &desk{tv: tview.NewApplication(), now: time.Now, slot: frameSlot}, config: cfg, cluster: c, words: newWords(cfg.Language), plane: c.plane, ask: c.ask, consult: c.consult,
		shared: sentences.In(language(cfg.Language)),
		stale:  make(chan struct{}, 1), painted: make(chan struct{}, 1),
		kinds: firstKinds(), namespace: cfg.Namespace, bindings: bindings()}
	a.actions = actionsByName()
	a.rights = newRights(a.words)
	a.settings, _ = readSettings(cfg.Settings) // what is wrong with it is told when it is changed
	a.usage = &usage{}
	return a
}

// run shows the console on a screen until quit or ctx ends. All goroutines have
// ended when it returns.
func (a *app) run(ctx context.Context, under tcell.Screen) error {
	a.life, a.quit = context.WithCancel(ctx)
	defer a.work.Wait()
	defer a.quit()

	a.under, a.screen = under, newScreen(under)
	a.tv.SetScreen(a.screen) // initialises it
	if a.config.ASCII {
		a.screen.ascii = asciiOf()
	}
	p, _ := paletteOf(a.config.Theme)
	a.wear(p)
	a.tv.EnablePaste(true)
	a.work.Go(func() {
		<-a.life.Done()
		for a.suspended.Load() { // tview must not be stopped while suspended
			time.Sleep(20 * time.Millisecond)
		}
		a.tv.Stop()
	})
	a.begin()
	a.askBackground(a.ctx)
	return a.tv.Run()
}

// begin shows the app, which is fed until it is left.
func (a *app) begin() {
	a.ctx, a.leave = context.WithCancel(a.life)
	ctx := a.ctx
	a.build()
	a.tv.SetInputCapture(a.capture)
	a.work.Go(func() { a.paint(ctx) })
	a.work.Go(func() {
		if err := a.feed.Run(ctx); err != nil {
			a.post(func() { a.fail(err) })
		}
	})
	a.work.Go(func() { a.discover(ctx) })
	a.watchStops(ctx)
	a.start()
}

func (a *app) build() {
	plainStyles()
	a.header, a.footer, a.prompt = newHeader(a), newFooter(a), newPrompt(a)
	a.body = tview.NewFlex().SetDirection(tview.FlexRow)
	a.layout = tview.NewFlex().SetDirection(tview.FlexRow).
		AddItem(a.header, headerHeight, 0, false).
		AddItem(a.prompt, 0, 0, false).
		AddItem(a.body, 0, 1, true).
		AddItem(a.footer, 1, 0, false)
	a.root = tview.NewPages().AddPage("main", a.layout, true, true)
	a.tv.SetRoot(a.root, true)
	a.tv.SetBeforeDrawFunc(func(s tcell.Screen) bool {
		w, h := s.Size()
		a.arrange(w, h)
		return false
	})
}

// wear puts a theme on, over the one that panes point to.
func (a *app) wear(p palette) {
	colours := a.under.Colors()
	if a.config.NoColor {
		colours = 0
	}
	if a.theme == nil {
		a.theme = &theme{}
	}
	*a.theme = *newTheme(p, colours)
	a.screen.theme = a.theme
	a.screen.forget()
	for _, p := range a.stack {
		if b, ok := p.(interface {
			SetBorderStyle(tcell.Style) *tview.Box
		}); ok {
			b.SetBorderStyle(a.theme.border)
		}
	}
}

// put puts a theme on while the console runs.
func (a *app) put(p palette) {
	a.wear(p)
	a.prompt.dress()
}

// arrange gives small terminals more room for what matters.
func (a *app) arrange(_, h int) {
	top := headerHeight
	switch {
	case a.headerOff || a.fullScreen:
		top = 0
	case h < 30:
		top = headerSmall
	}
	bottom := 1
	if a.crumbsOff && a.footer.silent() {
		bottom = 0
	}
	a.layout.ResizeItem(a.header, top, 0)
	a.layout.ResizeItem(a.footer, bottom, 0)
}

func (a *app) start() {
	line := strings.TrimPrefix(a.config.Command, ":")
	if line == "" && a.config.Namespace == "" {
		line = a.settings.Begin[a.contextName()]
	}
	if line == "" {
		line = "pods"
	}
	if !a.execute(line) {
		a.execute("pods")
		a.config.Command = line
	}
}

// top is the pane on screen.
func (a *app) top() pane {
	if len(a.stack) == 0 {
		return nil
	}
	return a.stack[len(a.stack)-1]
}

// push shows a pane on top of the others.
func (a *app) push(p pane) {
	if was := a.top(); was != nil {
		was.close()
	}
	a.stack = append(a.stack, p)
	a.reveal()
}

// replace shows a pane instead of all others.
func (a *app) replace(p pane) {
	if was := a.top(); was != nil {
		was.close()
	}
	a.stack = []pane{p}
	a.reveal()
}

// back goes to the pane below, and says whether there was one.
func (a *app) back() bool {
	if len(a.stack) < 2 {
		return false
	}
	a.top().close()
	a.stack = a.stack[:len(a.stack)-1]
	a.reveal()
	return true
}

// reveal opens the top pane and gives it the screen.
func (a *app) reveal() {
	p := a.top()
	p.open()
	p.refresh(a.now())
	a.body.Clear()
	a.body.AddItem(p, 0, 1, true)
	a.tv.SetFocus(p)
	a.dirty()
}

// refresh brings what is on screen up to date.
func (a *app) refresh(now time.Time) {
	if p := a.top(); p != nil {
		p.refresh(now)
	}
}

// capture sees every key first.
func (a *app) capture(e *tcell.EventKey) *tcell.EventKey {
	if e.Key() == keyFrame {
		a.frame()
		return nil
	}
	if a.prompt.active || a.dialogOpen() {
		if e.Key() == tcell.KeyCtrlC {
			a.cancelInput()
			return nil
		}
		return e
	}
	p := a.top()
	if p == nil {
		return e
	}
	name, ok := lookup(a.bindings, keyScopes(p.scopes()), keyName(e))
	if !ok {
		return e
	}
	a.do(name)
	a.refresh(a.now())
	return nil
}

func (a *app) cancelInput() {
	if a.dialogOpen() {
		a.closeDialog()
		return
	}
	a.prompt.cancel()
}

// async runs work in the background; what it returns runs on tview's goroutine.
func (a *app) async(work func(ctx context.Context) (then func())) {
	ctx := a.ctx
	a.work.Go(func() {
		if then := work(ctx); then != nil && ctx.Err() == nil {
			a.post(then)
		}
	})
}

// call runs an action's request in the background and says how it went.
func (a *app) call(done string, request func(ctx context.Context) error) {
	a.async(func(ctx context.Context) func() {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		err := request(ctx)
		return func() {
			if err != nil {
				a.fail(err)
				return
			}
			a.note(done)
		}
	})
}

// note and fail say something at the bottom of the screen for a while; a note in
// the user's language.
func (a *app) note(text string, args ...any) { a.footer.say(false, a.words.say(text, args...)) }
func (a *app) fail(err error)                { a.footer.say(true, a.words.told(err.Error())) }

// discover learns what kinds there are, the user, the version and the
// namespaces; it asks again now and then, because they change.
func (a *app) discover(ctx context.Context) {
	wait := time.Second
	for {
		f, lists, err := a.cluster.survey(ctx, a.ask)
		if ctx.Err() != nil {
			return
		}
		a.post(func() { a.learn(f, kindsFrom(lists), err) })
		if err == nil {
			wait = time.Minute
		} else {
			wait = min(2*wait, 15*time.Second)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

func (a *app) learn(f facts, ks kinds, err error) {
	if len(ks) > 0 {
		a.kinds = ks
	}
	if err != nil && f.version == "" {
		return
	}
	first := !a.facts.seen
	a.facts = f
	a.facts.seen = true
	a.namespaces = f.namespaces
	if pending := a.config.Command; pending != "" && len(a.stack) == 1 && first {
		a.retryCommand(pending)
	}
	if first && f.confined && a.namespace == "" && len(f.namespaces) == 1 {
		a.namespace = f.namespaces[0]
		a.top().close()
		a.top().open()
	}
}

// retryCommand shows what the user began with, or wanted too early, once its kind
// is known.
func (a *app) retryCommand(line string) {
	a.config.Command = ""
	t, ok := a.top().(*tablePane)
	k, known := a.kinds.resolve(parseCommand(line).word)
	if ok && known && t.kind.plural != k.plural {
		a.execute(line)
	}
}

// commandWords are what begins a command, the usual ones first: Tab takes the
// first that fits.
func (a *app) commandWords() []string {
	words := []string{"pods", "nodes", "namespaces", "deployments", "services", "events", "help", "quit"}
	usual := len(words)
	for _, s := range scenes() {
		words = append(words, s.words[0])
	}
	words = append(words, a.kinds.complete("")...)
	for name := range a.actions {
		words = append(words, name)
	}
	slices.Sort(words[usual:])
	return words
}
