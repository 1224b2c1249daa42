package why

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"orrery.dev/api"
)

// service is the chain of a Service: does its selector find pods, are they
// ready, are they its endpoints?
func (f *facts) service(s *corev1.Service) *api.Why {
	c := chain{}
	ref := serviceKind.ref(s)
	order := []string{selectorLink, probesLink, endpointsLink}
	if len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
		c.add(selectorLink, fine("noSelector", nil, evidence(ref, "spec", string(s.Spec.Type), time.Time{})))
		return c.answer(ref, selectorLink)
	}
	pods := f.podsSelected(s.Namespace, s.Spec.Selector)
	if refused := f.refused(podKind, s.Namespace); refused != nil {
		c.add(selectorLink, *refused)
		return c.answer(ref, order...)
	}
	c.add(selectorLink, f.selects(s, pods))
	if c.blocked() {
		return c.answer(ref, order...)
	}
	ready := 0
	for _, pod := range pods {
		if api.IsPodReady(pod) {
			ready++
		}
	}
	p := params("ready", ready, "pods", len(pods), "selector", labels.FormatLabels(s.Spec.Selector))
	switch {
	case len(pods) == 0:
	case ready == 0 && !s.Spec.PublishNotReadyAddresses:
		c.add(probesLink, f.noneReady(pods, p))
	default:
		c.add(probesLink, fine("podsReady", p))
	}
	if !c.blocked() {
		c.add(endpointsLink, f.endpoints(s, pods, ready)...)
	}
	return c.answer(ref, order...)
}

// selects is what a selector finds. A selector that finds none is wrong, unless
// it is that of a workload which has no pods now.
func (f *facts) selects(s *corev1.Service, pods []*corev1.Pod) api.Finding {
	p := params("selector", labels.FormatLabels(s.Spec.Selector), "pods", len(pods), "name", s.Name)
	e := evidence(serviceKind.ref(s), "spec.selector", p["selector"], time.Time{})
	if len(pods) > 0 {
		return fine("selects", p, e)
	}
	if owner := f.templateOf(s); owner != nil {
		p["kind"], p["workload"] = owner.ref.Kind, owner.ref.Name
		if owner.want == 0 {
			return mended(fine("selectsNoneWanted", p, e, evidence(owner.ref, "spec.replicas", "0", time.Time{})), scaleUp(owner.ref))
		}
		return waiting("selectsNoneYet", p, e, evidence(owner.ref, "spec.template.metadata.labels", labels.FormatLabels(owner.labels), time.Time{}))
	}
	near := f.nearest(s)
	if near == nil {
		return mended(broken("selectsNothing", p, e), mend("selector", p, "kubectl edit service "+s.Name+" -n "+s.Namespace))
	}
	p["kind"], p["workload"], p["labels"] = near.ref.Kind, near.ref.Name, labels.FormatLabels(near.labels)
	return mended(broken("selectsNearly", p, e, evidence(near.ref, "spec.template.metadata.labels", p["labels"], time.Time{})),
		mend("selector", p, "kubectl set selector service "+s.Name+" "+labels.FormatLabels(common(s.Spec.Selector, near.labels))+" -n "+s.Namespace))
}

// common is a selector with the values that labels have, or, if they have none
// of its keys, the labels.
func common(selector, have map[string]string) map[string]string {
	out := map[string]string{}
	for key := range selector {
		if value, ok := have[key]; ok {
			out[key] = value
		}
	}
	if len(out) == 0 {
		return have
	}
	return out
}

// template is a workload as a Service sees it.
type template struct {
	ref    api.ObjectRef
	labels map[string]string
	want   int
}

// templates are the workloads of a namespace that stand for pods.
func (f *facts) templates(namespace string) []template {
	name := indexName{place{deploymentKind, namespace}, "templates"}
	if known, ok := f.indexes[name]; ok {
		return known.([]template)
	}
	var all []template
	for _, d := range list[*appsv1.Deployment](f, deploymentKind, namespace) {
		all = append(all, template{deploymentKind.ref(d), d.Spec.Template.Labels, replicasOf(d.Spec.Replicas)})
	}
	for _, s := range list[*appsv1.StatefulSet](f, statefulSetKind, namespace) {
		all = append(all, template{statefulSetKind.ref(s), s.Spec.Template.Labels, replicasOf(s.Spec.Replicas)})
	}
	for _, d := range list[*appsv1.DaemonSet](f, daemonSetKind, namespace) {
		all = append(all, template{daemonSetKind.ref(d), d.Spec.Template.Labels, int(d.Status.DesiredNumberScheduled)})
	}
	f.indexes[name] = all
	return all
}

// templateOf is the workload whose pods a Service would select; nil: none.
func (f *facts) templateOf(s *corev1.Service) *template {
	for _, t := range f.templates(s.Namespace) {
		if includes(t.labels, s.Spec.Selector) {
			return &t
		}
	}
	return nil
}

// nearest is the workload that a Service most likely means: it has some of its
// selector, or its name, or a value that is only a slip away.
func (f *facts) nearest(s *corev1.Service) *template {
	var best *template
	most := 0
	for _, t := range f.templates(s.Namespace) {
		if score := likeness(s, t); score > most {
			best, most = &t, score
		}
	}
	return best
}

