package tui

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/rivo/tview"
	authzv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	kubetesting "k8s.io/client-go/testing"

	"orrery.dev/api"
	"orrery.dev/client"
)

var update = flag.Bool("update", false, "rewrite the golden screens")

func linkLive() client.Link { return client.Link{State: client.LinkLive} }

// fakeFeed tells each view a canned snapshot, and lets a test tell more.
type fakeFeed struct {
	mu    sync.Mutex
	link  client.Link
	open  map[string]func(api.Tell)
	views []api.View
	// tables has what the views of a resource are told instead of the pods.
	tables map[string][]api.Tell
}

func (f *fakeFeed) Open(v api.View, tell func(api.Tell)) func() {
	f.mu.Lock()
	f.open[v.Resource] = tell
	f.views = append(f.views, v)
	tells, told := f.tables[v.Resource]
	f.mu.Unlock()
	for _, m := range tells {
		if m.Type == "object" == (v.Name != "") && (v.Name == "" || strings.Contains(string(m.Object), `"`+v.Name+`"`)) {
			tell(m)
		}
	}
	if told {
		return func() {}
	}
	tell(api.Tell{Type: "columns", Columns: podColumns()})
	rows := []api.Row{podRow("shop", "web-9", "Running", api.StateOK), podRow("shop", "節點-測試", "Running", api.StateOK),
		podRow("data", "db-0", "CrashLoopBackOff", api.StateError), podRow("data", "app[red]x", "Terminating", api.StateTerminating)}
	tell(api.Tell{Type: "rows", Reset: true, Revision: "5", Live: true, Rows: rows})
	return func() {}
}

func (f *fakeFeed) Link() client.Link {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.link
}

func (f *fakeFeed) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// show runs a console on a simulated screen.
type show struct {
	t      *testing.T
	screen tcell.SimulationScreen
	feed   *fakeFeed
	app    *app
	left   bool // for another cluster: app is frozen

	colours int // of the terminal; 0 is 256
}

func newShow(t *testing.T, cfg Config, w, h int, changes ...func(*app)) *show {
	t.Helper()
	s := makeShow(t, cfg, changes...)
	s.run(w, h)
	return s
}

// makeShow prepares a console that is not yet run.
func makeShow(t *testing.T, cfg Config, changes ...func(*app)) *show {
	t.Helper()
	cfg.REST = &rest.Config{Host: "https://cluster.example:6443"}
	kube := fake.NewClientset()
	kube.PrependReactor("create", "selfsubjectaccessreviews", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, &authzv1.SelfSubjectAccessReview{}, nil // nothing is allowed
	})
	c := &cluster{config: cfg.REST, kube: kube, find: kube.Discovery()}
	var err error
	if c.any, err = dynamic.NewForConfig(cfg.REST); err != nil {
		t.Fatal(err)
	}
	s := &show{t: t, screen: tcell.NewSimulationScreen("UTF-8"), feed: &fakeFeed{link: linkLive(), open: map[string]func(api.Tell){}}, app: newApp(cfg, c)}
	s.app.feed = s.feed
	s.app.plane = func(context.Context) (api.Map, error) {
		return api.Map{Version: "v1.37.2", Components: []api.Component{{Name: "scheduler", Healthy: true, Message: "ok"}, {Name: "controller-manager", Message: "connection refused"}},
			Etcd: []api.EtcdMember{{ID: "a1", Name: "one", Leader: true, Term: 3, Index: 20, Applied: 20, Revision: 18, Size: 1 << 20, InUse: 1 << 19, Quota: 8 << 30, PeerURL: "https://10.0.0.1:2380", ClientURL: "https://10.0.0.1:2379"},
				{ID: "b2", Name: "two", Term: 3, Index: 20, Applied: 19, Revision: 17, Size: 1 << 20, Quota: 8 << 30}, {ID: "c3", Name: "three", Error: "no route to host"}}}, nil
	}
	s.app.ask = func(context.Context, string, url.Values, any) error { return errors.New("this server does not tell") }
	for _, change := range changes {
		change(s.app)
	}
	s.app.now = func() time.Time { return testNow }
	s.app.slot = time.Millisecond // nobody looks
	return s
}

func (s *show) run(w, h int) {
	t := s.t
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	sized := &sizedScreen{SimulationScreen: s.screen, w: w, h: h, colours: cmp.Or(s.colours, 256)}
	work.Go(func() {
		if err := s.app.run(ctx, sized); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); work.Wait() })
}

// sizedScreen has its size before the first draw.
type sizedScreen struct {
	tcell.SimulationScreen
	w, h    int
	colours int
}

