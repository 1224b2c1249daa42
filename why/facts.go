package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/api"
)

// Reader reads objects of built-in kinds, as their k8s.io/api types, with the
// rights of one user. Errors are *apierrors.StatusError. Nothing that it returns
// is changed. It may be used by several goroutines.
type Reader struct {
	Get  func(kind schema.GroupVersionResource, namespace, name string) (runtime.Object, error)
	List func(kind schema.GroupVersionResource, namespace string) ([]runtime.Object, error)
	// Namespaces are the names of all namespaces: where a user may not list a
	// kind everywhere, each is tried.
	Namespaces func() ([]string, error)
	// Kinds are all that can be listed, those of custom resources as well, each in
	// one version. Metadata lists any of them, whatever else of it may be missing,
	// and Count counts them without that.
	Kinds    func() ([]Kind, error)
	Metadata func(kind schema.GroupVersionResource, namespace string) ([]metav1.Object, error)
	Count    func(kind schema.GroupVersionResource, namespace string) (int, error)
	// Self is the user, and what they may do in a namespace.
	Self func(namespace string) (user.Info, Own, error)
}

// Own is what all authorisers together say that a user may do in a namespace; with none
// it is what they may do everywhere.
type Own struct {
	Rules      []rbacv1.PolicyRule
	Namespace  string
	Incomplete bool // one of them cannot tell
}

// Kind is a kind that a cluster serves.
type Kind struct {
	schema.GroupVersionResource
	Name       string
	Namespaced bool
}

// title is what so many of a kind are called: NetworkPolicy and networkpolicies make
// NetworkPolicies.
func (k Kind) title(n int) string {
	same := 0
	for n != 1 && same < min(len(k.Name), len(k.Resource)) && strings.EqualFold(k.Name[:same+1], k.Resource[:same+1]) {
		same++
	}
	if n == 1 || same == 0 {
		return k.Name
	}
	return k.Name[:same] + k.Resource[same:]
}

// kind is a kind that evidence is read from.
type kind struct {
	schema.GroupVersionResource
	name string
}

func (k kind) is(o api.ObjectRef) bool { return o.Group == k.Group && o.Resource == k.Resource }

func kindOf(gv schema.GroupVersion, resource, name string) kind {
	return kind{gv.WithResource(resource), name}
}

var (
	podKind         = kindOf(corev1.SchemeGroupVersion, "pods", "Pod")
	eventKind       = kindOf(corev1.SchemeGroupVersion, "events", "Event")
	serviceKind     = kindOf(corev1.SchemeGroupVersion, "services", "Service")
	quotaKind       = kindOf(corev1.SchemeGroupVersion, "resourcequotas", "ResourceQuota")
	nodeKind        = kindOf(corev1.SchemeGroupVersion, "nodes", "Node")
	namespaceKind   = kindOf(corev1.SchemeGroupVersion, "namespaces", "Namespace")
	accountKind     = kindOf(corev1.SchemeGroupVersion, "serviceaccounts", "ServiceAccount")
	secretKind      = kindOf(corev1.SchemeGroupVersion, "secrets", "Secret")
	configMapKind   = kindOf(corev1.SchemeGroupVersion, "configmaps", "ConfigMap")
	claimKind       = kindOf(corev1.SchemeGroupVersion, "persistentvolumeclaims", "PersistentVolumeClaim")
	volumeKind      = kindOf(corev1.SchemeGroupVersion, "persistentvolumes", "PersistentVolume")
	controllerKind  = kindOf(corev1.SchemeGroupVersion, "replicationcontrollers", "ReplicationController")
	deploymentKind  = kindOf(appsv1.SchemeGroupVersion, "deployments", "Deployment")
	replicaSetKind  = kindOf(appsv1.SchemeGroupVersion, "replicasets", "ReplicaSet")
	statefulSetKind = kindOf(appsv1.SchemeGroupVersion, "statefulsets", "StatefulSet")
	daemonSetKind   = kindOf(appsv1.SchemeGroupVersion, "daemonsets", "DaemonSet")
	jobKind         = kindOf(batchv1.SchemeGroupVersion, "jobs", "Job")
	cronJobKind     = kindOf(batchv1.SchemeGroupVersion, "cronjobs", "CronJob")
	sliceKind       = kindOf(discoveryv1.SchemeGroupVersion, "endpointslices", "EndpointSlice")
	budgetKind      = kindOf(schema.GroupVersion{Group: "policy", Version: "v1"}, "poddisruptionbudgets", "PodDisruptionBudget")
	ingressKind     = kindOf(schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}, "ingresses", "Ingress")
	definitionKind  = kindOf(schema.GroupVersion{Group: "apiextensions.k8s.io", Version: "v1"}, "customresourcedefinitions", "CustomResourceDefinition")
	priorityKind    = kindOf(schema.GroupVersion{Group: "scheduling.k8s.io", Version: "v1"}, "priorityclasses", "PriorityClass")
	classKind       = kindOf(schema.GroupVersion{Group: "storage.k8s.io", Version: "v1"}, "storageclasses", "StorageClass")
	csiNodeKind     = kindOf(schema.GroupVersion{Group: "storage.k8s.io", Version: "v1"}, "csinodes", "CSINode")
)

