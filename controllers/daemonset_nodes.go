package controllers

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"orrery.dev/api"
)

// daemonFleet is a DaemonSet, the nodes, and its pods by the node they are for.
type daemonFleet struct {
	ds    *appsv1.DaemonSet
	hash  string // of the present template
	nodes []*corev1.Node
	pods  map[string][]*corev1.Pod
	now   time.Time

	template daemonTemplate
}

// daemonTemplate is what decides whether a node suits a DaemonSet. It is made
// once and asked for every node.
type daemonTemplate struct {
	spec     corev1.PodSpec
	required nodeaffinity.RequiredNodeAffinity
}

func newDaemonTemplate(ds *appsv1.DaemonSet) daemonTemplate {
	pod := &corev1.Pod{Spec: *ds.Spec.Template.Spec.DeepCopy()}
	addDaemonTolerations(&pod.Spec)
	return daemonTemplate{pod.Spec, nodeaffinity.GetRequiredNodeAffinity(pod)}
}

// daemonPlan says for which nodes to create a pod and which pods to delete.
type daemonPlan struct {
	create []string
	remove []*corev1.Pod
	failed []*corev1.Pod // of those removed, for an event
	again  time.Duration
}

// podsByTarget groups pods by the node they run on or are meant for, the oldest
// first.
func podsByTarget(pods []*corev1.Pod) map[string][]*corev1.Pod {
	out := map[string][]*corev1.Pod{}
	for _, pod := range pods {
		out[targetNode(pod)] = append(out[targetNode(pod)], pod)
	}
	for _, group := range out {
		slices.SortStableFunc(group, func(a, b *corev1.Pod) int {
			return cmp.Or(
				falseFirst(a.Spec.NodeName == "", b.Spec.NodeName == ""),
				a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
		})
	}
	return out
}

func targetNode(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// fits says whether a node should get a daemon pod, and whether one that
// is there may stay: taints that only forbid scheduling do not drive it off.
func (t *daemonTemplate) fits(node *corev1.Node) (run, stay bool) {
	if t.spec.NodeName != "" && t.spec.NodeName != node.Name {
		return false, false
	}
	if ok, err := t.required.Match(node); err != nil || !ok {
		return false, false
	}
	run, stay = true, true
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || tolerates(&t.spec, taint) {
			continue
		}
		run = false
		if taint.Effect == corev1.TaintEffectNoExecute {
			stay = false
		}
	}
	return run, stay
}

func tolerates(spec *corev1.PodSpec, taint *corev1.Taint) bool {
	return slices.ContainsFunc(spec.Tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(klog.Background(), taint, true) })
}

// plan brings the number of pods on each node in order: one where the set fits,
// none elsewhere; failed ones are replaced.
func (f *daemonFleet) plan() daemonPlan {
	var p daemonPlan
	known := map[string]bool{}
	for _, node := range f.nodes {
		known[node.Name] = true
		f.planNode(node, &p)
	}
	for target, pods := range f.pods { // never bound, and their node is gone
		if known[target] {
			continue
		}
		for _, pod := range pods {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
				p.remove = append(p.remove, pod)
			}
		}
	}
	return p
}

func (f *daemonFleet) planNode(node *corev1.Node, p *daemonPlan) {
	pods := f.pods[node.Name]
	run, stay := f.template.fits(node)
	switch {
	case !stay:
		for _, pod := range pods {
			if pod.DeletionTimestamp == nil {
				p.remove = append(p.remove, pod)
			}
		}
		return
	case run && len(pods) == 0:
		p.create = append(p.create, node.Name)
		return
	}
	var running []*corev1.Pod
	for _, pod := range pods {
		switch {
		case pod.DeletionTimestamp != nil:
		case api.IsPodTerminal(pod):
			if wait := failedDaemonDelay - f.now.Sub(pod.CreationTimestamp.Time); wait > 0 {
				p.again = sooner(p.again, wait)
				continue
			}
			p.remove, p.failed = append(p.remove, pod), append(p.failed, pod)
		default:
			running = append(running, pod)
		}
	}
	surge, _ := f.bounds(len(f.nodes))
	if len(running) <= 1 {
		return
	}
	if surge == 0 {
		p.remove = append(p.remove, running[1:]...)
		return
	}
	f.planSurge(running, p)
}

