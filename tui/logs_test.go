package tui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// logServer is an API server with pods and their logs. Each request for a log
// gets the next of the stories, which may break off; after the last one, logs
// stay open and silent.
type logServer struct {
	mu      sync.Mutex // protects the fields below
	pods    []corev1.Pod
	stories []func(w http.ResponseWriter, r *http.Request)
	queries []string
}

func (s *logServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	pods := s.pods
	if !strings.HasSuffix(r.URL.Path, "/log") {
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if strings.HasSuffix(r.URL.Path, "/pods") {
			_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: pods})
			return
		}
		for _, p := range pods {
			if strings.HasSuffix(r.URL.Path, "/"+p.Name) {
				p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
				_ = json.NewEncoder(w).Encode(p)
				return
			}
		}
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: 404, Message: "not found"})
		return
	}
	s.queries = append(s.queries, r.URL.RawQuery)
	var story func(http.ResponseWriter, *http.Request)
	if len(s.stories) > 0 {
		story, s.stories = s.stories[0], s.stories[1:]
	}
	s.mu.Unlock()
	if story != nil {
		story(w, r)
		return
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// change changes what the server tells of the pods.
func (s *logServer) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func logPod(name string, restarts int32, state corev1.ContainerState) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "u"},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}, RestartPolicy: corev1.RestartPolicyAlways},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "c", RestartCount: restarts, State: state}}}}
}

var (
	runs      = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ends      = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	aPod      = kind{version: "v1", plural: "pods", singular: "pod", name: "Pod", namespaced: true}
	logStamp  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	logTarget = target{kind: aPod, namespace: "shop", name: "web"}
)

// told writes lines from..to of a log, ten of which have the same time.
func told(from, to int) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := from; i < to; i++ {
			fmt.Fprintf(w, "%s line %d\n", logStamp.Add(time.Duration(i/10)*time.Millisecond).Format("2006-01-02T15:04:05.000000000Z07:00"), i)
		}
	}
}

// readLog reads what the server tells until the lines are as they should be.
func readLog(t *testing.T, server *logServer, of target, done func(*lines) bool) *lines {
	t.Helper()
	h := httptest.NewServer(server)
	t.Cleanup(h.Close)
	c, err := newCluster(&rest.Config{Host: h.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	to := newLines(logBytes, func() {})
	to.show(func(line string) string { _, text := cutStamp(line); return text })
	tail := int64(logTail)
	r := logReader{cluster: c, of: of, to: to, lag: newLag(), options: corev1.PodLogOptions{Follow: true, TailLines: &tail}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); r.run(ctx) }()
	for deadline := time.Now().Add(time.Minute); !done(to); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log is %q", to.all())
		}
	}
	cancel()
	<-ended
	return to
}

func holds(texts ...string) func(*lines) bool {
	return func(l *lines) bool {
		all := strings.Join(l.all(), "\n")
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(all, text) })
	}
}

// T26: what is shown is what was written, line by line, however often the
// connection breaks; and what no longer fits is counted.
func TestT26NoLineIsLostOrShownTwice(t *testing.T) {
	const all = 30_000
	// sinceThen writes from the beginning of the second that is asked for.
	sinceThen := func(to int, breaks bool) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			from := 0
			if since, err := time.Parse(time.RFC3339, r.URL.Query().Get("sinceTime")); err == nil {
				from = int(since.Sub(logStamp)/time.Millisecond) * 10
			}
			told(from, to)(w, r)
			if breaks { // in the middle of a line
				panic(http.ErrAbortHandler)
			}
		}
	}
	server := &logServer{pods: []corev1.Pod{logPod("web", 0, runs)}, stories: []func(http.ResponseWriter, *http.Request){
		sinceThen(10_004, true), sinceThen(20_017, true), sinceThen(20_017, false), sinceThen(all, false)}}
	got := readLog(t, server, logTarget, holds(fmt.Sprintf("line %d", all-1)))
	var texts []string
	for _, line := range got.all() {
		if !strings.HasPrefix(line, dividerHead) {
			texts = append(texts, line)
		}
	}
	if len(texts) != all {
		t.Errorf("%d lines, want %d", len(texts), all)
	}
	for i, text := range texts {
		if want := fmt.Sprintf("line %d", i); text != want {
			t.Fatalf("line %d is %q", i, text)
		}
	}
	if q := server.queries[1]; !strings.Contains(q, "sinceTime=2026-01-01") || strings.Contains(q, "tailLines") {
		t.Errorf("after a break it asks for %s", q)
	}

	small := newLines(100, func() {})
	for i := range 50 {
		small.add(fmt.Sprintf("line %02d", i))
	}
	if n, dropped := small.size(); n+dropped != 50 || dropped == 0 {
		t.Errorf("%d lines and %d that are counted, of 50", n, dropped)
	}
}

