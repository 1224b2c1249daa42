package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"orrery.dev/server/storage"
)

var (
	seedFlag = flag.Uint64("seed", 0, "of TestConsistency; 0: by the clock")
	soakFlag = flag.Duration("soak", 0, "how long TestConsistency goes on, in rounds of some seconds with seeds that follow each other")
)

// TestConsistency lets writers, readers and mishaps loose on three API servers
// over one etcd, over HTTP, and then holds everything that the servers said
// against what etcd says happened: every watcher heard of each change of its
// scope once and in order, and every list is the state at a revision that is no
// older than what was asked for.
func TestConsistency(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	end := time.Now().Add(*soakFlag)
	for ; ; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { randomRound(t, seed) })
		if t.Failed() || time.Now().After(end) {
			return
		}
	}
}

func randomRound(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	quiet, hush := context.WithCancel(ctx)
	defer hush()
	var watching, busy sync.WaitGroup
	var watchers []*watcher
	for n := range 24 {
		o := &watcher{actor: w.actor(uint64(n)), scope: w.scope(n)}
		watchers = append(watchers, o)
		watching.Go(func() { o.run(ctx) })
	}
	for n := range 4 {
		writer, reader := w.actor(uint64(100+n)), w.actor(uint64(200+n))
		busy.Go(func() { writer.write(quiet) })
		busy.Go(func() { reader.read(quiet) })
	}
	w.disturb(ctx, rand.New(rand.NewPCG(seed, 300)))
	hush()
	busy.Wait()
	last := w.lastWord(t)
	for _, o := range watchers {
		w.servers[0].c.await("watchers are told the end of "+o.scope.String(), func() bool { return o.reached(last) })
	}
	cancel()
	watching.Wait()
	w.judge(t, watchers)
}

// world is what the actors of one round share.
type world struct {
	t        *testing.T
	seed     uint64
	subjects []*subject
	truth    *truth
	client   *clientv3.Client
	servers  []*front
	// acked is the newest revision that a server has answered with, compacted
	// the one before which etcd may have forgotten.
	acked, compacted atomic.Int64
	writes           atomic.Int64 // that were done

	mu       sync.Mutex // protects the fields below
	listings []*listing
	readings []*reading
	said     int // things held against the truth
	expired  int // 410s
}

// front is an API server that comes and goes.
type front struct {
	name      string
	backend   *frail
	options   storage.Options
	forgetful bool // watchers may fall out of its small window

	mu sync.Mutex // protects c
	c  *cluster   // nil: it is down
}

func (f *front) up() *cluster {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.c
}

// frail is etcd over a connection that breaks, with a note of what is compacted.
type frail struct {
	storage.Backend
	truth     *truth
	compacted *atomic.Int64
	blind     atomic.Bool // it has missed something, and what that was is compacted
	mu        sync.Mutex  // protects cut
	cut       context.CancelFunc
}

// Compact spares what the record has yet to see: on a busy machine it can lag.
func (f *frail) Compact(ctx context.Context, rev int64) error {
	if rev = min(rev, f.truth.progress()); rev == 0 {
		return nil
	}
	raise(f.compacted, rev)
	return f.Backend.Compact(ctx, rev)
}

func (f *frail) Watch(ctx context.Context, prefix string, from int64, sink func([]storage.Change, int64)) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	f.cut = cancel
	f.mu.Unlock()
	err := f.Backend.Watch(inner, prefix, from, sink)
	if errors.Is(err, storage.ErrCompacted) {
		f.blind.Store(true)
	}
	if ctx.Err() == nil && inner.Err() != nil {
		return errors.New("connection lost")
	}
	return err
}

// History may take longer than a server waits for it.
func (f *frail) History(ctx context.Context, prefix string, from, to int64, limit int) ([]storage.Past, error) {
	past, err := f.Backend.History(ctx, prefix, from, to, limit)
	if errors.Is(err, context.DeadlineExceeded) {
		f.blind.Store(true)
	}
	return past, err
}

