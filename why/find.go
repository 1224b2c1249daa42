package why

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/api"
)

// mostTroubles is how many are told; the rest is counted.
const mostTroubles = 200

// youth is how long what waits is no trouble.
const youth = 15 * time.Second

// Find looks for troubles in some namespaces, or in all that the user may see.
// Each workload is one trouble, whatever number of pods it has; what a workload
// has to do with another (a ReplicaSet with its Deployment) is told of the
// uppermost.
func Find(reader Reader, namespaces []string, now time.Time) (*api.Troubles, error) {
	f := newFacts(reader, now)
	if len(namespaces) == 0 {
		var err error
		if namespaces, err = f.everywhere(); err != nil {
			return nil, err
		}
	}
	found := &api.Troubles{Items: []api.Trouble{}}
	for _, namespace := range namespaces {
		found.Items = append(found.Items, f.in(namespace)...)
	}
	for _, at := range slices.SortedFunc(maps.Keys(f.unread), func(a, b place) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.kind.Resource, b.kind.Resource))
	}) {
		if at.namespace != "" && len(found.Unread) < fewPods {
			found.Unread = append(found.Unread, mayNot(f.unread[at], "list", at.kind, at.namespace))
		}
	}
	slices.SortStableFunc(found.Items, func(a, b api.Trouble) int {
		// In an order that stays while things go on failing.
		return cmp.Or(cmp.Compare(severity[a.State], severity[b.State]), strings.Compare(a.Object.Namespace, b.Object.Namespace), strings.Compare(a.Object.Name, b.Object.Name))
	})
	if over := len(found.Items) - mostTroubles; over > 0 {
		found.Items, found.More = found.Items[:mostTroubles], over
	}
	return found, nil
}

// everywhere is all namespaces in which there may be something to see.
func (f *facts) everywhere() ([]string, error) {
	f.wide = true
	listWide[*corev1.Pod](f, podKind)
	if !f.whole[podKind] {
		names, err := f.reader.Namespaces()
		if err != nil {
			return nil, err
		}
		// Only those of which the user may see anything.
		return slices.DeleteFunc(names, func(name string) bool {
			list[*corev1.Pod](f, podKind, name)
			_, refused := f.unread[place{podKind, name}]
			delete(f.unread, place{podKind, name})
			return refused
		}), nil
	}
	seen := map[string]bool{}
	listWide[*appsv1.Deployment](f, deploymentKind)
	listWide[*appsv1.StatefulSet](f, statefulSetKind)
	listWide[*appsv1.DaemonSet](f, daemonSetKind)
	listWide[*batchv1.Job](f, jobKind)
	listWide[*batchv1.CronJob](f, cronJobKind)
	listWide[*corev1.Service](f, serviceKind)
	listWide[*corev1.PersistentVolumeClaim](f, claimKind)
	listWide[*corev1.ReplicationController](f, controllerKind)
	listWide[*appsv1.ReplicaSet](f, replicaSetKind)
	for at := range f.lists {
		if at.namespace != "" {
			seen[at.namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// in finds the troubles of one namespace.
func (f *facts) in(namespace string) []api.Trouble {
	s := &search{f: f}
	look(s, deploymentKind, namespace, f.deployment)
	look(s, statefulSetKind, namespace, f.statefulSet)
	look(s, daemonSetKind, namespace, f.daemonSet)
	look(s, controllerKind, namespace, f.replicationController)
	look(s, cronJobKind, namespace, func(cj *batchv1.CronJob) *api.Why {
		if cj.Spec.Suspend != nil && *cj.Spec.Suspend {
			return nil
		}
		return f.cronJob(cj)
	})
	look(s, replicaSetKind, namespace, f.replicaSet)
	look(s, jobKind, namespace, f.job)
	look(s, claimKind, namespace, f.volumeClaim)
	look(s, serviceKind, namespace, func(service *corev1.Service) *api.Why {
		// Where the pods are not ready, it is the workload that tells why.
		if len(f.podsSelected(namespace, service.Spec.Selector)) == 0 || len(service.Spec.Selector) == 0 || f.someReady(service) {
			return f.service(service)
		}
		return nil
	})
	// Pods of their own, and of owners that have no chain.
	strangers := map[api.ObjectRef]bool{}
	for _, pod := range list[*corev1.Pod](f, podKind, namespace) {
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner != nil && owner.Kind != "Node" {
			ref := ownerRef(owner, namespace)
			if ref.Resource != "" || strangers[ref] {
				continue
			}
			before := len(s.found)
			if s.judge(pod, podKind.ref(pod), f.pod); len(s.found) > before {
				strangers[ref] = true
			}
			continue
		}
		s.judge(pod, podKind.ref(pod), f.pod)
	}
	return s.found
}

func (f *facts) someReady(s *corev1.Service) bool {
	return slices.ContainsFunc(f.podsSelected(s.Namespace, s.Spec.Selector), api.IsPodReady)
}

// search collects troubles.
type search struct {
	f     *facts
	found []api.Trouble
}

// look judges all of a kind that nobody else answers for.
func look[T object](s *search, k kind, namespace string, chain func(T) *api.Why) {
	for _, o := range list[T](s.f, k, namespace) {
		if owner := metav1.GetControllerOfNoCopy(o); owner != nil && ownerRef(owner, namespace).Resource != "" {
			continue
		}
		judge(s, o, k.ref(o), chain)
	}
}

func (s *search) judge(pod *corev1.Pod, ref api.ObjectRef, chain func(*corev1.Pod) *api.Why) {
	judge(s, pod, ref, chain)
}

// judge adds an object if its chain is broken, or waits though its state is bad
// already. What is in order is not looked at any closer.
func judge[T object](s *search, o T, ref api.ObjectRef, chain func(T) *api.Why) {
	state := api.StateOf(o)
	telling := ref.Resource != serviceKind.Resource && ref.Resource != cronJobKind.Resource // others have a state of their own
	if telling && (state == api.StateOK || state == api.StateDone) || o.GetDeletionTimestamp() != nil && ref.Kind != podKind.name {
		return
	}
	w := chain(o)
	late := (state == api.StateWarning || state == api.StateError) && s.f.now.Sub(o.GetCreationTimestamp().Time) > youth
	if w == nil || w.State == api.WhyOK || w.State == api.WhyWaiting && !late {
		return
	}
	link, finding := first(w)
	if link == "" {
		return
	}
	// Of several times, the first: the last event is always of just now.
	since := time.Time{}
	for _, e := range finding.Evidence {
		if e.Time != nil && (since.IsZero() || e.Time.Before(since)) {
			since = *e.Time
		}
	}
	if since.IsZero() {
		since = o.GetCreationTimestamp().Time
	}
	s.found = append(s.found, api.Trouble{Object: ref, State: w.State, Link: link, Finding: finding, Since: since})
}