func (s *sizedScreen) Colors() int { return s.colours }

func (s *sizedScreen) Init() error {
	err := s.SimulationScreen.Init()
	s.SetSize(s.w, s.h)
	return err
}

// keys go the way of frames, so that no frame that is wanted later overtakes them.
func (s *show) keys(keys ...any) {
	for _, k := range keys {
		switch k := k.(type) {
		case tcell.Key:
			s.app.tv.QueueEvent(tcell.NewEventKey(k, 0, tcell.ModNone))
		case string:
			for _, r := range k {
				s.app.tv.QueueEvent(tcell.NewEventKey(tcell.KeyRune, r, tcell.ModNone))
			}
		}
	}
}

// text is what the last frame left on screen, read where it is drawn.
func (s *show) text() string {
	s.t.Helper()
	out := make(chan string, 1)
	if read := func() { out <- s.read() }; s.left {
		go s.app.tv.QueueUpdate(read)
	} else {
		s.app.post(read)
	}
	select {
	case text := <-out:
		return text
	case <-time.After(time.Minute):
		s.t.Fatal("the console does not answer")
		return ""
	}
}

func (s *show) read() string {
	cells, w, h := s.screen.GetContents()
	var b strings.Builder
	for y := range h {
		line := ""
		for x := 0; x < w; x++ {
			c := cells[y*w+x]
			if len(c.Runes) == 0 {
				line += " "
				continue
			}
			line += string(c.Runes)
			if textWidth(string(c.Runes)) == 2 {
				x++
			}
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

// await waits until the screen holds all of the texts.
func (s *show) await(texts ...string) string {
	s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		got := s.text()
		missing := ""
		for _, want := range texts {
			if !strings.Contains(got, want) {
				missing = want
			}
		}
		if missing == "" {
			return got
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("waited for %q on\n%s", missing, got)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
	}
}

func TestScreenOfPods(t *testing.T) {
	s := newShow(t, Config{}, 100, 24)
	golden(t, "pods", s.await("pods(all)[4]", "db-0", "live  revision 5", "v0.0.0"))
}

func TestScreenOf80Columns(t *testing.T) {
	s := newShow(t, Config{Namespace: "shop", Language: "zh_TW"}, 80, 24)
	golden(t, "pods_80_zh", s.await("pods(shop)[4]", "節點-測試", "即時", "v0.0.0"))
}

func TestScreensOfTheWhole(t *testing.T) {
	s := newShow(t, Config{Command: "map"}, 110, 36)
	golden(t, "map", s.await("v0.0.0", "★ one Leader", "節點-測試"))
	s.keys(tcell.KeyRight, tcell.KeyRight, tcell.KeyRight, tcell.KeyEnter)
	golden(t, "map_etcd", s.await("no route to host", "committed 20", "writes    0.0/s"))
	s.keys(":", "pulse", tcell.KeyEnter)
	golden(t, "pulse", s.await("1 ✗ etcd", "etcd three", "connection refused", "CrashLoopBackOff"))
}

func TestFilterAndCommandByKeys(t *testing.T) {
	s := newShow(t, Config{}, 100, 30)
	s.await("db-0")
	s.keys("/", "crash")
	s.await("pods(all)[1/4] /crash")
	s.keys(tcell.KeyEnter, tcell.KeyEscape)
	s.await("pods(all)[4]")
	s.keys(":", "depl")
	s.await(":deployments") // completed beyond what was typed
	s.keys(tcell.KeyTab, " shop", tcell.KeyEnter)
	s.await("deployments(shop)[4]")
	s.keys(":", "nonsense", tcell.KeyEnter)
	s.await(`no kind or command "nonsense"`)
}

func TestCommandsAreWalked(t *testing.T) {
	s := newShow(t, Config{}, 100, 30)
	s.await("pods(all)[4]")
	s.keys("/", "web", tcell.KeyEnter)
	s.await("pods(all)[1/4] /web")
	s.keys(":", "deploy shop,data", tcell.KeyEnter)
	s.await("deployments(shop,data)[4]", "NAMESPACE")
	s.keys("[")
	s.await("pods(all)[1/4] /web") // as it was left
	s.keys("-")
	s.await("deployments(shop,data)[4]")
	s.keys("[", "]")
	s.await("deployments(shop,data)[4]")
	s.keys(":", tcell.KeyUp)
	s.await(":deploy shop,data") // the prompt has its own history
	s.keys(tcell.KeyEscape, "/", tcell.KeyUp)
	s.await("/web") // and so has the filter's
	s.keys(tcell.KeyEscape, ":", "aliases", tcell.KeyEnter)
	s.await("aliases[6]", "deployments.apps", "deploy")
	s.keys("C")
	s.await("ALIASES↑")
	s.keys("A")
	s.await("GROUP↑")
	s.keys("R")
	s.await("NAME↑")
	s.keys("/", "name:nodes", tcell.KeyEnter)
	s.await("aliases[1/6]")
	s.keys(tcell.KeyEnter)
	s.await("nodes[4]")
	s.keys(":", "pods app=(", tcell.KeyEnter)
	s.await("-l app=(:")
}

func TestT36WhoMayListNoNamespacesLandsInTheirs(t *testing.T) {
	s := newShow(t, Config{}, 100, 30, func(a *app) {
		a.cluster.kube.(*fake.Clientset).PrependReactor("list", "namespaces", func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "", nil)
		})
		a.ask = func(_ context.Context, path string, _ url.Values, answer any) error {
			if mine, ok := answer.(*api.Namespaces); ok && path == api.NamespacesPath {
				mine.Names = []string{"shop"}
				return nil
			}
			return errors.New("this server does not tell")
		}
	})
	s.await("pods(shop)[4]", "<1> shop")
}

// T38, T40: nothing is destroyed unasked.
func TestT38DeleteAsksAndCancelIsTheDefault(t *testing.T) {
	s := newShow(t, Config{}, 100, 30, func(a *app) {
		a.consult = func(_ context.Context, _ string, of, answer any) error {
			if of := of.(api.BlastOf); len(of.Objects) != 1 || of.Objects[0] != (api.ObjectRef{Resource: "nodes", Name: "node-1"}) {
				return fmt.Errorf("asked about %v", of)
			}
			answer.(*api.Blast).Findings = []api.Finding{{State: api.WhyOK, Code: "onNode", Params: map[string]string{"count": "3"}}, {State: api.WhyBroken, Code: "podsLost", Params: map[string]string{"count": "1"}}}
			return nil
		}
	})
	s.await("db-0")
	s.screen.InjectKey(tcell.KeyCtrlD, 0, tcell.ModCtrl)
	s.await("delete: needs the verb") // the fake authoriser allows nothing
	s.app.post(func() {
		s.app.askDelete(call{on: []target{{kind: kind{plural: "nodes", singular: "node"}, name: "node-1"}}}, false)
	})
	s.await("Delete node", "✗ 1 pods have no controller: they are lost", "· 3 pods are on it", `type "node-1" to confirm`, "Cancel")
	s.keys(tcell.KeyEscape)
	for deadline := time.Now().Add(time.Minute); strings.Contains(s.text(), "to confirm"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Esc did not cancel")
		}
	}
}