// T27: following survives what happens to containers and pods, and says so.
func TestT27FollowSurvivesRestartsAndReplacements(t *testing.T) {
	t.Run("restart", func(t *testing.T) {
		server := &logServer{pods: []corev1.Pod{logPod("web", 0, runs)}}
		server.stories = []func(http.ResponseWriter, *http.Request){
			func(w http.ResponseWriter, r *http.Request) {
				told(0, 10)(w, r)
				server.change(func() { server.pods = []corev1.Pod{logPod("web", 0, ends)} }) // with code 0, which Always restarts too
			},
			func(http.ResponseWriter, *http.Request) {
				server.change(func() { server.pods = []corev1.Pod{logPod("web", 1, runs)} })
			},
			told(20_000, 20_001),
		}
		got := strings.Join(readLog(t, server, logTarget, holds("line 9", "line 20000")).all(), "\n")
		if n := strings.Count(got, "will start again"); n != 1 {
			t.Errorf("a restart is told %d times:\n%s", n, got)
		}
	})
	t.Run("replacement", func(t *testing.T) {
		server := &logServer{pods: []corev1.Pod{logPod("web", 0, runs)}}
		server.stories = []func(http.ResponseWriter, *http.Request){
			func(w http.ResponseWriter, r *http.Request) {
				told(0, 10)(w, r)
				server.change(func() { server.pods = nil })
			},
			func(w http.ResponseWriter, _ *http.Request) {
				server.change(func() { server.pods = []corev1.Pod{logPod("web", 0, runs)} }) // of the same name, as a StatefulSet makes it
				w.WriteHeader(http.StatusNotFound)
			},
			told(20_000, 20_001),
		}
		readLog(t, server, logTarget, holds("line 9", "the pod is gone", "line 20000"))
	})
	t.Run("rotation", func(t *testing.T) { // a stream that ends though its container runs
		server := &logServer{pods: []corev1.Pod{logPod("web", 0, runs)}, stories: []func(http.ResponseWriter, *http.Request){told(0, 10), told(0, 20)}}
		got := readLog(t, server, logTarget, holds("line 9", "reading again", "line 19"))
		if n := strings.Count(strings.Join(got.all(), "\n"), "line 9"); n != 1 {
			t.Errorf("line 9 is there %d times", n)
		}
	})
	t.Run("end", func(t *testing.T) {
		done := logPod("web", 0, ends)
		done.Spec.RestartPolicy = corev1.RestartPolicyNever
		server := &logServer{pods: []corev1.Pod{done}, stories: []func(http.ResponseWriter, *http.Request){told(0, 10)}}
		readLog(t, server, logTarget, holds("line 9", "ended"))
	})
}

