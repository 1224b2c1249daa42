package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func newQuota(name string, hard, used map[string]string, change ...func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: named("ns", name), Status: corev1.ResourceQuotaStatus{Hard: corev1.ResourceList{}, Used: corev1.ResourceList{}}}
	for k, v := range hard {
		q.Status.Hard[corev1.ResourceName(k)] = resource.MustParse(v)
	}
	for k, v := range used {
		q.Status.Used[corev1.ResourceName(k)] = resource.MustParse(v)
	}
	for _, f := range change {
		f(q)
	}
	return q
}

type texts = map[string]string

func cpuPod(cpu string) *corev1.Pod {
	return newPod("p", func(p *corev1.Pod) {
		l := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: l, Limits: l}
	})
}

func TestResourceQuota(t *testing.T) {
	bestEffortOnly := func(q *corev1.ResourceQuota) {
		q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
	}
	terminatingOnly := func(q *corev1.ResourceQuota) {
		q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	}
	deadline := func(p *corev1.Pod) *corev1.Pod {
		p.Spec.ActiveDeadlineSeconds = new(int64)
		return p
	}
	for _, c := range []struct {
		name  string
		quota *corev1.ResourceQuota
		r     *Request
		want  string
		used  texts // afterwards
	}{
		{"fits", newQuota("q", texts{"pods": "2", "requests.cpu": "1"}, texts{"pods": "1", "requests.cpu": "500m"}), request(Create, "pods", cpuPod("500m"), nil), "", texts{"pods": "2", "requests.cpu": "1"}},
		{
			"exceeds", newQuota("q", texts{"pods": "1", "requests.cpu": "1"}, texts{"pods": "1", "requests.cpu": "800m"}), request(Create, "pods", cpuPod("500m"), nil),
			`pods "p" is forbidden: exceeded quota: q, requested: pods=1,requests.cpu=500m, used: pods=1,requests.cpu=800m, limited: pods=1,requests.cpu=1`, texts{"pods": "1"},
		},
		{"must specify", newQuota("q", texts{"limits.memory": "1Gi"}, texts{"limits.memory": "0"}), request(Create, "pods", newPod("p"), nil), `pods "p" is forbidden: failed quota: q: must specify limits.memory for: c`, nil},
		{"unknown status", newQuota("q", texts{"pods": "1"}, nil), request(Create, "pods", newPod("p"), nil), `pods "p" is forbidden: status unknown for quota: q, resources: pods`, nil},
		{"count", newQuota("q", texts{"count/configmaps": "1"}, texts{"count/configmaps": "1"}), request(Create, "configmaps", &corev1.ConfigMap{ObjectMeta: named("ns", "c")}, nil), `configmaps "c" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1`, nil},
		{"another scope", newQuota("q", texts{"pods": "0"}, texts{"pods": "0"}, bestEffortOnly), request(Create, "pods", cpuPod("1"), nil), "", texts{"pods": "0"}},
		{"scope", newQuota("q", texts{"pods": "0"}, texts{"pods": "0"}, bestEffortOnly), request(Create, "pods", newPod("p"), nil), `pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`, nil},
		{"node ports", newQuota("q", texts{"services.nodeports": "0"}, texts{"services.nodeports": "0"}), request(Update, "services", newService("s", corev1.ServiceTypeNodePort), newService("s", corev1.ServiceTypeClusterIP)), `services "s" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=0, limited: services.nodeports=0`, nil},
		{"less", newQuota("q", texts{"services.nodeports": "0"}, texts{"services.nodeports": "1"}), request(Update, "services", newService("s", corev1.ServiceTypeClusterIP), newService("s", corev1.ServiceTypeNodePort)), "", texts{"services.nodeports": "0"}},
		{
			"comes under a deadline", newQuota("q", texts{"pods": "1", "requests.cpu": "1"}, texts{"pods": "0", "requests.cpu": "0"}, terminatingOnly), request(Update, "pods", deadline(cpuPod("1")), cpuPod("1")),
			"", texts{"pods": "1", "requests.cpu": "1"},
		},
		{
			"comes under one too many", newQuota("q", texts{"pods": "0"}, texts{"pods": "0"}, terminatingOnly), request(Update, "pods", deadline(cpuPod("1")), cpuPod("1")),
			`pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0`, nil,
		},
		{"was under no scope", newQuota("q", texts{"pods": "0"}, texts{"pods": "1"}), request(Update, "pods", deadline(newPod("p")), newPod("p")), "", texts{"pods": "1"}},
		{"update of a pod", newQuota("q", texts{"pods": "0"}, texts{"pods": "0"}), request(Update, "pods", newPod("p"), newPod("p")), "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := newFakeStore().with(quotaResource(), c.quota)
			p, _ := resourceQuota(store, store, nil)
			wantError(t, run(t, p, c.r), c.want)
			after, _ := get[*corev1.ResourceQuota](t.Context(), store, quotaResource(), "ns", "q")
			for name, want := range c.used {
				if got := after.Status.Used[corev1.ResourceName(name)]; got.Cmp(resource.MustParse(want)) != 0 {
					t.Errorf("%s used %s, want %s", name, got.String(), want)
				}
			}
		})
	}
}

func TestQuotaIsGivenBack(t *testing.T) {
	store := newFakeStore().with(quotaResource(), newQuota("q", texts{"pods": "1"}, texts{"pods": "0"}))
	p, _ := resourceQuota(store, store, nil)
	r := request(Create, "pods", newPod("p"), nil)
	if err := p.Validate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r.Finish(t.Context(), nil)
	after, _ := get[*corev1.ResourceQuota](t.Context(), store, quotaResource(), "ns", "q")
	if used := after.Status.Used["pods"]; !used.IsZero() {
		t.Errorf("used %s after a failed write", used.String())
	}
	dry := request(Create, "pods", newPod("p"), nil)
	dry.DryRun = true
	wantError(t, run(t, p, dry), "")
	after, _ = get[*corev1.ResourceQuota](t.Context(), store, quotaResource(), "ns", "q")
	if used := after.Status.Used["pods"]; !used.IsZero() {
		t.Errorf("used %s after a dry run", used.String())
	}
}