// planSurge keeps, while a rollout surges, the oldest pod of the old and of the
// new template, and the old one only until the new one is available.
func (f *daemonFleet) planSurge(running []*corev1.Pod, p *daemonPlan) {
	var oldest, newest *corev1.Pod
	for _, pod := range running {
		kept := &oldest
		if f.updated(pod) {
			kept = &newest
		}
		if *kept == nil {
			*kept = pod
		} else {
			p.remove = append(p.remove, pod)
		}
	}
	if oldest != nil && newest != nil && f.available(newest) {
		p.remove = append(p.remove, oldest)
	}
}

func (f *daemonFleet) updated(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == f.hash
}

func (f *daemonFleet) available(pod *corev1.Pod) bool {
	ok, _ := podAvailable(pod, f.ds.Spec.MinReadySeconds, f.now)
	return ok
}

// bounds are maxSurge and maxUnavailable for a number of nodes.
func (f *daemonFleet) bounds(desired int) (surge, unavailable int) {
	s := f.ds.Spec.UpdateStrategy
	if s.Type != appsv1.RollingUpdateDaemonSetStrategyType || s.RollingUpdate == nil {
		return 0, 0
	}
	scaled := func(v *intstr.IntOrString) int {
		if v == nil {
			return 0
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(v, desired, true)
		if err != nil {
			return 0
		}
		return n
	}
	surge, unavailable = scaled(s.RollingUpdate.MaxSurge), scaled(s.RollingUpdate.MaxUnavailable)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

// rollingUpdate replaces pods of old templates as fast as the bounds allow.
func (f *daemonFleet) rollingUpdate() daemonPlan {
	var p daemonPlan
	if f.ds.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
		return p
	}
	var desired []*corev1.Node
	for _, node := range f.nodes {
		if run, _ := f.template.fits(node); run {
			desired = append(desired, node)
		}
	}
	surge, unavailable := f.bounds(len(desired))
	if surge > 0 {
		f.surgeUpdate(desired, surge, &p)
		return p
	}
	var candidates []*corev1.Pod
	down := 0
	for _, node := range desired {
		old, fresh := f.livingPods(node.Name)
		switch {
		case fresh != nil && f.available(fresh):
		case fresh != nil || old == nil:
			down++
		case !f.available(old): // of no use to anybody: replace it at once
			down++
			p.remove = append(p.remove, old)
		default:
			candidates = append(candidates, old)
		}
	}
	room := min(max(unavailable-down, 0), len(candidates))
	p.remove = append(p.remove, candidates[:room]...)
	return p
}

func (f *daemonFleet) surgeUpdate(desired []*corev1.Node, surge int, p *daemonPlan) {
	var candidates []string
	surging := 0
	for _, node := range desired {
		old, fresh := f.livingPods(node.Name)
		switch {
		case old == nil:
		case fresh != nil:
			if !f.available(fresh) {
				surging++
			}
		case !f.available(old):
			p.create = append(p.create, node.Name)
		default:
			candidates = append(candidates, node.Name)
		}
	}
	room := min(max(surge-surging, 0), len(candidates))
	p.create = append(p.create, candidates[:room]...)
}

// livingPods are the pods on a node, of an old template and of the present one,
// that are not being deleted.
func (f *daemonFleet) livingPods(node string) (old, fresh *corev1.Pod) {
	for _, pod := range f.pods[node] {
		switch {
		case pod.DeletionTimestamp != nil:
		case f.updated(pod):
			fresh = pod
		default:
			old = pod
		}
	}
	return old, fresh
}

// status adds up the fleet, and says when it changes by itself.
func (f *daemonFleet) status() (appsv1.DaemonSetStatus, time.Duration) {
	s := appsv1.DaemonSetStatus{ObservedGeneration: f.ds.Generation, CollisionCount: f.ds.Status.CollisionCount, Conditions: f.ds.Status.Conditions}
	var again time.Duration
	for _, node := range f.nodes {
		run, _ := f.template.fits(node)
		pods := f.pods[node.Name]
		if !run {
			if len(pods) > 0 {
				s.NumberMisscheduled++
			}
			continue
		}
		s.DesiredNumberScheduled++
		if len(pods) == 0 {
			continue
		}
		s.CurrentNumberScheduled++
		pod := pods[0]
		if api.IsPodReady(pod) {
			s.NumberReady++
			ok, left := podAvailable(pod, f.ds.Spec.MinReadySeconds, f.now)
			if ok {
				s.NumberAvailable++
			}
			again = sooner(again, left)
		}
		if slices.ContainsFunc(pods, f.updated) {
			s.UpdatedNumberScheduled++
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
	return s, again
}
