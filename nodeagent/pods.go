package nodeagent

import (
	"cmp"
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	kubelettypes "k8s.io/kubelet/pkg/types"

	"orrery.dev/api"
	"orrery.dev/client"
)

// What marks a pod's source.
const (
	annotationSource = "kubernetes.io/config.source"
	annotationSeen   = "kubernetes.io/config.seen"
	annotationConfig = "kubernetes.io/config.hash"
)

// podSet holds a worker for each pod of the node, and the mirror pods, which
// stand for static pods in the API and are not run.
type podSet struct {
	a *Agent

	mu      sync.Mutex // protects the fields below
	closed  bool
	workers map[types.UID]*worker
	mirrors map[string]*corev1.Pod // by namespace/name
}

func newPodSet(a *Agent) *podSet {
	return &podSet{a: a, workers: map[types.UID]*worker{}, mirrors: map[string]*corev1.Pod{}}
}

// set takes in a pod as its source now has it.
func (s *podSet) set(pod *corev1.Pod) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	if api.IsMirror(pod) {
		s.mirrors[fullName(pod)] = pod
		w := s.staticNamed(pod)
		s.mu.Unlock()
		if w != nil {
			s.a.statuses.observe(w.uid, pod)
			w.touch()
		}
		return
	}
	s.a.statuses.observe(pod.UID, pod)
	w := s.workers[pod.UID]
	if w == nil {
		w = newWorker(s.a, pod)
		s.workers[pod.UID] = w
	}
	s.mu.Unlock()
	w.set(pod)
}

// remove tells that a pod's source has it no more.
func (s *podSet) remove(pod *corev1.Pod) {
	s.mu.Lock()
	if api.IsMirror(pod) {
		if m := s.mirrors[fullName(pod)]; m != nil && m.UID == pod.UID {
			delete(s.mirrors, fullName(pod))
		}
		w := s.staticNamed(pod)
		s.mu.Unlock()
		if w != nil {
			w.touch()
		}
		return
	}
	w := s.workers[pod.UID]
	s.mu.Unlock()
	if w != nil {
		w.gone()
	}
}

// staticNamed finds the static pod of a mirror pod. s.mu is held.
func (s *podSet) staticNamed(pod *corev1.Pod) *worker {
	for _, w := range s.workers {
		if w.static && w.name == fullName(pod) {
			return w
		}
	}
	return nil
}

func (s *podSet) mirror(name string) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirrors[name]
}

func (s *podSet) wake(uid types.UID) {
	s.mu.Lock()
	w := s.workers[uid]
	s.mu.Unlock()
	if w != nil {
		w.touch()
	}
}

// refresh has a pod look at its volumes.
func (s *podSet) refresh(uid types.UID) {
	if w := s.get(uid); w != nil {
		w.refresh()
	}
}

// refreshWhere has those pods look at their volumes for which is holds.
func (s *podSet) refreshWhere(is func(*corev1.Pod) bool) {
	for _, w := range s.all() {
		if is(w.wanted()) {
			w.refresh()
		}
	}
}

func (s *podSet) get(uid types.UID) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers[uid]
}

// forget drops a worker that has nothing left to do, and lets another pod of
// the same name begin.
func (s *podSet) forget(w *worker) {
	s.mu.Lock()
	delete(s.workers, w.uid)
	var heir *worker
	for _, other := range s.workers {
		if other.name == w.name {
			heir = other
		}
	}
	s.mu.Unlock()
	if heir != nil {
		heir.touch()
	}
}

// elder says whether an earlier pod of the same name is still here.
func (s *podSet) elder(w *worker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.workers {
		if other != w && other.name == w.name && other.born.Before(w.born) {
			return true
		}
	}
	return false
}

// all lists the workers, oldest pod first.
func (s *podSet) all() []*worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*worker, 0, len(s.workers))
	for _, w := range s.workers {
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b *worker) int {
		return cmp.Or(a.born.Compare(b.born), cmp.Compare(a.name, b.name))
	})
	return out
}

// listed returns the node's pods as they are wanted, with the status last
// reported.
func (s *podSet) listed() []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range s.all() {
		pod := w.wanted().DeepCopy()
		if st := s.a.statuses.latest(w.uid); st != nil {
			pod.Status = *st
		}
		out = append(out, pod)
	}
	return out
}

