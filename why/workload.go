package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"orrery.dev/api"
)

// controllerPatience is how long a controller may leave a change unanswered.
const controllerPatience = 30 * time.Second

// Explain is the chain of one object. It fails with NotFound or Forbidden as
// reading the object does, and with BadRequest for kinds that have no chain.
func Explain(reader Reader, of api.ObjectRef, now time.Time) (*api.Why, error) {
	f := newFacts(reader, now)
	switch (schema.GroupResource{Group: of.Group, Resource: of.Resource}) {
	case podKind.GroupResource():
		return explain(f, podKind, of, f.pod)
	case deploymentKind.GroupResource():
		return explain(f, deploymentKind, of, f.deployment)
	case replicaSetKind.GroupResource():
		return explain(f, replicaSetKind, of, f.replicaSet)
	case controllerKind.GroupResource():
		return explain(f, controllerKind, of, f.replicationController)
	case statefulSetKind.GroupResource():
		return explain(f, statefulSetKind, of, f.statefulSet)
	case daemonSetKind.GroupResource():
		return explain(f, daemonSetKind, of, f.daemonSet)
	case jobKind.GroupResource():
		return explain(f, jobKind, of, f.job)
	case cronJobKind.GroupResource():
		return explain(f, cronJobKind, of, f.cronJob)
	case serviceKind.GroupResource():
		return explain(f, serviceKind, of, f.service)
	case claimKind.GroupResource():
		return explain(f, claimKind, of, f.volumeClaim)
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("there is no chain of evidence for %s", of.Resource))
}

func explain[T object](f *facts, k kind, of api.ObjectRef, chain func(T) *api.Why) (*api.Why, error) {
	o, err := get[T](f, k, of.Namespace, of.Name)
	if err != nil {
		return nil, err
	}
	return chain(o), nil
}

// pod is the chain of one pod: it was made, so what comes before it is passed.
func (f *facts) pod(pod *corev1.Pod) *api.Why {
	root := f.rootOf(pod)
	c := f.podChain(pod, target{root})
	by := "madeBy"
	if root.Kind == podKind.name {
		by = "madeByHand"
	}
	c.add(controllerLink, fine(by, params("kind", root.Kind, "name", root.Name), evidence(root, "metadata.ownerReferences", "", pod.CreationTimestamp.Time)))
	if !c.blocked() && pod.Status.Phase == corev1.PodRunning {
		c.add(endpointsLink, f.served(pod.Namespace, pod.Labels)...)
	}
	return c.answer(podKind.ref(pod), slices.Concat(madeLinks, podLinks, []string{endpointsLink})...)
}

// workload is what the kinds that make pods from a template have in common.
type workload struct {
	ref      api.ObjectRef
	object   metav1.Object
	labels   map[string]string // of the template
	want     int               // pods
	pods     []*corev1.Pod     // of the newest template
	said     *complaint        // why pods could not be made
	findings []api.Finding     // of the controller
	ends     bool              // the pods are to end, not to serve
	failed   []api.Finding     // that it was given up, told after its pods' reasons
}

// chain puts a workload's own links before those of its pods.
func (f *facts) chain(w workload) *api.Why {
	t := target{w.ref}
	c := chain{}
	if w.said != nil && len(w.pods) < w.want {
		link, finding := f.refusedPods(*w.said, w.ref.Namespace, t)
		c.add(link, finding)
	}
	if len(c[quotaLink]) == 0 {
		c.add(quotaLink, f.quotas(w.ref.Namespace)...)
	}
	stopped := c.blocked()
	if !stopped {
		c.add(controllerLink, w.findings...)
		c.add(controllerLink, f.made(w)...)
	}
	for link, findings := range f.podsChain(w.pods, t) {
		c.add(link, findings...)
	}
	c.add(startLink, w.failed...)
	order := slices.Concat(madeLinks, podLinks)
	if !w.ends {
		order = append(order, endpointsLink)
		if w.want > 0 {
			c.add(endpointsLink, f.serving(w, c.blocked())...)
		}
	}
	return c.answer(w.ref, order...)
}