func TestReadOnlyRefuses(t *testing.T) {
	s := newShow(t, Config{ReadOnly: true}, 100, 30)
	s.await("[read only]", "db-0")
	s.screen.InjectKey(tcell.KeyCtrlD, 0, tcell.ModCtrl)
	s.await("delete: this console is read only")
}

// T16: a connection that breaks is told of, keys work on, and nothing is lost.
func TestT16BreakIsVisibleAndNothingIsLost(t *testing.T) {
	s := newShow(t, Config{}, 100, 30)
	s.await("live", "db-0")
	s.feed.mu.Lock()
	s.feed.link = client.Link{State: client.LinkReconnecting, Since: testNow.Add(-3 * time.Second)}
	s.feed.mu.Unlock()
	s.app.dirty()
	s.await("reconnecting 3s", "db-0")
	s.keys("j") // keys work on
	s.feed.mu.Lock()
	s.feed.link = linkLive()
	tell := s.feed.open["pods"]
	s.feed.mu.Unlock()
	tell(api.Tell{Type: "rows", Revision: "9", Live: true, Gone: []string{"data/db-0"}})
	got := s.await("live  revision 9", "pods(all)[3]")
	if strings.Contains(got, "db-0") {
		t.Errorf("a ghost row:\n%s", got)
	}
}

func TestHelpSaysWhatAppliesAndWhyNot(t *testing.T) {
	s := newShow(t, Config{ReadOnly: true}, 120, 50)
	s.await("db-0")
	s.keys("?")
	s.await("Keys and commands of pods", ":describe", "ctrl-d", "this console is read only")
}