func raise(to *atomic.Int64, rev int64) {
	for old := to.Load(); rev > old && !to.CompareAndSwap(old, rev); old = to.Load() {
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	etcd := embeddedEtcd(t)
	w := &world{t: t, seed: seed, subjects: []*subject{thePods(), theMaps(), theWidgets()}, client: etcdClient(t, etcd)}
	w.truth = &truth{deeds: map[*subject][]deed{}, now: map[string]*state{}}
	ctx, cancel := context.WithCancel(context.Background())
	var recording sync.WaitGroup
	recording.Go(func() { w.truth.follow(ctx, t, w.client, w.subjects, 1) })
	t.Cleanup(func() { cancel(); recording.Wait() })
	quick := storage.Options{BookmarkInterval: 50 * time.Millisecond, CompactInterval: 800 * time.Millisecond, Log: slog.New(slog.DiscardHandler)}
	small := quick
	small.WindowSize = 1
	for _, f := range []*front{{name: "plain", options: quick}, {name: "small", options: small, forgetful: true}, {name: "frail", options: quick}} {
		f.backend = &frail{Backend: storage.NewEtcd(etcdClient(t, etcd)), truth: w.truth, compacted: &w.compacted}
		f.begin(t)
		w.servers = append(w.servers, f)
	}
	w.servers[0].c.define(randomWidgets)
	for _, f := range w.servers {
		for _, base := range w.subjects[2].bases {
			f.c.await("widgets", func() bool { code, _ := f.c.do("GET", base+"/widgets", "", nil); return code == 200 })
		}
	}
	return w
}

func (f *front) begin(t *testing.T) {
	c := startOver(t, f.backend, func(cfg *Config) {
		cfg.Store = storage.New(f.backend, f.options)
		cfg.Bootstrap = nil
		cfg.Log = f.options.Log
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.c = c
}

// disturb brings on what happens to servers, one thing after the other.
func (w *world) disturb(ctx context.Context, random *rand.Rand) {
	for range 10 {
		for until := w.writes.Load() + int64(random.IntN(50)); w.writes.Load() < until && ctx.Err() == nil; {
			pause(ctx, time.Millisecond)
		}
		f := w.servers[random.IntN(len(w.servers))]
		switch random.IntN(4) {
		case 0:
			f.mu.Lock()
			c := f.c
			f.c = nil
			f.mu.Unlock()
			c.stop()
			f.begin(w.t)
		case 1:
			f.c.web.CloseClientConnections()
		case 2:
			frail := w.servers[2].backend
			frail.mu.Lock()
			frail.cut()
			frail.mu.Unlock()
		}
		if random.IntN(3) == 0 {
			reply, err := w.client.Get(ctx, "/registry/health", clientv3.WithCountOnly())
			if err == nil {
				w.servers[0].backend.Compact(ctx, reply.Header.Revision)
			}
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// lastWord is a revision after all that was written.
func (w *world) lastWord(t *testing.T) int64 {
	c := w.servers[0].c
	code, body := c.do("POST", "/api/v1/namespaces/end/configmaps", `{"metadata":{"name":"end"}}`, nil)
	var m metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(body), &m); err != nil || code != 201 {
		t.Fatalf("%d %s", code, body)
	}
	rev := seen(&m).rev
	c.await("the record is whole", func() bool { return w.truth.progress() >= rev })
	return rev
}

// judge holds all that was said against the truth.
func (w *world) judge(t *testing.T, watchers []*watcher) {
	w.truth.mu.Lock()
	defer w.truth.mu.Unlock()
	w.truth.compacted = w.compacted.Load()
	wrong := 0
	report := func(err error, what any) {
		if w.said++; err == nil {
			return
		}
		if wrong++; wrong <= 5 {
			t.Errorf("%v: %.3000v", what, err)
		}
	}
	for _, o := range watchers {
		w.said += len(o.log)
		report(w.truth.replay(o.scope, o.log), fmt.Sprintf("a watcher of %v", o.scope))
		for _, f := range o.fresh {
			w.said += len(f.log)
			report(w.truth.replayFresh(o.scope, f.floor, f.log), fmt.Sprintf("a watcher of %v from no revision", o.scope))
		}
	}
	for _, l := range w.listings {
		report(w.truth.check(l), fmt.Sprintf("a list of %v, at least %d, exactly %d, in pages of %d", l.scope, l.floor, l.exact, l.limit))
	}
	for _, r := range w.readings {
		report(w.truth.checkReading(r), "a reading")
	}
	changes := 0
	for _, all := range w.truth.deeds {
		changes += len(all)
	}
	t.Logf("%d changes; %d watchers, %d lists and %d gets were told %d things, 410 %d times", changes, len(watchers), len(w.listings), len(w.readings), w.said, w.expired)
	if wrong > 0 {
		t.Errorf("%d lies; again with -args -seed=%d", wrong, w.seed)
	}
}

// scope is the n-th kind of scope.
func (w *world) scope(n int) scope {
	s := scope{subject: w.subjects[n%len(w.subjects)], labels: labels.Everything(), fields: fields.Everything()}
	switch n / len(w.subjects) % 6 {
	case 1:
		s.namespace = "ns1"
	case 2:
		s.labels = labels.SelectorFromSet(labels.Set{"ready": "true"})
	case 3:
		s.fields = fields.OneTermEqualSelector("metadata.name", "o1")
	case 4:
		s.namespace = "ns0"
		s.labels, _ = labels.Parse("ready,tier notin (a)")
	case 5:
		switch s.plural {
		case "pods":
			s.fields = fields.OneTermEqualSelector("spec.nodeName", "n1")
		case "widgets":
			s.fields = fields.OneTermNotEqualSelector("spec.color", "c1")
		default:
			s.fields = fields.OneTermEqualSelector("metadata.namespace", "ns1")
		}
	}
	return s
}

func (s scope) path(base string) string {
	if s.namespace == "" {
		return base + "/" + s.plural
	}
	return base + "/namespaces/" + s.namespace + "/" + s.plural
}

func (s scope) query() url.Values {
	q := url.Values{}
	if !s.labels.Empty() {
		q.Set("labelSelector", s.labels.String())
	}
	if !s.fields.Empty() {
		q.Set("fieldSelector", s.fields.String())
	}
	return q
}

// actor is a client with connections of its own, of little buffer.
type actor struct {
	*world
	id     uint64
	random *rand.Rand
	http   *http.Client
	marks  int
}

func (w *world) actor(id uint64) *actor {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(4096)
		}
		return conn, err
	}
	transport := &http.Transport{DialContext: dial}
	w.t.Cleanup(transport.CloseIdleConnections)
	return &actor{world: w, id: id, random: rand.New(rand.NewPCG(w.seed, id)), http: &http.Client{Transport: transport}}
}

// pick chooses a server that is up.
func (a *actor) pick(ctx context.Context) (*front, string) {
	for ctx.Err() == nil {
		f := a.servers[a.random.IntN(len(a.servers))]
		if c := f.up(); c != nil {
			return f, c.url
		}
		pause(ctx, 5*time.Millisecond)
	}
	return a.servers[0], "http://127.0.0.1:1"
}

// ask makes a request; a server that breaks off is no error, only a reply of
// code 0.
func (a *actor) ask(ctx context.Context, method, url, contentType, body string) (code int, reply []byte) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		a.t.Error(err)
		return 0, nil
	}
	req.Header.Set("Authorization", "Bearer admin")
	if body != "" {
		req.Header.Set("Content-Type", contentType)
	}
	answer, err := a.http.Do(req)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	if reply, err = io.ReadAll(answer.Body); err != nil {
		return 0, nil
	}
	return answer.StatusCode, reply
}

// mark names a write.
func (a *actor) mark() string {
	a.marks++
	return fmt.Sprintf("%d-%d", a.id, a.marks)
}

// write makes changes until ctx ends. After some it reads what it wrote from
// another server.
func (a *actor) write(ctx context.Context) {
	for ctx.Err() == nil {
		s := a.subjects[a.random.IntN(len(a.subjects))]
		_, server := a.pick(ctx)
		code, reply := a.change(ctx, s, server+s.bases[a.random.IntN(len(s.bases))])
		switch code {
		case 0, 404, 409, 422, 429:
		case 200, 201:
			var m metav1.PartialObjectMetadata
			if err := json.Unmarshal(reply, &m); err != nil {
				a.t.Errorf("%v: %s", err, reply)
			}
			if item := seen(&m); m.Name != "" && item.rev > 0 {
				raise(&a.acked, item.rev)
				a.writes.Add(1)
				if a.random.IntN(4) == 0 {
					a.get(ctx, s, m.Namespace, m.Name)
				}
			}
		default:
			a.t.Errorf("write: %d %s", code, reply)
		}
		pause(ctx, time.Duration(a.random.IntN(4))*time.Millisecond)
	}
}

// change makes one random write.
func (a *actor) change(ctx context.Context, s *subject, base string) (int, []byte) {
	namespace, name, random := fmt.Sprint("ns", a.random.IntN(2)), fmt.Sprint("o", a.random.IntN(8)), a.random.IntN
	all := base + "/namespaces/" + namespace + "/" + s.plural
	mark, chosen := a.mark(), [...][2]string{ // of a new object, and in a patch
		{``, `"ready":null,"tier":null`}, {`"ready":"true"`, `"ready":"true","tier":null`},
		{`"ready":"false"`, `"ready":"false","tier":null`}, {`"ready":"true","tier":"a"`, `"ready":"true","tier":"a"`},
	}[random(4)]
	metadata := func(labels string) string {
		return fmt.Sprintf(`{"name":%q,"annotations":{"mark":%q},"labels":{%s}}`, name, mark, labels)
	}
	_, version, _ := strings.Cut(base, "/apis/")
	body := strings.Replace(s.body(metadata(chosen[0]), random), "random.example.org/v1", version, 1)
	switch n := random(20); {
	case n < 6:
		return a.ask(ctx, "POST", all, typeJSON, body)
	case n < 8:
		_, current := a.ask(ctx, "GET", all+"/"+name, "", "")
		var m metav1.PartialObjectMetadata
		_ = json.Unmarshal(current, &m) // there may be none
		return a.ask(ctx, "PUT", all+"/"+name, typeJSON, strings.Replace(body, `"metadata":{`, fmt.Sprintf(`"metadata":{"resourceVersion":%q,`, m.ResourceVersion), 1))
	case n < 12:
		return a.ask(ctx, "PATCH", all+"/"+name, "application/merge-patch+json", `{"metadata":`+metadata(chosen[1])+`}`)
	case n < 13:
		return a.ask(ctx, "PATCH", all+"/"+name+"?force=true&fieldManager=m", "application/apply-patch+yaml", body)
	case n < 14 && s.plural == "pods":
		return a.ask(ctx, "PATCH", all+"/"+name+"/status", "application/merge-patch+json", `{"status":{"phase":"Running"}}`)
	case n < 15:
		code, reply := a.ask(ctx, "DELETE", all+"?labelSelector=tier", "", "")
		return min(code, 1) * 404, reply // its answer is a list
	}
	return a.ask(ctx, "DELETE", all+"/"+name+"?gracePeriodSeconds=0", "", "")
}

// get reads an object: no older than the newest write that was answered.
func (a *actor) get(ctx context.Context, s *subject, namespace, name string) {
	_, server := a.pick(ctx)
	r := &reading{subject: s, key: namespace + "/" + name, floor: a.acked.Load()}
	code, reply := a.ask(ctx, "GET", server+s.bases[0]+"/namespaces/"+namespace+"/"+s.plural+"/"+name, "", "")
	switch code {
	case 200:
		var m metav1.PartialObjectMetadata
		if err := json.Unmarshal(reply, &m); err != nil {
			a.t.Errorf("%v: %s", err, reply)
		}
		item := seen(&m)
		r.got = &item
	case 404:
	case 0, 429:
		return
	default:
		a.t.Errorf("get: %d %s", code, reply)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.readings = append(a.readings, r)
}

// read lists in all the ways there are until ctx ends.
func (a *actor) read(ctx context.Context) {
	for ctx.Err() == nil {
		l := &listing{scope: a.scope(a.random.IntN(100)), restarted: -1}
		q := l.query()
		some := max(1, a.acked.Load()-int64(a.random.IntN(100)))
		switch a.random.IntN(5) {
		case 0:
			q.Set("resourceVersion", "0")
		case 1:
			l.floor = some
			q.Set("resourceVersion", fmt.Sprint(some))
			q.Set("resourceVersionMatch", "NotOlderThan")
		case 2:
			l.exact, l.floor = some, some
			q.Set("resourceVersion", fmt.Sprint(some))
			q.Set("resourceVersionMatch", "Exact")
		default:
			l.floor = a.acked.Load()
		}
		if a.random.IntN(2) == 0 {
			l.limit = 1 + a.random.IntN(5)
			q.Set("limit", fmt.Sprint(l.limit))
		}
		if a.pages(ctx, l, q) {
			a.mu.Lock()
			a.listings = append(a.listings, l)
			a.mu.Unlock()
		}
		pause(ctx, time.Duration(a.random.IntN(10))*time.Millisecond)
	}
}

// list is the part of a list's JSON that matters here, or of a Status'.
type list struct {
	metav1.ListMeta `json:"metadata"`
	Items           []metav1.PartialObjectMetadata `json:"items"`
}

func (l *list) page() page {
	p := page{more: l.Continue != "", remaining: l.RemainingItemCount}
	fmt.Sscan(l.ResourceVersion, &p.rev)
	for n := range l.Items {
		p.items = append(p.items, seen(&l.Items[n]))
	}
	return p
}

// pages reads a list to its end, each page from another server. It reports
// whether there is something to judge.
func (a *actor) pages(ctx context.Context, l *listing, q url.Values) bool {
	base := l.bases[a.random.IntN(len(l.bases))]
	for asked := l.exact; ; {
		f, server := a.pick(ctx)
		code, reply := a.ask(ctx, "GET", server+l.path(base)+"?"+q.Encode(), "", "")
		var answer list
		if err := json.Unmarshal(reply, &answer); err != nil && code != 0 {
			a.t.Errorf("%v: %s", err, reply)
		}
		switch {
		case code == 200:
			p := answer.page()
			if l.pages = append(l.pages, p); !p.more {
				return true
			}
			asked = p.rev
			q.Del("resourceVersion")
			q.Del("resourceVersionMatch")
			q.Set("continue", answer.Continue)
			pause(ctx, time.Duration(a.random.IntN(20))*time.Millisecond)
		case code == 410:
			a.mayExpire(f, asked, false)
			if answer.Continue == "" || l.restarted >= 0 {
				return len(l.pages) > 0
			}
			l.restarted = len(l.pages)
			q.Set("continue", answer.Continue)
		case code == 0 || code == 429:
			return false
		default:
			a.t.Errorf("list %s: %d %s", q.Encode(), code, reply)
			return false
		}
	}
}

// mayExpire checks that a server had a reason for 410.
func (w *world) mayExpire(f *front, rev int64, watching bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expired++
	if !watching && rev == 0 || rev >= w.compacted.Load() && !(watching && (f.forgetful || f.backend.blind.Load())) {
		w.t.Errorf("%s: 410 at %d, though only what was before %d is compacted", f.name, rev, w.compacted.Load())
	}
}

// watcher lists and watches its scope, again and again, with breaks.
type watcher struct {
	*actor
	scope scope

	mu    sync.Mutex // protects the fields below
	log   []told
	fresh []freshWatch
}

// freshWatch is what a watch from no revision, or any, was told.
type freshWatch struct {
	floor int64
	log   []told
}

// reached reports whether all changes up to a revision were told.
func (o *watcher) reached(rev int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.log) == 0 {
		return false
	}
	o.truth.mu.Lock()
	defer o.truth.mu.Unlock()
	next, more := o.truth.next(o.scope, o.log[len(o.log)-1].rev)
	return !more || next.rev > rev
}

func (o *watcher) note(e told) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.log = append(o.log, e)
}