// workloadKinds own pods, by themselves or through others.
var workloadKinds = []kind{deploymentKind, replicaSetKind, statefulSetKind, daemonSetKind, jobKind, cronJobKind, controllerKind}

func (k kind) ref(o metav1.Object) api.ObjectRef { return k.named(o.GetNamespace(), o.GetName()) }

func (k kind) named(namespace, name string) api.ObjectRef {
	return api.ObjectRef{Group: k.Group, Resource: k.Resource, Kind: k.name, Namespace: namespace, Name: name}
}

// object is what all kinds that are read have.
type object interface {
	runtime.Object
	metav1.Object
}

// facts are the objects that one answer is made from, each read once.
type facts struct {
	reader Reader
	now    time.Time
	// wide: an answer about all namespaces lists each kind once.
	wide    bool
	lists   map[place]any // of []T
	whole   map[kind]bool // listed in all namespaces
	indexes map[indexName]any
	objects map[objectName]got
	unread  map[place]error
	judged  int // pods for which all nodes were asked
}

type place struct {
	kind      kind
	namespace string
}

type indexName struct {
	place
	what string
}

type objectName struct {
	place
	name string
}

type got struct {
	object runtime.Object
	err    error
}

func newFacts(reader Reader, now time.Time) *facts {
	return &facts{reader: reader, now: now, lists: map[place]any{}, whole: map[kind]bool{}, indexes: map[indexName]any{},
		objects: map[objectName]got{}, unread: map[place]error{}}
}

// list is all of a kind in a namespace, or none if they may not be read: then
// refused says so.
func list[T object](f *facts, k kind, namespace string) []T {
	at := place{k, namespace}
	if known, ok := f.lists[at]; ok {
		return known.([]T)
	}
	if f.wide && namespace != "" {
		if _, tried := f.whole[k]; !tried {
			listWide[T](f, k)
		}
		if f.whole[k] {
			known, _ := f.lists[at].([]T)
			return known
		}
	}
	all, err := read[T](f, k, namespace)
	if err != nil {
		f.unread[at] = err
	}
	f.lists[at] = all
	return all
}

// listWide lists a kind in all namespaces at once, if that is allowed.
func listWide[T object](f *facts, k kind) {
	all, err := read[T](f, k, "")
	f.whole[k] = err == nil
	if err != nil {
		return
	}
	in := map[string][]T{}
	for _, o := range all {
		in[o.GetNamespace()] = append(in[o.GetNamespace()], o)
	}
	for namespace, some := range in {
		f.lists[place{k, namespace}] = some
	}
}

func read[T object](f *facts, k kind, namespace string) ([]T, error) {
	objects, err := f.reader.List(k.GroupVersionResource, namespace)
	if apierrors.IsNotFound(err) { // the cluster has no such kind
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := make([]T, 0, len(objects))
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			all = append(all, typed)
		}
	}
	return all, nil
}

// index groups a list by what keys says of each object, once.
func index[T object](f *facts, k kind, namespace, what string, keys func(T) []string) map[string][]T {
	name := indexName{place{k, namespace}, what}
	if known, ok := f.indexes[name]; ok {
		return known.(map[string][]T)
	}
	by := map[string][]T{}
	for _, o := range list[T](f, k, namespace) {
		for _, key := range keys(o) {
			by[key] = append(by[key], o)
		}
	}
	f.indexes[name] = by
	return by
}

// get reads one object; nil with an error of NotFound or Forbidden.
func get[T object](f *facts, k kind, namespace, name string) (T, error) {
	at := objectName{place{k, namespace}, name}
	known, ok := f.objects[at]
	if !ok {
		known.object, known.err = f.reader.Get(k.GroupVersionResource, namespace, name)
		f.objects[at] = known
	}
	typed, _ := known.object.(T)
	return typed, known.err
}

// ownedBy is all of a kind that an object controls.
func ownedBy[T object](f *facts, k kind, owner metav1.Object) []T {
	return index(f, k, owner.GetNamespace(), "owner", func(o T) []string {
		if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
			return []string{string(ref.UID)}
		}
		return nil
	})[string(owner.GetUID())]
}

