package server

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// subject is a kind whose objects are written and read at random.
type subject struct {
	bases  []string // of its URLs, one for each version served
	plural string
	prefix string // of its keys in etcd
	new    func() runtime.Object
	fields func(runtime.Object) fields.Set // that it can be selected by, beside the names
	// body completes an object, given its metadata.
	body func(metadata string, random func(n int) int) string
}

// state is one state of an object. mark is new with every write of the test's.
type state struct {
	key, mark string
	rev       int64
	labels    labels.Set
	fields    fields.Set
}

// deed is one change. was or now is nil if there was or is nothing.
type deed struct {
	rev      int64
	was, now *state
}

// truth is what happened, as etcd tells it: the measure of what servers say.
type truth struct {
	mu    sync.Mutex // protects the fields below
	deeds map[*subject][]deed
	now   map[string]*state // by key in etcd
	seen  int64
	// compacted is the revision before which etcd has forgotten what was.
	compacted int64
}

// follow records until ctx ends.
func (h *truth) follow(ctx context.Context, t *testing.T, client *clientv3.Client, subjects []*subject, from int64) {
	for reply := range client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := reply.Err(); err != nil {
			t.Errorf("the record of what happened is not whole: %v", err)
			return
		}
		h.mu.Lock()
		for _, e := range reply.Events {
			key := string(e.Kv.Key)
			n := slices.IndexFunc(subjects, func(s *subject) bool { return strings.HasPrefix(key, s.prefix) })
			h.seen = e.Kv.ModRevision
			if n < 0 {
				continue
			}
			d := deed{rev: e.Kv.ModRevision, was: h.now[key]}
			if delete(h.now, key); e.Type == clientv3.EventTypePut {
				d.now = subjects[n].state(t, key, e.Kv.Value, e.Kv.ModRevision)
				h.now[key] = d.now
			}
			h.deeds[subjects[n]] = append(h.deeds[subjects[n]], d)
		}
		h.mu.Unlock()
	}
}

// state reads a value of etcd's.
func (s *subject) state(t *testing.T, key string, value []byte, rev int64) *state {
	obj := s.new()
	var err error
	if u, ok := obj.(*unstructured.Unstructured); ok {
		err = json.Unmarshal(value, &u.Object)
	} else {
		_, err = decodeProtobuf(value, obj.GetObjectKind().GroupVersionKind(), obj)
	}
	m, accessErr := meta.Accessor(obj)
	if err != nil || accessErr != nil {
		t.Errorf("%s: %v %v", key, err, accessErr)
		return nil
	}
	st := &state{key: m.GetNamespace() + "/" + m.GetName(), rev: rev, mark: m.GetAnnotations()["mark"], labels: m.GetLabels(), fields: fields.Set{}}
	if s.fields != nil {
		st.fields = s.fields(obj)
	}
	st.fields["metadata.name"], st.fields["metadata.namespace"] = m.GetName(), m.GetNamespace()
	return st
}

// progress is the revision up to which the record is whole.
func (h *truth) progress() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.seen
}

// scope is what a reader asks for of a subject.
type scope struct {
	*subject
	namespace string // "": all
	labels    labels.Selector
	fields    fields.Selector
}

func (s scope) String() string {
	return fmt.Sprintf("%s in %q with labels %q, fields %q", s.plural, s.namespace, s.labels, s.fields)
}

func (s scope) has(st *state) bool {
	return st != nil && (s.namespace == "" || s.namespace == st.fields["metadata.namespace"]) && s.labels.Matches(st.labels) && s.fields.Matches(st.fields)
}

// sighting is a state as a server shows it.
type sighting struct {
	key, mark string
	rev       int64
}

func seen(m *metav1.PartialObjectMetadata) sighting {
	var rev int64
	fmt.Sscan(m.ResourceVersion, &rev)
	return sighting{key: m.Namespace + "/" + m.Name, mark: m.Annotations["mark"], rev: rev}
}

// told is an event of a watch; of a LIST, items is the state at rev.
type told struct {
	what  string
	rev   int64
	item  sighting
	items []sighting
}

