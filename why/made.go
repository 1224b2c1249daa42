package why

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"orrery.dev/api"
)

// complaint is what a controller was told when it wanted to make pods.
type complaint struct {
	words string
	proof []api.Evidence
}

var (
	exceeded  = regexp.MustCompile(`exceeded quota: ([^,]+), requested: (.+), used: (.+), limited: ([^\s"]+)`)
	specified = regexp.MustCompile(`failed quota: ([^:]+): must specify (.+)`)
	account   = regexp.MustCompile(`[Ss]ervice ?[Aa]ccount "?([^\s"]+)"? not found`)
	webhook   = regexp.MustCompile(`webhook "([^"]+)"`)
)

// refusedPods sorts a complaint into quota or admission.
func (f *facts) refusedPods(said complaint, namespace string, t target) (link string, finding api.Finding) {
	p := params("message", said.words, "namespace", namespace)
	if m := exceeded.FindStringSubmatch(said.words); m != nil {
		return quotaLink, f.exceeded(said, namespace, t, m[1], amounts(m[2]), amounts(m[3]), amounts(m[4]))
	}
	if m := specified.FindStringSubmatch(said.words); m != nil {
		p["quota"], p["what"], p["field"] = m[1], strings.TrimSpace(m[2]), t.field("containers[].resources")
		return quotaLink, mended(broken("quotaNeeds", p, said.proof...), t.change("setResources", p, "kubectl set resources", "--requests=cpu=100m,memory=128Mi --limits=cpu=500m,memory=256Mi"))
	}
	switch words := said.words; {
	case account.MatchString(words):
		p["account"] = account.FindStringSubmatch(words)[1]
		if i := strings.LastIndex(p["account"], "/"); i >= 0 {
			p["account"] = p["account"][i+1:]
		}
		p["field"] = t.field("serviceAccountName")
		return admissionLink, mended(broken("noAccount", p, said.proof...), mend("createAccount", p, "kubectl create serviceaccount "+p["account"]+" -n "+namespace))
	case strings.Contains(words, "violates PodSecurity"):
		return admissionLink, mended(broken("podSecurity", p, said.proof...), mend("podSecurity", params("field", t.field("securityContext"), "namespace", namespace)))
	case strings.Contains(words, "failed calling webhook"):
		p["webhook"] = firstMatch(webhook, words)
		return admissionLink, mended(broken("webhookDown", p, said.proof...), mend("webhookDown", p, "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"))
	case strings.Contains(words, "denied the request"):
		p["webhook"] = firstMatch(webhook, words)
		return admissionLink, mended(broken("webhookDenied", p, said.proof...), mend("asRefused", p))
	case strings.Contains(words, "per Container is") || strings.Contains(words, "per Pod is"):
		return admissionLink, mended(broken("limitRange", p, said.proof...), mend("limitRange", params("field", t.field("containers[].resources")), "kubectl describe limitrange -n "+namespace))
	}
	return admissionLink, mended(broken("notAdmitted", p, said.proof...), mend("asRefused", p))
}

func firstMatch(re *regexp.Regexp, words string) string {
	if m := re.FindStringSubmatch(words); m != nil {
		return m[1]
	}
	return "-"
}

// amounts reads "pods=1,requests.cpu=500m".
func amounts(text string) map[string]string {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if name, value, found := strings.Cut(strings.TrimSpace(pair), "="); found {
			all[name] = value
		}
	}
	return all
}

// exceeded is a quota that leaves no room. The quota itself, if it may be read,
// knows better than the complaint what is used by now.
func (f *facts) exceeded(said complaint, namespace string, t target, name string, want, used, hard map[string]string) api.Finding {
	resources := slices.Sorted(maps.Keys(want))
	if len(resources) == 0 {
		resources = []string{"-"}
	}
	about := resources[0]
	p := params("quota", name, "resource", about, "want", want[about], "used", used[about], "hard", hard[about], "namespace", namespace)
	proof := said.proof
	for _, q := range list[*corev1.ResourceQuota](f, quotaKind, namespace) {
		if q.Name != name {
			continue
		}
		counted := q.Status.Used[corev1.ResourceName(about)]
		limit := q.Status.Hard[corev1.ResourceName(about)]
		p["used"], p["hard"] = counted.String(), limit.String()
		proof = append(proof, evidence(quotaKind.ref(q), "status.used, status.hard", fmt.Sprintf("%s: %s of %s used", about, p["used"], p["hard"]), time.Time{}))
	}
	if refused := f.refused(quotaKind, namespace); refused != nil {
		proof = append(proof, evidence(quotaKind.named(namespace, name), "not readable", refused.Params["message"], time.Time{}))
	}
	raise := fmt.Sprintf(`kubectl patch resourcequota %s -n %s --type=merge -p '{"spec":{"hard":{"%s":"MORE"}}}'`, name, namespace, about)
	mends := []api.Mend{mend("raiseQuota", p, raise), mend("freeQuota", p, "kubectl get pods -n "+namespace)}
	if strings.Contains(about, ".") || about == "cpu" || about == "memory" {
		p["field"] = t.field("containers[].resources")
		mends = append(mends, mend("lowerResources", p))
	}
	return mended(broken("quotaExceeded", p, proof...), mends...)
}

// quotas tells of the quotas of a namespace that pods fit into.
func (f *facts) quotas(namespace string) []api.Finding {
	all := list[*corev1.ResourceQuota](f, quotaKind, namespace)
	if refused := f.refused(quotaKind, namespace); refused != nil {
		return []api.Finding{*refused}
	}
	if len(all) == 0 {
		return []api.Finding{fine("noQuota", params("namespace", namespace))}
	}
	var proof []api.Evidence
	for _, q := range all {
		var words []string
		for _, name := range slices.Sorted(maps.Keys(q.Status.Hard)) {
			used, hard := q.Status.Used[name], q.Status.Hard[name]
			words = append(words, fmt.Sprintf("%s: %s of %s used", name, used.String(), hard.String()))
		}
		proof = append(proof, evidence(quotaKind.ref(q), "status.used, status.hard", strings.Join(words, ", "), time.Time{}))
	}
	return []api.Finding{fine("quotaFits", params("count", len(all), "namespace", namespace), proof...)}
}
