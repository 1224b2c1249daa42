package controllers

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"orrery.dev/client"
)

// Names of the indexes over the shared caches.
const (
	byController = "controller" // UID of the controlling owner
	orphans      = "orphans"    // namespace, of objects that nothing controls
	byNode       = "node"       // pod's node name; "" for those not bound yet
	byClaim      = "claim"      // namespace/name of a PersistentVolumeClaim that the pod uses
	// name of a VolumeAttributesClass that a claim or volume has or asks for
	byAttributesClass = "attributesClass"
	byResourceClaim   = "resourceClaim" // namespace/name of a ResourceClaim that the pod has
	byClaimTemplate   = "claimTemplate" // namespace/name of a ResourceClaimTemplate of the pod
)

// env is what controllers are made from: clients, shared caches, and the
// configuration.
type env struct {
	cfg       Config
	clients   kubernetes.Interface
	metadata  metadata.Interface
	factory   informers.SharedInformerFactory
	recorders func(component string) record.EventRecorder
}

func newEnv(ctx context.Context, cfg Config) (*env, error) {
	e := &env{cfg: cfg, clients: cfg.Clients, metadata: cfg.Metadata}
	e.factory = informers.NewSharedInformerFactoryWithOptions(cfg.Clients, 0, informers.WithTransform(slim))
	var mu sync.Mutex
	made := map[string]record.EventRecorder{}
	e.recorders = func(component string) record.EventRecorder {
		mu.Lock()
		defer mu.Unlock()
		if made[component] == nil {
			made[component] = client.Events(ctx, cfg.Clients, component, "")
		}
		return made[component]
	}
	return e, e.addIndexes()
}

// slim drops what no controller reads: managed fields, which are often half an
// object, and the contents of Secrets and ConfigMaps that are only counted. No
// controller may write back an object whose contents are dropped here.
func slim(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	switch o := obj.(type) {
	case *corev1.Secret:
		if o.Type != tokenSecretType && !isAccountSecret(o) {
			o.Data = nil
		}
	case *corev1.ConfigMap:
		if o.Name != rootCAName && keyOf(o) != clusterInfoKey {
			o.Data, o.BinaryData = nil, nil
		}
	}
	return obj, nil
}

func (e *env) addIndexes() error {
	owned := cache.Indexers{byController: controllerIndex, orphans: orphanIndex}
	for informer, indexers := range map[cache.SharedIndexInformer]cache.Indexers{
		e.pods(): {byController: controllerIndex, orphans: orphanIndex, byNode: nodeIndex, byClaim: indexOn(claimsOf), byResourceClaim: indexOn(claimsNamedBy), byClaimTemplate: indexOn(templatesNamedBy)},
		e.factory.Apps().V1().ReplicaSets().Informer():         owned,
		e.factory.Apps().V1().ControllerRevisions().Informer(): owned,
		e.factory.Batch().V1().Jobs().Informer():               owned,
		e.factory.Resource().V1().ResourceClaims().Informer():  owned,

		e.factory.Core().V1().PersistentVolumeClaims().Informer(): {byAttributesClass: indexOn(classesOfClaim)},
		e.factory.Core().V1().PersistentVolumes().Informer():      {byAttributesClass: indexOn(classesOfVolume)},
	} {
		if err := informer.AddIndexers(indexers); err != nil {
			return fmt.Errorf("index: %w", err)
		}
	}
	return nil
}

func (e *env) pods() cache.SharedIndexInformer  { return e.factory.Core().V1().Pods().Informer() }
func (e *env) nodes() cache.SharedIndexInformer { return e.factory.Core().V1().Nodes().Informer() }
func (e *env) replicaSets() cache.SharedIndexInformer {
	return e.factory.Apps().V1().ReplicaSets().Informer()
}

func controllerIndex(obj any) ([]string, error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		return []string{string(ref.UID)}, nil
	}
	return nil, nil
}

func orphanIndex(obj any) ([]string, error) {
	o, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if metav1.GetControllerOfNoCopy(o) == nil {
		return []string{o.GetNamespace()}, nil
	}
	return nil, nil
}

func nodeIndex(obj any) ([]string, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

// indexOn makes an index of what of says of the objects of type T.
func indexOn[T any](of func(T) []string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		if o, ok := obj.(T); ok {
			return of(o), nil
		}
		return nil, nil
	}
}

// indexed returns the objects of an informer under one value of an index.
func indexed[T any](informer cache.SharedIndexInformer, index, value string) []T {
	items, err := informer.GetIndexer().ByIndex(index, value)
	if err != nil { // the index does not exist
		panic(err)
	}
	out := make([]T, 0, len(items))
	for _, item := range items {
		if t, ok := item.(T); ok {
			out = append(out, t)
		}
	}
	return out
}

// inNamespace returns the objects of an informer in one namespace.
func inNamespace[T any](informer cache.SharedIndexInformer, namespace string) []T {
	return indexed[T](informer, cache.NamespaceIndex, namespace)
}

// cached returns an informer's object, nil if there is none.
func cached[T any](informer cache.SharedIndexInformer, key string) *T {
	item, exists, err := informer.GetIndexer().GetByKey(key)
	if err != nil || !exists {
		return nil
	}
	t, _ := item.(*T)
	return t
}

// everything returns all objects of an informer.
func everything[T any](informer cache.SharedIndexInformer) []*T {
	items := informer.GetIndexer().List()
	out := make([]*T, 0, len(items))
	for _, item := range items {
		if t, ok := item.(*T); ok {
			out = append(out, t)
		}
	}
	return out
}

// keyOf is the queue key of an object.
func keyOf(o metav1.Object) string {
	if o.GetNamespace() == "" {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// split is the reverse of keyOf.
func split(key string) (namespace, name string) {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		panic(err) // keys are made by keyOf only
	}
	return namespace, name
}

// ownerKeys returns a key function that wakes the controller of kind that owns
// an object.
func ownerKeys[T metav1.Object](kind string) func(T) []string {
	return func(o T) []string {
		ref := metav1.GetControllerOfNoCopy(o)
		if ref == nil || ref.Kind != kind {
			return nil
		}
		return []string{o.GetNamespace() + "/" + ref.Name}
	}
}

// adopterKeys returns a key function that wakes the controller of kind that owns a
// pod or, where none does, all those that may adopt it by their selector.
func adopterKeys[T metav1.Object](informer cache.SharedIndexInformer, kind string, selector func(T) *metav1.LabelSelector) func(*corev1.Pod) []string {
	return func(pod *corev1.Pod) []string {
		if metav1.GetControllerOfNoCopy(pod) != nil {
			return ownerKeys[*corev1.Pod](kind)(pod)
		}
		var keys []string
		for _, owner := range inNamespace[T](informer, pod.Namespace) {
			if sel, err := selectorOf(selector(owner)); err == nil && !sel.Empty() && sel.Matches(labels.Set(pod.Labels)) {
				keys = append(keys, keyOf(owner))
			}
		}
		return keys
	}
}
