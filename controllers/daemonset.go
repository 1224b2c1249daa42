package controllers

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	daemonBurst = 250
	// failedDaemonDelay spaces the replacements of a daemon pod that keeps
	// failing on one node.
	failedDaemonDelay = time.Second
)

// daemonSetController runs one pod of a DaemonSet on every node that it fits.
// daemonset_nodes.go decides for each node; this file does it.
type daemonSetController struct {
	podMaker
	informer cache.SharedIndexInformer
}

func newDaemonSet(e *env) Controller {
	c := &daemonSetController{
		podMaker: podMaker{env: e, events: e.recorders("daemonset-controller"), own: &writes{}},
		informer: e.factory.Apps().V1().DaemonSets().Informer(),
	}
	return Controller{
		Name: "daemonset-controller",
		Reads: []Source{
			wakesSelf(c.informer),
			wakes(e.pods(), adopterKeys(c.informer, "DaemonSet", func(ds *appsv1.DaemonSet) *metav1.LabelSelector { return ds.Spec.Selector })),
			when(wakes(e.nodes(), func(*corev1.Node) []string { return c.allKeys() }), nodeFitChanged),
			wakes(e.revisionInformer(), ownerKeys[*appsv1.ControllerRevision]("DaemonSet")),
		},
		Writes:  []string{"pods", "apps/controllerrevisions", "apps/daemonsets"},
		Workers: 2,
		Sync:    c.sync,
	}
}

func (c *daemonSetController) allKeys() []string {
	var keys []string
	for _, ds := range everything[appsv1.DaemonSet](c.informer) {
		keys = append(keys, keyOf(ds))
	}
	return keys
}

// nodeFitChanged spares the DaemonSets the heartbeats of the nodes.
func nodeFitChanged(before, after *corev1.Node) bool {
	return !equality.Semantic.DeepEqual(before.Labels, after.Labels) || !equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints) ||
		before.Spec.Unschedulable != after.Spec.Unschedulable
}

func (c *daemonSetController) sync(ctx context.Context, key string) (time.Duration, error) {
	shared := cached[appsv1.DaemonSet](c.informer, key)
	if shared == nil {
		c.own.forget(key)
		return 0, nil
	}
	ds := shared.DeepCopy()
	if reflect.DeepEqual(ds.Spec.Selector, &metav1.LabelSelector{}) {
		c.events.Event(ds, corev1.EventTypeWarning, "SelectingAll", "This daemon set is selecting all pods. A non-empty selector is required.")
		return 0, nil
	}
	if ds.DeletionTimestamp != nil {
		return 0, nil
	}
	h, err := c.history(ds)
	if err != nil {
		return 0, err
	}
	revisions, err := h.list(ctx)
	if err != nil {
		return 0, err
	}
	current, err := c.currentRevision(ctx, h, ds, revisions)
	if err != nil {
		return 0, err
	}
	hash := current.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
	fresh := c.own.seen(key)
	pods, err := c.claimPods(ctx, ds, h)
	if err != nil {
		return 0, err
	}
	fleet := daemonFleet{ds: ds, hash: hash, nodes: everything[corev1.Node](c.nodes()), pods: podsByTarget(pods), now: time.Now(), template: newDaemonTemplate(ds)}
	var acted error
	again := time.Duration(0)
	if fresh {
		again, acted = c.act(ctx, key, &fleet)
	}
	status, left := fleet.status()
	if err := c.updateStatus(ctx, ds, status); err != nil {
		return 0, err
	}
	if !fresh {
		return pause, acted
	}
	if acted == nil {
		acted = h.truncate(ctx, revisions, int(*ds.Spec.RevisionHistoryLimit), func(r *appsv1.ControllerRevision) bool {
			return r.Name == current.Name || slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
				return p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == r.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
			})
		})
	}
	return sooner(again, left), acted
}

func (c *daemonSetController) history(ds *appsv1.DaemonSet) (*history, error) {
	selector, err := selectorOf(ds.Spec.Selector)
	return &history{
		env: c.env, owner: ds, kind: appsv1.SchemeGroupVersion.WithKind("DaemonSet"), selector: selector,
		live: func(ctx context.Context) (metav1.Object, error) {
			return c.clients.AppsV1().DaemonSets(ds.Namespace).Get(ctx, ds.Name, metav1.GetOptions{})
		},
	}, err
}

func (c *daemonSetController) claimPods(ctx context.Context, ds *appsv1.DaemonSet, h *history) ([]*corev1.Pod, error) {
	pods := claim[*corev1.Pod]{
		owner: ds, kind: h.kind, selector: h.selector, live: h.live,
		patch: c.patchPod,
	}
	return pods.from(ctx, candidates[*corev1.Pod](c.pods(), ds))
}