func TestScreenSendsOnlyDifferences(t *testing.T) {
	sim := tcell.NewSimulationScreen("UTF-8")
	counting := &countingScreen{SimulationScreen: sim}
	s := newScreen(counting)
	if err := s.Init(); err != nil {
		t.Fatal(err)
	}
	defer s.Fini()
	frame := func(text string) int {
		counting.puts = 0
		s.Clear()
		s.PutStrStyled(0, 0, text, tcell.StyleDefault)
		s.Show()
		return counting.puts
	}
	frame("hello 节点 world")
	if n := frame("hello 节点 world"); n != 0 {
		t.Errorf("the same frame sends %d cells", n)
	}
	if n := frame("hello 节点 World"); n != 1 {
		t.Errorf("one letter sends %d cells", n)
	}
	frame("hello ab节 World")
	if str, _, _ := sim.Get(8, 0); str != "节" {
		t.Errorf("a wide character over halves of others: %q", str)
	}
	frame("hello abcd World")
	if str, _, _ := sim.Get(9, 0); str != "d" {
		t.Errorf("narrow over the second half of a wide one: %q", str)
	}
}

type countingScreen struct {
	tcell.SimulationScreen
	puts int
}

func (c *countingScreen) Put(x, y int, s string, style tcell.Style) (string, int) {
	c.puts++
	return c.SimulationScreen.Put(x, y, s, style)
}

// T39: what is done to many is done to exactly those marked rows that are
// visible.
func TestT39MarkedRowsThatTheFilterHidesAreLeftAlone(t *testing.T) {
	s := newShow(t, Config{}, 100, 30)
	s.await("db-0")
	s.keys("    ") // marks all four
	s.keys("/", "shop", tcell.KeyEnter)
	s.await("pods(all)[2/4] /shop")
	s.app.post(func() {
		var on []string
		for _, r := range s.app.top().(*tablePane).targets() {
			on = append(on, r.row.Name)
		}
		if got := strings.Join(on, " "); got != "web-9 節點-測試" {
			t.Errorf("acts on %s", got)
		}
	})
	s.text()
}

// T38, T40: every action that destroys asks first, and what takes much down with
// it wants its name typed.
func TestT38EveryActionThatDestroysAsks(t *testing.T) {
	allowed := func(a *app) {
		a.cluster.kube.(*fake.Clientset).PrependReactor("create", "selfsubjectaccessreviews", func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, &authzv1.SelfSubjectAccessReview{Status: authzv1.SubjectAccessReviewStatus{Allowed: true}}, nil
		})
	}
	for _, c := range []struct {
		view  string
		key   any
		typed bool
	}{{"pods", tcell.KeyCtrlD, false}, {"pods", tcell.KeyCtrlK, false}, {"deploy", "r", false}, {"nodes", "r", false}, {"nodes", tcell.KeyCtrlD, true}, {"namespaces", tcell.KeyCtrlD, true}} {
		s := newShow(t, Config{Command: c.view}, 100, 30, allowed)
		s.await("db-0")
		if key, ok := c.key.(tcell.Key); ok {
			s.screen.InjectKey(key, 0, tcell.ModCtrl)
		} else {
			s.keys(c.key)
		}
		got := s.await("Cancel")
		if typed := strings.Contains(got, "to confirm"); typed != c.typed {
			t.Errorf("%s of %s asks for a name: %v\n%s", c.key, c.view, typed, got)
		}
		s.app.post(func() { s.app.closeDialog() })
		s.text()
		for _, act := range s.app.cluster.kube.(*fake.Clientset).Actions() {
			if act.GetVerb() == "delete" || act.GetVerb() == "patch" || act.GetVerb() == "update" {
				t.Errorf("%s of %s does %s %s unasked", c.key, c.view, act.GetVerb(), act.GetResource().Resource)
			}
		}
	}
}

// T46: several namespaces at once, by name or by marking them.
func TestT46SeveralNamespaces(t *testing.T) {
	s := newShow(t, Config{}, 110, 30)
	s.await("db-0")
	s.keys(":", "pods shop,data", tcell.KeyEnter)
	s.await("pods(shop,data)[4]", "NAMESPACE")
	s.keys(":", "namespaces", tcell.KeyEnter)
	s.await("namespaces[4]")
	s.keys("  u")
	s.await("pods(app[red]x,db-0)[4]")
	s.feed.mu.Lock()
	last := s.feed.views[len(s.feed.views)-1]
	s.feed.mu.Unlock()
	if got := strings.Join(last.Namespaces, " "); got != "app[red]x db-0" {
		t.Errorf("asks for %s", got)
	}
}