func (o *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		if o.random.IntN(4) == 0 {
			o.watchFresh(ctx)
		}
		began := false
		if o.random.IntN(3) == 0 {
			began = o.stream(ctx)
		} else {
			began = o.list(ctx)
		}
		for began && o.resume(ctx) {
		}
	}
}

func (o *watcher) list(ctx context.Context) bool {
	f, server := o.pick(ctx)
	code, reply := o.ask(ctx, "GET", server+o.scope.path(o.base())+"?"+o.scope.query().Encode(), "", "")
	var answer list
	if code != 200 || json.Unmarshal(reply, &answer) != nil {
		if code != 0 && code != 429 {
			o.t.Errorf("%s: list: %d %s", f.name, code, reply)
		}
		return false
	}
	p := answer.page()
	o.note(told{what: "LIST", rev: p.rev, items: p.items})
	return true
}

func (o *watcher) base() string { return o.scope.bases[o.random.IntN(len(o.scope.bases))] }

// stream is a list by way of a watch: events up to a marked bookmark.
func (o *watcher) stream(ctx context.Context) bool {
	q := url.Values{"sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "allowWatchBookmarks": {"true"}}
	if o.random.IntN(2) == 0 {
		q.Set("resourceVersion", "0")
	}
	state := told{what: "LIST"}
	whole := false
	o.watch(ctx, q, func(e told, end bool) {
		switch {
		case whole:
			o.note(e)
		case end:
			whole, state.rev = true, e.rev
			o.note(state)
		default:
			state.items = append(state.items, e.item)
		}
	})
	return whole
}

func (o *watcher) watchFresh(ctx context.Context) {
	f := freshWatch{floor: o.acked.Load()}
	q := url.Values{}
	if o.random.IntN(2) == 0 {
		q.Set("resourceVersion", "0")
		f.floor = 0
	}
	o.watch(ctx, q, func(e told, _ bool) { f.log = append(f.log, e) })
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fresh = append(o.fresh, f)
}

// resume watches from the last revision seen. It reports whether the next watch
// can go on from there.
func (o *watcher) resume(ctx context.Context) bool {
	o.mu.Lock()
	at := o.log[len(o.log)-1].rev
	o.mu.Unlock()
	q := url.Values{"resourceVersion": {fmt.Sprint(at)}, "allowWatchBookmarks": {"true"}}
	return o.watch(ctx, q, func(e told, _ bool) { o.note(e) }) && ctx.Err() == nil
}

// watch watches for a while, at times slowly. It is false after a 410.
func (o *watcher) watch(ctx context.Context, q url.Values, take func(e told, initialEnd bool)) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(20+o.random.IntN(800))*time.Millisecond)
	defer cancel()
	for k, v := range o.scope.query() {
		q[k] = v
	}
	q.Set("watch", "true")
	if o.random.IntN(4) == 0 {
		q.Set("timeoutSeconds", "1")
	}
	f, server := o.pick(ctx)
	next, done, err := o.open(ctx, server+o.scope.path(o.base())+"?"+q.Encode())
	if err != nil {
		return true // the server is down
	}
	defer done()
	slow := o.random.IntN(3) == 0
	at, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	for {
		if slow {
			pause(ctx, time.Duration(o.random.IntN(30))*time.Millisecond)
		}
		e, err := next()
		if err != nil {
			return true
		}
		if e.Type == "ERROR" {
			var s metav1.Status
			if err := json.Unmarshal(e.Object, &s); err != nil || s.Code != 410 {
				if s.Code != 429 {
					o.t.Errorf("%s: watch of %v from %d: %s", f.name, o.scope, at, e.Object)
				}
				return true
			}
			o.mayExpire(f, at, true)
			return false
		}
		var m metav1.PartialObjectMetadata
		if err := json.Unmarshal(e.Object, &m); err != nil {
			o.t.Errorf("%v: %s", err, e.Object)
			return false
		}
		t := told{what: e.Type, item: seen(&m)}
		if t.rev = t.item.rev; e.Type == "BOOKMARK" {
			t.item = sighting{}
		}
		at = max(at, t.rev)
		take(t, m.Annotations[metav1.InitialEventsAnnotationKey] == "true")
	}
}