// podsSelected is the pods that a selector of a Service selects.
func (f *facts) podsSelected(namespace string, selector map[string]string) []*corev1.Pod {
	by := index(f, podKind, namespace, "labels", func(p *corev1.Pod) []string {
		pairs := make([]string, 0, len(p.Labels))
		for key, value := range p.Labels {
			pairs = append(pairs, key+"="+value)
		}
		return pairs
	})
	var fewest []*corev1.Pod
	first := true
	for key, value := range selector {
		if some := by[key+"="+value]; first || len(some) < len(fewest) {
			fewest, first = some, false
		}
	}
	var selected []*corev1.Pod
	for _, p := range fewest {
		if includes(p.Labels, selector) {
			selected = append(selected, p)
		}
	}
	return selected
}

// includes reports whether labels satisfy the selector of a Service.
func includes(labels, selector map[string]string) bool {
	for key, value := range selector {
		if got, ok := labels[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// events are the warnings and notes about an object, newest first.
func (f *facts) events(k kind, o metav1.Object) []*corev1.Event {
	by := index(f, eventKind, o.GetNamespace(), "object", func(e *corev1.Event) []string {
		return []string{e.InvolvedObject.Kind + "/" + e.InvolvedObject.Name}
	})
	var about []*corev1.Event
	for _, e := range by[k.name+"/"+o.GetName()] {
		if e.InvolvedObject.UID == "" || e.InvolvedObject.UID == o.GetUID() {
			about = append(about, e)
		}
	}
	slices.SortStableFunc(about, func(a, b *corev1.Event) int { return eventTime(b).Compare(eventTime(a)) })
	return about
}

// event is the newest event about an object with one of some reasons, or nil.
func (f *facts) event(k kind, o metav1.Object, reasons ...string) *corev1.Event {
	for _, e := range f.events(k, o) {
		if slices.Contains(reasons, e.Reason) {
			return e
		}
	}
	return nil
}

// eventTime is when an event was last seen.
func eventTime(e *corev1.Event) time.Time {
	if e.Series != nil && !e.Series.LastObservedTime.IsZero() {
		return e.Series.LastObservedTime.Time
	}
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time} {
		if !t.IsZero() {
			return t
		}
	}
	return e.CreationTimestamp.Time
}

// refused is the finding that a kind may not be listed; nil: it may.
func (f *facts) refused(k kind, namespace string) *api.Finding {
	err := f.unread[place{k, namespace}]
	if err == nil {
		return nil
	}
	finding := mayNot(err, "list", k, namespace)
	return &finding
}

// mayNot tells what was not read, and why.
func mayNot(err error, verb string, k kind, namespace string) api.Finding {
	code := "unread"
	if apierrors.IsForbidden(err) {
		code = "mayNot"
	}
	where := namespace
	if where == "" {
		where = "*"
	}
	resource := k.Resource
	if k.Group != "" {
		resource += "." + k.Group
	}
	return api.Finding{State: api.WhyUnknown, Code: code, Params: params("verb", verb, "resource", resource, "namespace", where, "message", err.Error())}
}

// Facts for the scheduler's plugins.

func one[T object](f *facts, k kind, namespace, name string) T {
	o, _ := get[T](f, k, namespace, name)
	return o
}

// params makes a map of names and values, in turn.
func params(pairs ...any) map[string]string {
	m := make(map[string]string, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i].(string)] = fmt.Sprint(pairs[i+1])
	}
	return m
}

// rootOf is the workload that a pod is of in the end: the Deployment behind its
// ReplicaSet, the CronJob behind its Job. Without a controller it is the pod.
func (f *facts) rootOf(pod *corev1.Pod) api.ObjectRef {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind == "Node" {
		return podKind.ref(pod)
	}
	var above object
	switch owner.Kind {
	case replicaSetKind.name:
		above = byUID[*appsv1.ReplicaSet](f, replicaSetKind, pod.Namespace, owner.UID)
	case jobKind.name:
		above = byUID[*batchv1.Job](f, jobKind, pod.Namespace, owner.UID)
	}
	if above != nil {
		if higher := metav1.GetControllerOfNoCopy(above); higher != nil {
			owner = higher
		}
	}
	return ownerRef(owner, pod.Namespace)
}

// byUID finds an object of a list; an interface that is nil if there is none.
func byUID[T object](f *facts, k kind, namespace string, uid types.UID) object {
	found := index(f, k, namespace, "uid", func(o T) []string { return []string{string(o.GetUID())} })[string(uid)]
	if len(found) == 0 {
		return nil
	}
	return found[0]
}

// ownerRef is an owner as evidence names it.
func ownerRef(owner *metav1.OwnerReference, namespace string) api.ObjectRef {
	group, _, found := strings.Cut(owner.APIVersion, "/")
	if !found {
		group = ""
	}
	for _, k := range workloadKinds {
		if k.name == owner.Kind && k.Group == group {
			return k.named(namespace, owner.Name)
		}
	}
	return api.ObjectRef{Group: group, Kind: owner.Kind, Namespace: namespace, Name: owner.Name}
}