// currentRevision finds or makes the revision of the present template.
func (c *daemonSetController) currentRevision(ctx context.Context, h *history, ds *appsv1.DaemonSet, all []*appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	data := templatePatch(&ds.Spec.Template)
	number := int64(1)
	var same []*appsv1.ControllerRevision
	for _, r := range all {
		if sameData(r.Data.Raw, data) {
			same = append(same, r)
		} else {
			number = max(number, r.Revision+1)
		}
	}
	if len(same) > 0 {
		newest := same[len(same)-1]
		return h.renumber(ctx, newest, max(number, newest.Revision))
	}
	hash := templateHash(&ds.Spec.Template, ds.Status.CollisionCount)
	r := h.revision(ds.Name+"-"+hash, number, data, withLabel(ds.Spec.Template.Labels, appsv1.DefaultDaemonSetUniqueLabelKey, hash), ds.Annotations)
	stored, err := h.store(ctx, r)
	if errors.As(err, new(collision)) {
		count := int32(1)
		if ds.Status.CollisionCount != nil {
			count += *ds.Status.CollisionCount
		}
		ds.Status.CollisionCount = &count
		if _, e := c.clients.AppsV1().DaemonSets(ds.Namespace).UpdateStatus(ctx, ds, metav1.UpdateOptions{}); e != nil {
			return nil, e
		}
	}
	return stored, err
}

// act creates and deletes pods as the fleet decides.
func (c *daemonSetController) act(ctx context.Context, key string, fleet *daemonFleet) (time.Duration, error) {
	plan := fleet.plan()
	if len(plan.create)+len(plan.remove) == 0 {
		plan = fleet.rollingUpdate()
	}
	ds := fleet.ds
	for _, failed := range plan.failed {
		switch failed.Status.Phase {
		case corev1.PodFailed:
			c.events.Eventf(ds, corev1.EventTypeWarning, "FailedDaemonPod", "Found failed daemon pod %s on node %s, will try to kill it", keyOf(failed), failed.Spec.NodeName)
		default:
			c.events.Eventf(ds, corev1.EventTypeNormal, "SucceededDaemonPod", "Found succeeded daemon pod %s on node %s, will try to delete it", keyOf(failed), failed.Spec.NodeName)
		}
	}
	owner := *metav1.NewControllerRef(ds, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))
	_, err := slowStart(min(len(plan.create), daemonBurst), func(i int) error {
		pod := daemonPod(ds, owner, plan.create[i], fleet.hash)
		_, err := c.create(ctx, ds, key, pod)
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		return err
	})
	errs := []error{err}
	errs = append(errs, parallel(min(len(plan.remove), daemonBurst), func(i int) error { return c.delete(ctx, ds, key, plan.remove[i]) })...)
	return plan.again, errors.Join(errs...)
}

// daemonPod is the pod for one node. It is pinned by an affinity to the node's
// name, so that the scheduler still checks and places it.
func daemonPod(ds *appsv1.DaemonSet, owner metav1.OwnerReference, node, hash string) *corev1.Pod {
	pod := podFrom(&ds.Spec.Template, ds.Namespace, ds.Name+"-", owner)
	pod.Labels = withLabel(pod.Labels, appsv1.DefaultDaemonSetUniqueLabelKey, hash)
	if generation := ds.Annotations[appsv1.DeprecatedTemplateGeneration]; generation != "" {
		if _, err := strconv.ParseInt(generation, 10, 64); err == nil {
			pod.Labels["pod-template-generation"] = generation
		}
	}
	pinTo(&pod.Spec, node)
	addDaemonTolerations(&pod.Spec)
	return pod
}

func pinTo(spec *corev1.PodSpec, node string) {
	field := []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	a := spec.Affinity.NodeAffinity
	if a.RequiredDuringSchedulingIgnoredDuringExecution == nil || len(a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) == 0 {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: field}}}
		return
	}
	terms := a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms { // terms are alternatives: each has to be pinned
		terms[i].MatchFields = field
	}
}

// addDaemonTolerations lets daemons stay where others are driven off.
func addDaemonTolerations(spec *corev1.PodSpec) {
	add := func(key string, effect corev1.TaintEffect) {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		for i := range spec.Tolerations {
			if spec.Tolerations[i].MatchToleration(&t) {
				spec.Tolerations[i] = t
				return
			}
		}
		spec.Tolerations = append(spec.Tolerations, t)
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeDiskPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeMemoryPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodePIDPressure, corev1.TaintEffectNoSchedule)
	add(corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	if spec.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
}

func (c *daemonSetController) updateStatus(ctx context.Context, ds *appsv1.DaemonSet, status appsv1.DaemonSetStatus) error {
	if equality.Semantic.DeepEqual(ds.Status, status) {
		return nil
	}
	ds.Status = status
	if _, err := c.clients.AppsV1().DaemonSets(ds.Namespace).UpdateStatus(ctx, ds, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("status of %s: %w", keyOf(ds), err)
	}
	return nil
}