// event is an event of a watch as it goes over the wire.
type event struct {
	Type   string
	Object json.RawMessage
}

// open begins a watch in one of the forms that there are.
func (o *watcher) open(ctx context.Context, url string) (next func() (event, error), done func(), err error) {
	header := http.Header{"Authorization": {"Bearer admin"}}
	form := o.random.IntN(3)
	if form == 0 {
		header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	}
	if form == 1 {
		conn, _, err := websocket.DefaultDialer.DialContext(ctx, "ws"+strings.TrimPrefix(url, "http"), header)
		if err != nil {
			return nil, nil, err
		}
		cancelled := context.AfterFunc(ctx, func() { conn.Close() })
		return func() (e event, err error) { err = conn.ReadJSON(&e); return e, err }, func() { cancelled(); conn.Close() }, nil
	}
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return nil, nil, err
	}
	req.Header = header
	reply, err := o.http.Do(req)
	if err != nil {
		return nil, nil, err
	}
	if reply.StatusCode != 200 {
		body, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		if reply.StatusCode != 429 && reply.StatusCode != 503 && len(bytes.TrimSpace(body)) > 0 {
			o.t.Errorf("watch: %d %s", reply.StatusCode, body)
		}
		return nil, nil, errors.New(reply.Status)
	}
	decoder := json.NewDecoder(reply.Body)
	return func() (e event, err error) { err = decoder.Decode(&e); return e, err }, func() { reply.Body.Close() }, nil
}