// made compares the pods that there are with those that there should be.
func (f *facts) made(w workload) []api.Finding {
	p := params("made", len(w.pods), "want", w.want)
	e := evidence(w.ref, "spec, status", fmt.Sprintf("%d of %d", len(w.pods), w.want), time.Time{})
	switch {
	case len(w.findings) > 0:
		return nil
	case w.want == 0 && len(w.pods) == 0:
		return []api.Finding{mended(fine("noneWanted", p, e), scaleUp(w.ref))}
	case len(w.pods) < w.want && f.now.Sub(w.object.GetCreationTimestamp().Time) > controllerPatience:
		return []api.Finding{mended(broken("controllerSilent", p, e), mend("controllerSilent", p, "kubectl get pods -n kube-system"))}
	case len(w.pods) < w.want:
		return []api.Finding{waiting("making", p, e)}
	}
	return []api.Finding{fine("made", p, e)}
}

func scaleUp(ref api.ObjectRef) api.Mend {
	return mend("scaleUp", nil, "kubectl scale "+target{ref}.arg()+" --replicas=1")
}

// fewPods is how many pods are named one by one.
const fewPods = 10

// podsChain merges the chains of many pods: what is the same of several is told
// once, with their number.
func (f *facts) podsChain(pods []*corev1.Pod, t target) chain {
	merged := chain{}
	for _, pod := range pods {
		for link, findings := range f.podChain(pod, t) {
			for _, finding := range findings {
				merged.merge(link, finding, podKind.ref(pod))
			}
		}
	}
	for _, findings := range merged {
		slices.SortStableFunc(findings, func(a, b api.Finding) int {
			return cmp.Or(cmp.Compare(severity[a.State], severity[b.State]), cmp.Compare(b.PodCount, a.PodCount))
		})
	}
	return merged
}

// merge adds a finding about a pod, to one that says the same if there is one.
func (c chain) merge(link string, finding api.Finding, pod api.ObjectRef) {
	for i := range c[link] {
		known := &c[link][i]
		fine := known.State == api.WhyOK && finding.State == api.WhyOK
		if fine && !maps.Equal(known.Params, finding.Params) { // each has its own node
			known.Code, known.Params, known.Evidence = "passed."+link, nil, nil
		}
		if fine || known.Code == finding.Code && maps.Equal(steady(known.Params), steady(finding.Params)) {
			known.PodCount++
			if len(known.Pods) < fewPods {
				known.Pods = append(known.Pods, pod)
			}
			return
		}
	}
	finding.Pods, finding.PodCount = []api.ObjectRef{pod}, 1
	c.add(link, finding)
}

// steady leaves out what differs between pods with the same trouble.
func steady(p map[string]string) map[string]string {
	p = maps.Clone(p)
	for _, name := range []string{"restarts", "message", "node", "most", "nodes"} {
		delete(p, name)
	}
	return p
}

func replicasOf(n *int32) int { return int(ptr.Deref(n, 1)) }

func (f *facts) deployment(d *appsv1.Deployment) *api.Why {
	w := workload{ref: deploymentKind.ref(d), object: d, labels: d.Spec.Template.Labels, want: replicasOf(d.Spec.Replicas)}
	newest := newestSet(ownedBy[*appsv1.ReplicaSet](f, replicaSetKind, d))
	switch {
	case d.Spec.Paused:
		w.findings = []api.Finding{mended(waiting("paused", nil, evidence(w.ref, "spec.paused", "true", time.Time{})), mend("resume", nil, "kubectl rollout resume "+target{w.ref}.arg()))}
	case d.Status.ObservedGeneration < d.Generation || newest == nil:
		w.findings = f.unseen(w, d.Generation, d.Status.ObservedGeneration)
	}
	if newest != nil {
		w.pods = ownedBy[*corev1.Pod](f, podKind, newest)
		w.said = f.saidOf(replicaSetKind, newest)
		// In a rollout the newest ReplicaSet is to have fewer for a while.
		w.want = min(w.want, replicasOf(newest.Spec.Replicas))
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			w.said = &complaint{c.Message, append([]api.Evidence{evidence(w.ref, "condition ReplicaFailure=True", c.Reason+": "+c.Message, c.LastTransitionTime.Time)}, proofOf(w.said)...)}
		}
	}
	return f.chain(w)
}

func proofOf(said *complaint) []api.Evidence {
	if said == nil {
		return nil
	}
	return said.proof
}