// told is what a watcher of the scope must hear of a change; ok is false if
// that is nothing.
func (d deed) told(s scope) (e told, ok bool) {
	was, is := s.has(d.was), s.has(d.now)
	switch {
	case is && was:
		e.what = "MODIFIED"
	case is:
		e.what = "ADDED"
	case was:
		return told{what: "DELETED", rev: d.rev, item: sighting{d.was.key, d.was.mark, d.rev}}, true
	default:
		return e, false
	}
	e.rev, e.item = d.rev, sighting{d.now.key, d.now.mark, d.rev}
	return e, true
}

// next is the first change after a revision that concerns a scope.
func (h *truth) next(s scope, after int64) (told, bool) {
	all := h.deeds[s.subject]
	for _, d := range all[sort.Search(len(all), func(n int) bool { return all[n].rev > after }):] {
		if e, ok := d.told(s); ok {
			return e, true
		}
	}
	return told{}, false
}

// at is the state of a scope at a revision, in the order of the keys.
func (h *truth) at(s scope, rev int64) []sighting {
	now := map[string]sighting{}
	for _, d := range h.deeds[s.subject] {
		if d.rev > rev {
			break
		}
		apply(now, s, d)
	}
	all := make([]sighting, 0, len(now))
	for _, item := range now {
		all = append(all, item)
	}
	slices.SortFunc(all, func(a, b sighting) int { return strings.Compare(a.key, b.key) })
	return all
}

func apply(now map[string]sighting, s scope, d deed) {
	e, ok := d.told(s)
	switch {
	case ok && e.what == "DELETED":
		delete(now, e.item.key)
	case ok:
		now[e.item.key] = e.item
	}
}

// replay checks what a watcher was told, one thing after the other: each change
// of its scope once, in order, none left out.
func (h *truth) replay(s scope, log []told) error {
	var at int64
	for n, e := range log {
		next, more := h.next(s, at)
		switch {
		case e.what == "LIST":
			if want := h.at(s, e.rev); !slices.Equal(want, e.items) {
				return fmt.Errorf("%d: the state at %d\n  got  %v\n  want %v", n, e.rev, e.items, want)
			}
		case e.what == "BOOKMARK" && e.rev < at:
			return fmt.Errorf("%d: a bookmark at %d after %d", n, e.rev, at)
		case e.what == "BOOKMARK" && more && next.rev <= e.rev:
			return fmt.Errorf("%d: a bookmark at %d after %d, without %v", n, e.rev, at, next)
		case e.what != "BOOKMARK" && (!more || e.what != next.what || e.item != next.item):
			return fmt.Errorf("%d: after %d\n  got  %v\n  want %v\n  before that %v", n, at, e, next, log[max(0, n-3):n])
		}
		at = e.rev
	}
	return nil
}

// replayFresh checks a watch that begins with the state as ADDED events, without
// a word of where they end: there must be a revision, floor or later, from which
// they can be explained.
func (h *truth) replayFresh(s scope, floor int64, log []told) error {
	sums := []int64{0}
	for _, e := range log {
		sums = append(sums, sums[len(sums)-1]+e.item.rev)
	}
	now, sum := map[string]sighting{}, int64(0)
	explains := func(rev int64) bool {
		state := log[:min(len(now), len(log))] // less than all of it if the connection was cut early
		if rev < floor || len(state) == len(now) && sums[len(now)] != sum {
			return false
		}
		for _, e := range state {
			if e.what != "ADDED" || now[e.item.key] != e.item {
				return false
			}
		}
		return len(state) < len(now) ||
			h.replay(s, append([]told{{what: "LIST", rev: rev, items: h.at(s, rev)}}, log[len(now):]...)) == nil
	}
	at := int64(0)
	for _, d := range h.deeds[s.subject] {
		if d.rev > floor && explains(max(floor, at)) {
			return nil
		}
		if e, ok := d.told(s); ok {
			sum -= now[e.item.key].rev
			apply(now, s, d)
			sum += now[e.item.key].rev
		}
		at = d.rev
	}
	if explains(max(floor, at)) {
		return nil
	}
	return fmt.Errorf("no revision from %d on explains %v", floor, log)
}

// page is one answer of a list, in pages or not.
type page struct {
	rev       int64
	items     []sighting
	more      bool
	remaining *int64
}

// listing is a list as it was asked for and answered.
type listing struct {
	scope
	floor, exact int64 // revisions: at least, exactly
	limit        int
	pages        []page
	restarted    int // the page that went on at another revision, by leave of the server
}