func likeness(s *corev1.Service, t template) int {
	score := 0
	if t.ref.Name == s.Name {
		score += 4
	}
	for key, value := range s.Spec.Selector {
		have, ok := t.labels[key]
		switch {
		case ok && have == value:
			score += 4
		case ok && (slips(have, value) <= 2 || strings.HasPrefix(have, value) || strings.HasPrefix(value, have)):
			score += 3
		}
		for _, other := range t.labels {
			if other == value && have != value {
				score += 2 // the right value under another key
			}
		}
	}
	return score
}

// slips is how many characters have to be changed, added or left out to make
// one text of the other.
func slips(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func (f *facts) noneReady(pods []*corev1.Pod, p map[string]string) api.Finding {
	finding := broken("noneReady", p)
	for _, pod := range pods[:min(len(pods), fewPods)] {
		finding.Pods = append(finding.Pods, podKind.ref(pod))
	}
	finding.PodCount = len(pods)
	root := f.rootOf(pods[0])
	p["kind"], p["workload"] = root.Kind, root.Name
	finding.Evidence = append(finding.Evidence, condition(pods[0], corev1.PodReady), evidence(root, "status", "", time.Time{}))
	if !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return f.now.Sub(pod.CreationTimestamp.Time) > controllerPatience }) {
		finding.State = api.WhyWaiting
	}
	return mended(finding, mend("seeWorkload", p))
}

// endpoints compares the ready pods with the addresses that the Service leads to.
func (f *facts) endpoints(s *corev1.Service, pods []*corev1.Pod, ready int) []api.Finding {
	var out []api.Finding
	for _, port := range s.Spec.Ports {
		if name := port.TargetPort.String(); port.TargetPort.Type == intstr.String && !slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return hasPort(p, name) }) {
			p := params("port", name, "declared", declared(pods), "servicePort", port.Port)
			out = append(out, mended(broken("noSuchPort", p, evidence(serviceKind.ref(s), "spec.ports[].targetPort", name, time.Time{})),
				mend("targetPort", p, "kubectl edit service "+s.Name+" -n "+s.Namespace)))
		}
	}
	if len(out) > 0 {
		return out
	}
	slicesOf := index(f, sliceKind, s.Namespace, "service", func(e *discoveryv1.EndpointSlice) []string {
		return []string{e.Labels[discoveryv1.LabelServiceName]}
	})[s.Name]
	if refused := f.refused(sliceKind, s.Namespace); refused != nil {
		return []api.Finding{*refused}
	}
	addresses := 0
	var proof []api.Evidence
	for _, slice := range slicesOf {
		n := 0
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				n += len(e.Addresses)
			}
		}
		addresses += n
		proof = append(proof, evidence(sliceKind.ref(slice), "endpoints", fmt.Sprintf("%d ready", n), time.Time{}))
	}
	p := params("service", s.Name, "addresses", addresses, "ready", ready)
	if addresses == 0 && ready > 0 {
		return []api.Finding{mended(waiting("endpointsLag", p, proof...), mend("controllerSilent", p, "kubectl get pods -n kube-system"))}
	}
	return []api.Finding{fine("endpoints", p, proof...)}
}

func hasPort(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == name })
	})
}

func declared(pods []*corev1.Pod) string {
	var all []string
	for i := range pods[0].Spec.Containers {
		if ports := portsOf(&pods[0].Spec.Containers[i]); ports != "" {
			all = append(all, ports)
		}
	}
	if len(all) == 0 {
		return "-"
	}
	return strings.Join(all, ", ")
}

// served are the Services that select pods with some labels.
func (f *facts) served(namespace string, have map[string]string) []api.Finding {
	services := list[*corev1.Service](f, serviceKind, namespace)
	if refused := f.refused(serviceKind, namespace); refused != nil {
		return []api.Finding{*refused}
	}
	var out []api.Finding
	for _, s := range services {
		if len(s.Spec.Selector) == 0 || !includes(have, s.Spec.Selector) {
			continue
		}
		for _, link := range f.service(s).Links {
			if link.Name == endpointsLink {
				for _, finding := range link.Findings {
					finding.Evidence = append([]api.Evidence{evidence(serviceKind.ref(s), "spec.selector", labels.FormatLabels(s.Spec.Selector), time.Time{})}, finding.Evidence...)
					out = append(out, finding)
				}
			}
		}
	}
	if len(out) == 0 {
		out = append(out, fine("noService", params("labels", labels.FormatLabels(have))))
	}
	return out
}

// serving is served for a workload; it also knows of Services that most likely
// mean it and miss.
func (f *facts) serving(w workload, blocked bool) []api.Finding {
	if s := f.strays(w.ref.Namespace)[w.ref]; s != nil {
		return []api.Finding{f.selects(s, nil)}
	}
	if blocked {
		return nil
	}
	return f.served(w.ref.Namespace, w.labels)
}

// strays are the Services of a namespace that select nothing, by the workload
// that each most likely means.
func (f *facts) strays(namespace string) map[api.ObjectRef]*corev1.Service {
	name := indexName{place{serviceKind, namespace}, "strays"}
	if known, ok := f.indexes[name]; ok {
		return known.(map[api.ObjectRef]*corev1.Service)
	}
	strays := map[api.ObjectRef]*corev1.Service{}
	for _, s := range list[*corev1.Service](f, serviceKind, namespace) {
		if len(s.Spec.Selector) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName || len(f.podsSelected(namespace, s.Spec.Selector)) > 0 || f.templateOf(s) != nil {
			continue
		}
		if near := f.nearest(s); near != nil {
			strays[near.ref] = s
		}
	}
	f.indexes[name] = strays
	return strays
}