// newestSet is the ReplicaSet of a Deployment's present template.
func newestSet(sets []*appsv1.ReplicaSet) *appsv1.ReplicaSet {
	const revision = "deployment.kubernetes.io/revision"
	var newest *appsv1.ReplicaSet
	for _, rs := range sets {
		if newest == nil || cmp.Or(cmp.Compare(len(rs.Annotations[revision]), len(newest.Annotations[revision])), strings.Compare(rs.Annotations[revision], newest.Annotations[revision])) > 0 {
			newest = rs
		}
	}
	return newest
}

// unseen is a change that the controller has not answered yet.
func (f *facts) unseen(w workload, generation, observed int64) []api.Finding {
	e := evidence(w.ref, "status.observedGeneration", fmt.Sprintf("%d of %d", observed, generation), time.Time{})
	if f.now.Sub(w.object.GetCreationTimestamp().Time) < controllerPatience {
		return []api.Finding{waiting("unseen", nil, e)}
	}
	p := params("made", len(w.pods), "want", w.want)
	return []api.Finding{mended(broken("controllerSilent", p, e), mend("controllerSilent", p, "kubectl get pods -n kube-system"))}
}

// saidOf is the newest complaint of an object's controller about pods that it
// could not make; nil: none since it last made one.
func (f *facts) saidOf(k kind, o metav1.Object) *complaint {
	e := f.event(k, o, "FailedCreate", "SuccessfulCreate")
	if e == nil || e.Reason != "FailedCreate" {
		return nil
	}
	return &complaint{e.Message, []api.Evidence{eventEvidence(e)}}
}

func (f *facts) replicaSet(rs *appsv1.ReplicaSet) *api.Why {
	w := workload{ref: replicaSetKind.ref(rs), object: rs, labels: rs.Spec.Template.Labels, want: replicasOf(rs.Spec.Replicas),
		pods: ownedBy[*corev1.Pod](f, podKind, rs), said: f.saidOf(replicaSetKind, rs)}
	for _, c := range rs.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
			w.said = &complaint{c.Message, append([]api.Evidence{evidence(w.ref, "condition ReplicaFailure=True", c.Reason+": "+c.Message, c.LastTransitionTime.Time)}, proofOf(w.said)...)}
		}
	}
	return f.chain(w)
}

func (f *facts) replicationController(rc *corev1.ReplicationController) *api.Why {
	w := workload{ref: controllerKind.ref(rc), object: rc, want: replicasOf(rc.Spec.Replicas),
		pods: ownedBy[*corev1.Pod](f, podKind, rc), said: f.saidOf(controllerKind, rc)}
	if rc.Spec.Template != nil {
		w.labels = rc.Spec.Template.Labels
	}
	return f.chain(w)
}

func (f *facts) statefulSet(s *appsv1.StatefulSet) *api.Why {
	w := workload{ref: statefulSetKind.ref(s), object: s, labels: s.Spec.Template.Labels, want: replicasOf(s.Spec.Replicas),
		pods: ownedBy[*corev1.Pod](f, podKind, s), said: f.saidOf(statefulSetKind, s)}
	if s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement && len(w.pods) < w.want {
		for _, pod := range w.pods {
			if !api.IsPodReady(pod) {
				w.findings = []api.Finding{fine("inTurn", params("pod", pod.Name, "made", len(w.pods), "want", w.want), condition(pod, corev1.PodReady))}
			}
		}
	}
	return f.chain(w)
}

func (f *facts) daemonSet(d *appsv1.DaemonSet) *api.Why {
	w := workload{ref: daemonSetKind.ref(d), object: d, labels: d.Spec.Template.Labels, want: int(d.Status.DesiredNumberScheduled),
		pods: ownedBy[*corev1.Pod](f, podKind, d), said: f.saidOf(daemonSetKind, d)}
	if d.Status.ObservedGeneration == d.Generation && w.want == 0 {
		t := target{w.ref}
		w.findings = []api.Finding{mended(waiting("noNodes", nil, evidence(w.ref, "status.desiredNumberScheduled", "0", time.Time{})),
			mend("noNodes", params("field", t.field("nodeSelector"), "tolerations", t.field("tolerations"))))}
	}
	return f.chain(w)
}

