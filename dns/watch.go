package dns

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Names of the indexes.
const (
	byIP      = "ip"
	byService = "service"
)

// store is what the server knows of the cluster: three indexed caches, filled
// by watches. Objects in it are never changed.
type store struct {
	services   cache.Indexer
	slices     cache.Indexer
	namespaces cache.Indexer

	mu  sync.Mutex             // protects has
	has []cache.InformerSynced // one for each running watch
}

func newStore() *store {
	return &store{
		services:   cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byIP: serviceIPs}),
		slices:     cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{byIP: sliceIPs, byService: sliceService}),
		namespaces: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}),
	}
}

func serviceIPs(obj any) ([]string, error) { return clusterIPs(obj.(*corev1.Service)), nil }

// clusterIPs are a Service's own addresses; none for headless and ExternalName.
func clusterIPs(s *corev1.Service) []string {
	if s.Spec.Type == corev1.ServiceTypeExternalName || s.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	if len(s.Spec.ClusterIPs) > 0 {
		return s.Spec.ClusterIPs
	}
	if s.Spec.ClusterIP == "" {
		return nil
	}
	return []string{s.Spec.ClusterIP}
}

func sliceIPs(obj any) ([]string, error) {
	var all []string
	for _, e := range obj.(*discoveryv1.EndpointSlice).Endpoints {
		all = append(all, e.Addresses...)
	}
	return all, nil
}

func sliceService(obj any) ([]string, error) {
	s := obj.(*discoveryv1.EndpointSlice)
	name := s.Labels[discoveryv1.LabelServiceName]
	if name == "" || s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, nil
	}
	return []string{s.Namespace + "/" + name}, nil
}

// lean drops what no answer needs before an object is kept.
func lean(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
		m.SetAnnotations(nil)
		m.SetOwnerReferences(nil)
	}
	if n, ok := obj.(*corev1.Namespace); ok {
		n.Labels, n.Spec, n.Status = nil, corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	}
	return obj, nil
}

// watch fills the store until ctx ends. A server that cannot be reached is tried
// again for ever.
func (s *store) watch(ctx context.Context, client kubernetes.Interface) error {
	core, discovery := client.CoreV1(), client.DiscoveryV1()
	sources := []struct {
		into  cache.Indexer
		kind  runtime.Object
		list  func(context.Context, metav1.ListOptions) (runtime.Object, error)
		watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
	}{
		{s.services, &corev1.Service{},
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.Services("").List(ctx, o)
			},
			core.Services("").Watch},
		{s.slices, &discoveryv1.EndpointSlice{},
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return discovery.EndpointSlices("").List(ctx, o)
			},
			discovery.EndpointSlices("").Watch},
		{s.namespaces, &corev1.Namespace{},
			func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.Namespaces().List(ctx, o)
			},
			core.Namespaces().Watch},
	}
	var running sync.WaitGroup
	for _, src := range sources {
		c := cache.NewSharedIndexInformer(
			cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: src.list, WatchFuncWithContext: src.watch}, client),
			src.kind, 0, cache.Indexers{})
		if err := c.SetTransform(lean); err != nil {
			return fmt.Errorf("watch %T: %w", src.kind, err)
		}
		registration, err := c.AddEventHandler(mirror(src.into))
		if err != nil {
			return fmt.Errorf("watch %T: %w", src.kind, err)
		}
		s.mu.Lock()
		s.has = append(s.has, registration.HasSynced)
		s.mu.Unlock()
		running.Go(func() { c.RunWithContext(ctx) })
	}
	running.Wait()
	return nil
}

// mirror keeps an indexer that readers hold already up to date.
func mirror(into cache.Indexer) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { _ = into.Add(obj) },
		UpdateFunc: func(_, obj any) { _ = into.Update(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			_ = into.Delete(obj)
		},
	}
}

// synced tells whether everything that there was at the start is known.
func (s *store) synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, has := range s.has {
		if !has() {
			return false
		}
	}
	return len(s.has) == 3
}

func (s *store) service(namespace, name string) *corev1.Service {
	obj, ok, _ := s.services.GetByKey(namespace + "/" + name)
	if !ok {
		return nil
	}
	return obj.(*corev1.Service)
}

func (s *store) hasNamespace(name string) bool {
	_, ok, _ := s.namespaces.GetByKey(name)
	return ok
}

func (s *store) slicesOf(namespace, name string) []*discoveryv1.EndpointSlice {
	return sliceList(s.slices.ByIndex(byService, namespace+"/"+name))
}

func (s *store) slicesWith(ip string) []*discoveryv1.EndpointSlice {
	return sliceList(s.slices.ByIndex(byIP, ip))
}

func (s *store) serviceWith(ip string) *corev1.Service {
	objs, err := s.services.ByIndex(byIP, ip)
	if err != nil || len(objs) == 0 {
		return nil
	}
	return objs[0].(*corev1.Service)
}

func sliceList(objs []any, err error) []*discoveryv1.EndpointSlice {
	if err != nil {
		return nil
	}
	all := make([]*discoveryv1.EndpointSlice, 0, len(objs))
	for _, o := range objs {
		all = append(all, o.(*discoveryv1.EndpointSlice))
	}
	return all
}