// T35: an API server that never answers blocks no key and ends nothing.
func TestT35NoKeyWaitsForTheServer(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or nobody notices that the client left
		<-r.Context().Done()
	}))
	t.Cleanup(silent.Close)
	s := newShow(t, Config{}, 110, 40, func(a *app) {
		c, err := newCluster(&rest.Config{Host: silent.URL}, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.cluster, a.ask = c, c.ask
		a.plane = c.plane
		a.config.REST = c.config
	})
	s.await("db-0")
	leaves := map[string]bool{"quit": true, "suspend": true, "edit": true}
	for _, view := range []string{"pods", "deploy", "nodes", "services", "namespaces", "pulse", "map"} {
		s.app.post(func() {
			for name := range s.app.actions {
				if leaves[name] {
					continue
				}
				s.app.execute(view)
				began := time.Now()
				s.app.do(name)
				if took := time.Since(began); took > 4*time.Second { // requests give up after five
					t.Errorf("%s in %s took %s", name, view, took)
				}
				s.app.cancelInput()
			}
		})
		s.text()
	}
	s.app.post(func() { s.app.execute("pods"); s.app.cancelInput() }) // no keys: a late answer may ask something
	s.await("pods(", "db-0")
}

// T50: rows, the link, keys and the size change all at once; the race detector
// looks on.
func TestT50EverythingChangesAtOnce(t *testing.T) {
	s := newShow(t, Config{}, 110, 40)
	s.await("db-0")
	var all sync.WaitGroup
	const rounds = 200
	all.Go(func() {
		for i := range rounds {
			s.feed.mu.Lock()
			s.feed.link = client.Link{State: [...]client.LinkState{client.LinkLive, client.LinkReconnecting}[i%2], Since: testNow}
			s.feed.mu.Unlock()
			s.app.dirty()
		}
	})
	for _, kind := range []string{"pods", "nodes", "deployments"} {
		all.Go(func() {
			for i := range rounds {
				s.feed.mu.Lock()
				tell := s.feed.open[kind]
				s.feed.mu.Unlock()
				if tell != nil {
					tell(api.Tell{Type: "rows", Revision: fmt.Sprint(i), Live: true, Rows: []api.Row{podRow("shop", fmt.Sprintf("web-%d", i%7), "Running", api.StateOK)}, Gone: []string{"shop/web-3"}})
				}
			}
		})
	}
	for _, keys := range [][]any{{"jk  "}, {"/web", tcell.KeyEnter, tcell.KeyEscape}, {":", "nodes", tcell.KeyEnter}, {":", "pulse", tcell.KeyEnter}, {":", "map", tcell.KeyEnter}, {"?", tcell.KeyEscape}, {":", "pods", tcell.KeyEnter}} {
		all.Go(func() {
			for range rounds / 20 {
				s.keys(keys...)
			}
		})
	}
	all.Go(func() {
		for i := range rounds / 10 {
			s.screen.SetSize(80+i, 30+i%10)
			s.screen.PostEventWait(tcell.NewEventResize(80+i, 30+i%10))
		}
	})
	all.Wait()
	s.keys(tcell.KeyEscape, tcell.KeyEscape, tcell.KeyEscape, ":", "pods all", tcell.KeyEnter)
	s.await("pods(all)[4]", "db-0")
}

// lostTTY is a terminal that is there once.
type lostTTY struct {
	tcell.Tty
	started bool
	drained chan struct{}
}

func (l *lostTTY) Start() error {
	if l.started {
		return errors.New("no such device")
	}
	l.started = true
	return nil
}

func (l *lostTTY) Read([]byte) (int, error)    { <-l.drained; return 0, io.EOF }
func (l *lostTTY) Write(p []byte) (int, error) { return len(p), nil }
func (l *lostTTY) Drain() error                { close(l.drained); return nil }
func (l *lostTTY) Stop() error                 { return nil }
func (l *lostTTY) Close() error                { return nil }
func (l *lostTTY) NotifyResize(func())         {}
func (l *lostTTY) WindowSize() (tcell.WindowSize, error) {
	return tcell.WindowSize{Width: 80, Height: 24}, nil
}

// What hangs up a session wakes the console, which takes the terminal anew.
func TestConsoleEndsWithItsTerminal(t *testing.T) {
	c := Config{Term: "xterm-256color"}
	kind, err := c.terminalKind()
	if err != nil {
		t.Fatal(err)
	}
	under, err := tcell.NewTerminfoScreenFromTtyTerminfo(newHoldable(&lostTTY{drained: make(chan struct{})}), kind)
	if err != nil {
		t.Fatal(err)
	}
	tv := tview.NewApplication()
	tv.SetScreen(newScreen(under)).SetRoot(tview.NewTextView().SetText("pods"), true)
	go tv.QueueUpdateDraw(func() { tv.Suspend(func() {}) })
	if err := tv.Run(); err == nil || !strings.Contains(err.Error(), "the terminal is gone: no such device") {
		t.Errorf("it ended with %v", err)
	}
}