func (h *truth) check(l *listing) error {
	last := ""
	for n, p := range l.pages {
		switch {
		case p.rev < l.floor:
			return fmt.Errorf("page %d is of %d, before %d", n, p.rev, l.floor)
		case l.exact > 0 && n == 0 && p.rev != l.exact:
			return fmt.Errorf("is of %d, not exactly %d", p.rev, l.exact)
		case n > 0 && n != l.restarted && p.rev != l.pages[n-1].rev:
			return fmt.Errorf("page %d is of %d, that before it of %d", n, p.rev, l.pages[n-1].rev)
		}
		want := slices.DeleteFunc(h.at(l.scope, p.rev), func(i sighting) bool { return i.key <= last })
		if rest := int64(len(want) - len(p.items)); p.more && rest >= 0 {
			full := l.limit
			if p.rev < h.compacted {
				full = min(full, len(p.items)) // it may have been cut short then
			}
			want = want[:min(full, len(want))]
			if p.remaining != nil && *p.remaining != rest {
				return fmt.Errorf("page %d at %d: %d remain, not %d", n, p.rev, rest, *p.remaining)
			}
		}
		if !slices.Equal(want, p.items) {
			return fmt.Errorf("page %d at %d after %q (more: %v)\n  got  %v\n  want %v", n, p.rev, last, p.more, p.items, want)
		}
		if len(want) > 0 {
			last = want[len(want)-1].key
		}
	}
	return nil
}

// reading is a GET of one object; got is nil if it was not found.
type reading struct {
	*subject
	key   string
	floor int64
	got   *sighting
}

// check finds a revision, floor or later, at which the answer is true.
func (h *truth) checkReading(r *reading) error {
	var now *state
	fits := func() bool {
		return now == nil && r.got == nil || now != nil && r.got != nil && *r.got == sighting{now.key, now.mark, now.rev}
	}
	for _, d := range h.deeds[r.subject] {
		concerns := d.was != nil && d.was.key == r.key || d.now != nil && d.now.key == r.key
		if !concerns {
			continue
		}
		if d.rev > r.floor && fits() {
			return nil
		}
		now = d.now
	}
	if fits() {
		return nil
	}
	return fmt.Errorf("%s %s since %d is not %v", r.plural, r.key, r.floor, r.got)
}

// thePods, theMaps and theWidgets differ in how they are stored and in what they
// can be selected by.
func thePods() *subject {
	return &subject{
		bases: []string{"/api/v1"}, plural: "pods", prefix: "/registry/pods/",
		new: func() runtime.Object { return &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}} },
		fields: func(obj runtime.Object) fields.Set {
			p := obj.(*corev1.Pod)
			return fields.Set{"spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase)}
		},
		body: func(metadata string, random func(int) int) string {
			return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":%s,"spec":{"nodeName":"n%d","containers":[{"name":"c","image":"i"}]}}`, metadata, random(2))
		},
	}
}

func theMaps() *subject {
	return &subject{
		bases: []string{"/api/v1"}, plural: "configmaps", prefix: "/registry/configmaps/",
		new: func() runtime.Object {
			return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}}
		},
		body: func(metadata string, random func(int) int) string {
			padding := strings.Repeat("x", random(2)*random(8000)) // a slow watcher's buffers fill the sooner
			return fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":%s,"data":{"x":%q}}`, metadata, padding)
		},
	}
}

func theWidgets() *subject {
	return &subject{
		bases: []string{"/apis/random.example.org/v1", "/apis/random.example.org/v1beta1"}, plural: "widgets", prefix: "/registry/random.example.org/widgets/",
		new: func() runtime.Object { return &unstructured.Unstructured{} },
		fields: func(obj runtime.Object) fields.Set {
			color, _, _ := unstructured.NestedString(obj.(*unstructured.Unstructured).Object, "spec", "color")
			return fields.Set{"spec.color": color}
		},
		body: func(metadata string, random func(int) int) string {
			return fmt.Sprintf(`{"kind":"Widget","apiVersion":"random.example.org/v1","metadata":%s,"spec":{"color":"c%d"}}`, metadata, random(3))
		},
	}
}

// randomWidgets is their definition.
const randomWidgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.random.example.org}
spec:
  group: random.example.org
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - &version
    name: v1
    served: true
    storage: true
    selectableFields: [{jsonPath: .spec.color}]
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string}}}}}}
  - {<<: *version, name: v1beta1, storage: false}
`