// TestLastBookmark: the bookmark at the end of a watch's time counts no event as
// seen that has not been sent, even if it came at the last moment.
func TestLastBookmark(t *testing.T) {
	c := start(t)
	kind := c.server.Kinds.Find(corev1.SchemeGroupVersion.WithResource("configmaps"))
	maps := c.store.Collection(kind.GroupResource())
	changesOnly := false
	watcher, err := maps.Watch(t.Context(), storage.WatchOptions{Bookmarks: true, SendInitial: &changesOnly})
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("late"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(t.Context(), "default", "late", ""); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/api/v1/configmaps?watch=true", nil)
	stream := &eventStream{
		call:      &call{requestInfo: parseRequest(r), s: c.server, r: r, kind: kind, out: mediaType{name: typeJSON}},
		bookmarks: true,
	}
	stream.asJSON = stream.encodingOf(typeJSON)
	over, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	var sent []string
	stream.pump(over, watcher, func(f *frames) error {
		begin := 0
		for _, end := range f.ends {
			sent, begin = append(sent, string(f.bytes[begin:end])), end
		}
		return nil
	})
	if len(sent) != 2 || !strings.Contains(sent[0], `"ADDED"`) || !strings.Contains(sent[1], `"BOOKMARK"`) || !strings.Contains(sent[1], made.ResourceVersion) {
		t.Errorf("sent %q", sent)
	}
}