func TestT27AWorkloadsNewPodsAreFollowed(t *testing.T) {
	server := &logServer{pods: []corev1.Pod{logPod("web-1", 0, runs)}}
	server.stories = []func(http.ResponseWriter, *http.Request){
		func(w http.ResponseWriter, r *http.Request) {
			told(0, 10)(w, r)
			server.change(func() { server.pods = []corev1.Pod{logPod("web-2", 0, runs)} })
		},
		told(10, 20),
	}
	rs := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "/replicasets/") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"apiVersion":"apps/v1","kind":"ReplicaSet","metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}}}}`)
			return
		}
		server.ServeHTTP(w, r)
	})
	of := target{kind: kind{group: "apps", version: "v1", plural: "replicasets", singular: "replicaset", name: "ReplicaSet", namespaced: true}, namespace: "shop", name: "web"}
	h := httptest.NewServer(rs)
	t.Cleanup(h.Close)
	c, err := newCluster(&rest.Config{Host: h.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	to := newLines(logBytes, func() {})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	r := logReader{cluster: c, of: of, to: to, lag: newLag(), options: corev1.PodLogOptions{Follow: true}}
	go func() { defer close(ended); r.run(ctx) }()
	for deadline := time.Now().Add(time.Minute); !holds("line 9", "web-1:c the pod is gone", "web-2:c is new", "line 19")(to); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log is %q", to.all())
		}
	}
	cancel()
	<-ended
}

// T28: how far behind a log is, is told; nothing is behind when nothing comes.
func TestT28Lag(t *testing.T) {
	l := newLag()
	at := logStamp
	note := func(age time.Duration) { l.note("a", at.Add(-age), at); l.note("b", at, at) }
	note(5 * time.Minute)
	if late := l.behind(at); late != 0 {
		t.Errorf("the first old line is no backlog: %s", late)
	}
	for range 3 {
		at = at.Add(lagOver / 2)
		note(5 * time.Minute)
	}
	if late := l.behind(at); late != 5*time.Minute {
		t.Errorf("behind by %s", late)
	}
	if late := l.behind(at.Add(2 * lagOver)); late != 0 {
		t.Errorf("a quiet log is behind by %s", late)
	}
	at = at.Add(lagOver / 2)
	note(time.Second)
	if late := l.behind(at); late != 0 {
		t.Errorf("caught up, and behind by %s", late)
	}
}

