package nodeagent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"orrery.dev/api"
)

func TestExpand(t *testing.T) {
	known := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "1", "B": "$(A)"}[name]
		return v, ok
	}
	for in, want := range map[string]string{
		"$(A)": "1", "x$(A)y$(A)": "x1y1", "$(B)": "$(A)", "$(C)": "$(C)", "$$(A)": "$(A)", "$$$(A)": "$1",
		"$A": "$A", "$": "$", "$(": "$(", "$(A": "$(A", "a$b": "a$b", "": "",
	} {
		if got := expand(in, known); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestServiceEnv(t *testing.T) {
	svc := &corev1.Service{}
	svc.Name = "my-db"
	svc.Spec.ClusterIP = "10.96.0.7"
	svc.Spec.Ports = []corev1.ServicePort{{Name: "sql-main", Port: 5432, Protocol: corev1.ProtocolTCP}, {Name: "adm", Port: 53, Protocol: corev1.ProtocolUDP}}
	env := map[string]string{}
	addServiceEnv(env, svc)
	for name, want := range map[string]string{
		"MY_DB_SERVICE_HOST": "10.96.0.7", "MY_DB_SERVICE_PORT": "5432", "MY_DB_SERVICE_PORT_SQL_MAIN": "5432", "MY_DB_SERVICE_PORT_ADM": "53",
		"MY_DB_PORT": "tcp://10.96.0.7:5432", "MY_DB_PORT_5432_TCP": "tcp://10.96.0.7:5432", "MY_DB_PORT_5432_TCP_PROTO": "tcp",
		"MY_DB_PORT_53_UDP_PORT": "53", "MY_DB_PORT_53_UDP_ADDR": "10.96.0.7",
	} {
		if env[name] != want {
			t.Errorf("%s=%q, want %q", name, env[name], want)
		}
	}
	headless := map[string]string{}
	svc.Spec.ClusterIP = corev1.ClusterIPNone
	if addServiceEnv(headless, svc); len(headless) > 0 {
		t.Errorf("headless service has %v", headless)
	}
}

func TestDNS(t *testing.T) {
	resolv := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolv, []byte("# x\nnameserver 192.0.2.53\nsearch example.com.\noptions rotate\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	a := &Agent{}
	a.cfg.Kubelet.ResolverConfig = &resolv
	a.cfg.Kubelet.ClusterDNS = []string{"10.96.0.10"}
	a.cfg.Kubelet.ClusterDomain = "cluster.local"
	tests := []struct {
		name   string
		change func(*corev1.PodSpec)
		want   string
	}{
		{"cluster first", func(*corev1.PodSpec) {}, "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local example.com | ndots:5"},
		{"host network", func(s *corev1.PodSpec) { s.HostNetwork = true }, "192.0.2.53 | example.com | rotate"},
		{"host network, cluster first", func(s *corev1.PodSpec) { s.HostNetwork, s.DNSPolicy = true, corev1.DNSClusterFirstWithHostNet }, "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local example.com | ndots:5"},
		{"default", func(s *corev1.PodSpec) { s.DNSPolicy = corev1.DNSDefault }, "192.0.2.53 | example.com | rotate"},
		{"none", func(s *corev1.PodSpec) {
			s.DNSPolicy = corev1.DNSNone
			s.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"1.1.1.1"}, Searches: []string{"x"}}
		}, "1.1.1.1 | x | "},
		{"options", func(s *corev1.PodSpec) {
			s.DNSConfig = &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}, {Name: "edns0"}}}
		}, "10.96.0.10 | ns.svc.cluster.local svc.cluster.local cluster.local example.com | ndots:2 edns0"},
	}
	for _, tt := range tests {
		p := pod(corev1.RestartPolicyAlways, "a")
		p.Spec.DNSPolicy = corev1.DNSClusterFirst
		tt.change(&p.Spec)
		d := a.dns(p)
		if got := strings.Join(d.Servers, " ") + " | " + strings.Join(d.Searches, " ") + " | " + strings.Join(d.Options, " "); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func TestQOSAndOOMScore(t *testing.T) {
	a := &Agent{host: hostFacts{memory: 1 << 30, mayLowerOOM: true}}
	set := func(requests, limits string) *corev1.Pod {
		p := pod(corev1.RestartPolicyAlways, "a")
		list := func(s string) corev1.ResourceList {
			if s == "" {
				return nil
			}
			return corev1.ResourceList{corev1.ResourceCPU: quantity("1"), corev1.ResourceMemory: quantity(s)}
		}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
		return p
	}
	tests := []struct {
		pod   *corev1.Pod
		class corev1.PodQOSClass
		score int64
	}{
		{set("", ""), corev1.PodQOSBestEffort, 1000},
		{set("512Mi", ""), corev1.PodQOSBurstable, 500},
		{set("1Mi", ""), corev1.PodQOSBurstable, 999},
		{set("512Mi", "512Mi"), corev1.PodQOSGuaranteed, -997},
	}
	for _, tt := range tests {
		if class, score := api.PodQOS(tt.pod), a.oomScore(tt.pod, &tt.pod.Spec.Containers[0]); class != tt.class || score != tt.score {
			t.Errorf("%s %d, want %s %d", class, score, tt.class, tt.score)
		}
	}
	a.host.mayLowerOOM, a.host.oomScore = false, -5
	if got := a.oomScore(tests[3].pod, &tests[3].pod.Spec.Containers[0]); got != -5 {
		t.Errorf("without the capability: %d, want our own -5", got)
	}
}

func TestLinuxResources(t *testing.T) {
	res := func(cpu, memory string) corev1.ResourceList {
		out := corev1.ResourceList{}
		if cpu != "" {
			out[corev1.ResourceCPU] = quantity(cpu)
		}
		if memory != "" {
			out[corev1.ResourceMemory] = quantity(memory)
		}
		return out
	}
	tests := []struct {
		requests, limits      corev1.ResourceList
		shares, quota, memory int64
	}{
		{nil, nil, 2, 0, 0},
		{res("500m", ""), res("1", "64Mi"), 512, 100000, 64 << 20},
		{nil, res("250m", ""), 256, 25000, 0},
		{res("1m", ""), res("1m", ""), 2, 1000, 0},
	}
	for _, tt := range tests {
		got := linuxResources(tt.requests, tt.limits, true)
		want := &runtimeapi.LinuxContainerResources{CpuPeriod: 100000, CpuShares: tt.shares, CpuQuota: tt.quota, MemoryLimitInBytes: tt.memory}
		if got.String() != want.String() {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
