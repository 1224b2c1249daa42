package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"orrery.dev/api"
)

// The links.
const (
	quotaLink      = "quota"
	admissionLink  = "admission"
	controllerLink = "controller"
	schedulingLink = "scheduling"
	volumesLink    = "volumes"
	sandboxLink    = "sandbox"
	imageLink      = "image"
	startLink      = "start"
	probesLink     = "probes"
	endpointsLink  = "endpoints"
	selectorLink   = "selector" // of a Service
	claimLink      = "claim"    // of a PersistentVolumeClaim
	jobsLink       = "jobs"     // of a CronJob
)

// madeLinks come before there is a pod, podLinks are a pod's own.
var (
	madeLinks = []string{quotaLink, admissionLink, controllerLink}
	podLinks  = []string{schedulingLink, volumesLink, sandboxLink, imageLink, startLink, probesLink}
)

// severity orders states, worst first.
var severity = map[api.WhyState]int{api.WhyBroken: 0, api.WhyWaiting: 1, api.WhyUnknown: 2, api.WhyOK: 3, api.WhyNotReached: 4}

// chain collects findings by link.
type chain map[string][]api.Finding

func (c chain) add(link string, findings ...api.Finding) {
	c[link] = append(c[link], findings...)
}

// blocked reports whether any link up to here is not passed.
func (c chain) blocked() bool {
	for _, findings := range c {
		if slices.ContainsFunc(findings, func(f api.Finding) bool { return f.State == api.WhyBroken || f.State == api.WhyWaiting }) {
			return true
		}
	}
	return false
}

func (c chain) broken(link string) bool {
	return slices.ContainsFunc(c[link], func(f api.Finding) bool { return f.State == api.WhyBroken })
}

// answer puts the links in order. What comes after a link that is not passed
// and has no finding of its own is not reached; before it, it is ok.
func (c chain) answer(of api.ObjectRef, order ...string) *api.Why {
	w := &api.Why{Object: of, State: api.WhyOK}
	stopped := false
	for _, name := range order {
		findings := c[name]
		slices.SortStableFunc(findings, func(a, b api.Finding) int { return cmp.Compare(severity[a.State], severity[b.State]) })
		link := api.WhyLink{Name: name, State: api.WhyOK, Findings: findings}
		switch {
		case len(findings) > 0:
			link.State = findings[0].State
		case stopped:
			link.State = api.WhyNotReached
		}
		if severity[link.State] < severity[w.State] && link.State != api.WhyUnknown {
			w.State = link.State
		}
		stopped = stopped || link.State == api.WhyBroken || link.State == api.WhyWaiting
		w.Links = append(w.Links, link)
	}
	return w
}

// first is the first link that is broken, or else the first that waits.
func first(w *api.Why) (link string, finding api.Finding) {
	for _, l := range w.Links {
		if l.State == w.State && len(l.Findings) > 0 {
			return l.Name, l.Findings[0]
		}
	}
	return "", api.Finding{}
}

func broken(code string, p map[string]string, evidence ...api.Evidence) api.Finding {
	return api.Finding{State: api.WhyBroken, Code: code, Params: p, Evidence: evidence}
}

func waiting(code string, p map[string]string, evidence ...api.Evidence) api.Finding {
	return api.Finding{State: api.WhyWaiting, Code: code, Params: p, Evidence: evidence}
}

func fine(code string, p map[string]string, evidence ...api.Evidence) api.Finding {
	return api.Finding{State: api.WhyOK, Code: code, Params: p, Evidence: evidence}
}

func mended(f api.Finding, mends ...api.Mend) api.Finding {
	f.Mends = append(f.Mends, mends...)
	return f
}

func mend(code string, p map[string]string, command ...string) api.Mend {
	return api.Mend{Code: code, Params: p, Command: strings.Join(command, " ")}
}

// evidence is words found in an object.
func evidence(ref api.ObjectRef, from, words string, at time.Time) api.Evidence {
	e := api.Evidence{Object: ref, From: from, Words: words}
	if !at.IsZero() {
		e.Time = &at
	}
	return e
}

// eventEvidence is what an event says of an object.
func eventEvidence(e *corev1.Event) api.Evidence {
	from := "event " + e.Reason
	if e.Count > 1 {
		from += fmt.Sprintf(" ×%d", e.Count)
	}
	about := e.InvolvedObject
	ref := api.ObjectRef{Kind: about.Kind, Namespace: about.Namespace, Name: about.Name}
	for _, k := range append([]kind{podKind, claimKind}, workloadKinds...) {
		if k.name == about.Kind {
			ref = k.named(about.Namespace, about.Name)
		}
	}
	return evidence(ref, from, e.Message, eventTime(e))
}

// target is what has to be changed: the workload whose template made a pod, or
// the pod itself.
type target struct {
	api.ObjectRef
}

// arg is the target as kubectl takes it.
func (t target) arg() string { return strings.ToLower(t.Kind) + "/" + t.Name + t.inNamespace() }

func (t target) inNamespace() string { return " -n " + t.Namespace }

// field is a field of the pod's spec as it is found in the target.
func (t target) field(path string) string {
	switch t.Kind {
	case podKind.name:
		return "spec." + path
	case cronJobKind.name:
		return "spec.jobTemplate.spec.template.spec." + path
	}
	return "spec.template.spec." + path
}

// change is a mend by a kubectl command on the target, or, where that cannot be
// changed, by making it anew. Of a pod only the images can.
func (t target) change(code string, p map[string]string, before, after string) api.Mend {
	switch {
	case slices.Contains([]string{deploymentKind.name, statefulSetKind.name, daemonSetKind.name, cronJobKind.name}, t.Kind),
		t.Kind == podKind.name && code == "setImage":
		return mend(code, p, before, t.arg(), after)
	}
	return mend(code, p)
}