func (f *facts) job(j *batchv1.Job) *api.Why {
	w := workload{ref: jobKind.ref(j), object: j, labels: j.Spec.Template.Labels, ends: true, said: f.saidOf(jobKind, j)}
	var failed []*corev1.Pod
	for _, pod := range ownedBy[*corev1.Pod](f, podKind, j) {
		if pod.Status.Phase == corev1.PodFailed {
			failed = append(failed, pod)
			continue
		}
		w.pods = append(w.pods, pod)
	}
	slices.SortFunc(failed, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	e := evidence(w.ref, "status", fmt.Sprintf("active %d, succeeded %d, failed %d", j.Status.Active, j.Status.Succeeded, j.Status.Failed), time.Time{})
	p := params("failed", j.Status.Failed, "succeeded", j.Status.Succeeded)
	switch word := api.JobWord(j); word {
	case "Complete":
		w.findings = []api.Finding{fine("jobDone", p, e)}
	case "Suspended":
		w.findings = []api.Finding{mended(waiting("jobSuspended", p, evidence(w.ref, "spec.suspend", "true", time.Time{})),
			mend("resumeJob", nil, fmt.Sprintf(`kubectl patch job %s -n %s --type=merge -p '{"spec":{"suspend":false}}'`, j.Name, j.Namespace)))}
	case "Failed", "FailureTarget":
		w.pods = failed[:min(len(failed), 1)] // the last says why
		w.failed = []api.Finding{f.failedJob(j, p)}
		w.want = len(w.pods)
	default:
		if len(w.pods) == 0 {
			w.pods = failed[:min(len(failed), 1)] // the next is on its way
		}
		w.want = max(1, len(w.pods))
	}
	return f.chain(w)
}

func (f *facts) failedJob(j *batchv1.Job, p map[string]string) api.Finding {
	proof := api.Evidence{Object: jobKind.ref(j), From: "status"}
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
			p["reason"] = c.Reason
			proof = evidence(proof.Object, "condition Failed=True", c.Reason+": "+c.Message, c.LastTransitionTime.Time)
		}
	}
	return mended(broken("jobFailed", p, proof), mend("jobFailed", p, fmt.Sprintf("kubectl logs -n %s job/%s", j.Namespace, j.Name)))
}

func (f *facts) cronJob(cj *batchv1.CronJob) *api.Why {
	ref := cronJobKind.ref(cj)
	c := chain{}
	jobs := ownedBy[*batchv1.Job](f, jobKind, cj)
	slices.SortFunc(jobs, func(a, b *batchv1.Job) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	p := params("schedule", cj.Spec.Schedule)
	e := evidence(ref, "spec.schedule", cj.Spec.Schedule, time.Time{})
	switch complaint := f.event(cronJobKind, cj, "FailedCreate", "FailedNeedsStart", "InvalidSchedule", "UnparseableCronJobSchedule", "TooManyMissedTimes"); {
	case cj.Spec.Suspend != nil && *cj.Spec.Suspend:
		c.add(jobsLink, mended(waiting("cronSuspended", p, evidence(ref, "spec.suspend", "true", time.Time{})),
			mend("resumeCron", nil, fmt.Sprintf(`kubectl patch cronjob %s -n %s --type=merge -p '{"spec":{"suspend":false}}'`, cj.Name, cj.Namespace))))
	case complaint != nil && (len(jobs) == 0 || jobs[0].CreationTimestamp.Time.Before(eventTime(complaint))):
		p["message"] = complaint.Message
		c.add(jobsLink, mended(broken("cronFailed", p, eventEvidence(complaint)), mend("asRefused", p)))
	case len(jobs) == 0:
		c.add(jobsLink, fine("cronNever", p, e))
	default:
		c.add(jobsLink, fine("cronRan", params("schedule", cj.Spec.Schedule, "job", jobs[0].Name), evidence(jobKind.ref(jobs[0]), "metadata.creationTimestamp", "", jobs[0].CreationTimestamp.Time)))
	}
	if len(jobs) == 0 {
		return c.answer(ref, jobsLink)
	}
	for _, link := range f.job(jobs[0]).Links {
		c.add(link.Name, link.Findings...)
	}
	return c.answer(ref, slices.Concat([]string{jobsLink}, madeLinks, podLinks)...)
}

// volumeClaim is the short chain of a claim.
func (f *facts) volumeClaim(claim *corev1.PersistentVolumeClaim) *api.Why {
	used := slices.ContainsFunc(list[*corev1.Pod](f, podKind, claim.Namespace), func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name
		})
	})
	c := chain{claimLink: {f.claim(claim, used)}}
	return c.answer(claimKind.ref(claim), claimLink)
}