// newLogShow is a console that shows the log of a pod of the server.
func newLogShow(t *testing.T, server *logServer) *show {
	h := httptest.NewServer(server)
	t.Cleanup(h.Close)
	s := newShow(t, Config{}, 130, 30, func(a *app) {
		c, err := newCluster(&rest.Config{Host: h.URL}, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.cluster.kube = c.kube
	})
	s.app.post(func() { s.app.showLogs(logTarget, false) })
	return s
}

func TestT28JumpToNowLeavesTheBacklogOut(t *testing.T) {
	again := make(chan struct{})
	server := &logServer{pods: []corev1.Pod{logPod("web", 0, runs)}, stories: []func(http.ResponseWriter, *http.Request){
		func(w http.ResponseWriter, r *http.Request) { // a backlog without end
			for i := 0; r.Context().Err() == nil; i += 10 {
				told(i, i+10)(w, r)
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
			close(again)
		},
		told(2_000_000, 2_000_001),
	}}
	s := newLogShow(t, server)
	s.await("behind, G jumps to now")
	s.keys("G")
	<-again
	s.await("line 2000000", "left out")
}

// T29: what is chosen stays, whatever else is chosen after it.
func TestT29TheStatesOfALogDoNotDisturbEachOther(t *testing.T) {
	const wide = "a line which is so long that its end is beyond the right border of the screen, where only scrolling to the right shows it: END"
	server := &logServer{pods: []corev1.Pod{logPod("web", 0, runs)}, stories: []func(http.ResponseWriter, *http.Request){
		func(w http.ResponseWriter, r *http.Request) {
			for i := range 60 {
				fmt.Fprintf(w, "2026-01-01T00:00:%02d.000000000Z good %d %s\n2026-01-01T00:00:%02d.000000000Z bad %d\n", i, i, wide, i, i)
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	}}
	s := newLogShow(t, server)
	s.await("bad 59")
	keys := map[string]string{"filter": "/good\r", "pause": "s", "unwrap": "w", "right": "", "stamps": "t", "mark": "m"}
	press := func(state string) {
		if state == "right" {
			s.keys(tcell.KeyRight)
			return
		}
		for _, k := range keys[state] {
			if k == '\r' {
				s.keys(tcell.KeyEnter)
				continue
			}
			s.keys(string(k))
		}
	}
	order := []string{"filter", "pause", "unwrap", "right", "stamps", "mark"}
	for i, first := range order { // each comes first once, and each last
		turn := append(append([]string{first}, order[:i]...), order[i+1:]...)
		for _, state := range turn {
			press(state)
		}
		s.text() // the keys are through
		s.app.post(func() {
			p := s.app.top().(*logPane)
			if n, _ := p.lines.size(); p.typed != "good" || n != 60+i+1 {
				t.Errorf("%v: filter %q keeps %d lines, want 60 and the marks", turn, p.typed, n)
			}
			if p.follow || p.wrap || !p.timestamps || p.left != 8 {
				t.Errorf("%v: follow %v, wrap %v, timestamps %v, scrolled %d", turn, p.follow, p.wrap, p.timestamps, p.left)
			}
			p.setFilter("")
			p.follow, p.wrap, p.timestamps, p.left = true, true, false, 0
			p.showStamps()
		})
		s.text()
	}
	if n := len(server.queries); n != 1 {
		t.Errorf("the log was asked for %d times", n)
	}
}

// T31: a mark shows where one looked last, also in a busy log, and no filter
// hides it.
func TestT31MarksStay(t *testing.T) {
	l := newLines(0, func() {})
	l.add("one", dividerHead+"────", "two")
	filter := logPane{pager: &pager{lines: l}}
	filter.setFilter("two")
	l.add("three", dividerHead+"────")
	if got := len(l.all()); got != 3 {
		t.Errorf("%d lines: %q", got, l.all())
	}
}

// T15: however long a log is, a key costs no more than what it shows, and what
// has gone is counted.
func TestT15AMillionLinesStayScrollable(t *testing.T) {
	const all = 1_000_000
	for _, limit := range []int{0, logBytes} {
		l := newLines(limit, func() {})
		for i := 0; i < all; i += 1000 {
			batch := make([]string, 1000)
			for j := range batch {
				batch[j] = fmt.Sprintf("line %d of a log", i+j)
			}
			l.add(batch...)
		}
		n, dropped := l.size()
		if n+dropped != all || limit > 0 == (dropped == 0) {
			t.Fatalf("%d lines, %d dropped", n, dropped)
		}
		p := newPager(&app{desk: &desk{theme: plainTheme()}}, l)
		laid := 0
		p.paint = func(line string) []span { laid++; return []span{{text: line}} }
		p.wrap, p.follow = true, true
		p.SetRect(0, 0, 80, 40)
		screen := tcell.NewSimulationScreen("UTF-8")
		if err := screen.Init(); err != nil {
			t.Fatal(err)
		}
		screen.SetSize(80, 40)
		for _, step := range []struct {
			key  tcell.Key
			char rune
			want int // the first line of the screen
		}{{tcell.KeyRune, 'g', dropped}, {tcell.KeyPgDn, 0, dropped + 39}, {tcell.KeyRune, 'j', dropped + 40}, {tcell.KeyRune, 'G', all - 40}, {tcell.KeyUp, 0, all - 41}, {tcell.KeyPgUp, 0, all - 80}} {
			laid = 0
			p.InputHandler()(tcell.NewEventKey(step.key, step.char, tcell.ModNone), nil)
			screen.Clear()
			p.Draw(screen)
			if laid > 4*40 {
				t.Errorf("%v %c lays out %d lines", step.key, step.char, laid)
			}
			if line, number := l.at(p.top); number != step.want && limit == 0 {
				t.Errorf("%v %c shows line %d (%s), want %d", step.key, step.char, number, line, step.want)
			}
		}
		screen.Fini()
	}
}