// byName finds a pod by namespace and name: the youngest, if one of that name is
// still being cleared away.
func (s *podSet) byName(namespace, name string) *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *worker
	for _, w := range s.workers {
		if w.name == namespace+"/"+name && (found == nil || w.isYounger(found)) {
			found = w
		}
	}
	return found
}

// isYounger compares by what the API says of pods that it still has.
func (w *worker) isYounger(than *worker) bool {
	if a, b := w.isVanished(), than.isVanished(); a != b {
		return b
	}
	return w.born.After(than.born)
}

func (w *worker) isVanished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.vanished
}

// close keeps workers from starting again; the agent then waits for those at
// work.
func (s *podSet) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, w := range s.all() {
		w.close()
	}
}

func fullName(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func isStatic(pod *corev1.Pod) bool { return pod.Annotations[annotationSource] == "file" }

// podUID is the UID that the labels of a sandbox or container carry.
func podUID(labels map[string]string, otherwise string) types.UID {
	if uid := labels[kubelettypes.KubernetesPodUIDLabel]; uid != "" {
		return types.UID(uid)
	}
	return types.UID(otherwise)
}

// watchPods follows the pods that are bound to this node.
func (a *Agent) watchPods(ctx context.Context) error {
	take := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { a.pods.set(obj.(*corev1.Pod)) },
		UpdateFunc: func(_, obj any) { a.pods.set(obj.(*corev1.Pod)) },
		DeleteFunc: func(obj any) { a.pods.remove(deleted(obj)) },
	}
	if a.cfg.Pods != nil {
		a.cfg.Pods.subscribe(ctx, a.cfg.NodeName, take, func() { a.apiPodsSeen.Store(true) })
		return nil
	}
	informer := coreinformers.NewFilteredPodInformer(a.clients, corev1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", a.cfg.NodeName).String()
	})
	if err := informer.SetTransform(client.Slim); err != nil {
		return err
	}
	reg, err := informer.AddEventHandler(take)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
			a.apiPodsSeen.Store(true)
		}
	})
	informer.RunWithContext(ctx)
	return nil
}

// deleted unwraps the last known state of an object whose deletion was missed.
func deleted(obj any) *corev1.Pod {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	pod, _ := obj.(*corev1.Pod)
	if pod == nil {
		pod = &corev1.Pod{}
	}
	return pod
}

// SharedPods is one watch of all pods for many agents in one process: an event
// goes only to the agent whose node it is about.
type SharedPods struct {
	informer cache.SharedIndexInformer

	mu     sync.Mutex // protects byNode
	byNode map[string]cache.ResourceEventHandlerFuncs
}

const indexByNode = "node"

// NewSharedPods prepares the watch; Run runs it.
func NewSharedPods(clients kubernetes.Interface) (*SharedPods, error) {
	s := &SharedPods{byNode: map[string]cache.ResourceEventHandlerFuncs{}}
	s.informer = coreinformers.NewPodInformer(clients, corev1.NamespaceAll, 0, cache.Indexers{indexByNode: func(obj any) ([]string, error) {
		return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
	}})
	if err := s.informer.SetTransform(client.Slim); err != nil {
		return nil, err
	}
	_, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.handler(obj).OnAdd(obj, false) },
		UpdateFunc: func(old, obj any) { s.handler(obj).OnUpdate(old, obj) },
		DeleteFunc: func(obj any) { pod := deleted(obj); s.handler(pod).OnDelete(pod) },
	})
	return s, err
}

// Run follows the pods until ctx ends.
func (s *SharedPods) Run(ctx context.Context) error {
	s.informer.RunWithContext(ctx)
	return nil
}

func (s *SharedPods) handler(obj any) cache.ResourceEventHandlerFuncs {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byNode[obj.(*corev1.Pod).Spec.NodeName]
}

// subscribe feeds h until ctx ends. Pods that were there before come first;
// then synced is called.
func (s *SharedPods) subscribe(ctx context.Context, node string, h cache.ResourceEventHandlerFuncs, synced func()) {
	s.mu.Lock()
	s.byNode[node] = h
	s.mu.Unlock()
	if cache.WaitForCacheSync(ctx.Done(), s.informer.HasSynced) {
		pods, _ := s.informer.GetIndexer().ByIndex(indexByNode, node)
		for _, pod := range pods {
			h.OnAdd(pod, true)
		}
		synced()
	}
	<-ctx.Done()
	s.mu.Lock()
	delete(s.byNode, node)
	s.mu.Unlock()
}
