package nodeagent

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// dns is the resolv.conf of a pod, by its DNS policy.
func (a *Agent) dns(pod *corev1.Pod) *runtimeapi.DNSConfig {
	host := readResolv(*a.cfg.Kubelet.ResolverConfig)
	policy := pod.Spec.DNSPolicy
	if policy == corev1.DNSClusterFirst && pod.Spec.HostNetwork {
		policy = corev1.DNSDefault
	}
	out := &runtimeapi.DNSConfig{}
	switch {
	case policy == corev1.DNSNone:
	case (policy == corev1.DNSClusterFirst || policy == corev1.DNSClusterFirstWithHostNet || policy == "") && len(a.cfg.Kubelet.ClusterDNS) > 0:
		out.Servers = a.cfg.Kubelet.ClusterDNS
		if d := a.cfg.Kubelet.ClusterDomain; d != "" {
			out.Searches = []string{pod.Namespace + ".svc." + d, "svc." + d, d}
		}
		out.Searches = unique(append(out.Searches, host.Searches...))
		out.Options = []string{"ndots:5"}
	default:
		out = host
	}
	if c := pod.Spec.DNSConfig; c != nil {
		out.Servers = unique(append(slices.Clone(out.Servers), c.Nameservers...))
		out.Searches = unique(append(out.Searches, c.Searches...))
		out.Options = mergeOptions(out.Options, c.Options)
	}
	return out
}

// mergeOptions replaces options of the same name.
func mergeOptions(have []string, more []corev1.PodDNSConfigOption) []string {
	for _, o := range more {
		have = slices.DeleteFunc(slices.Clone(have), func(s string) bool {
			name, _, _ := strings.Cut(s, ":")
			return name == o.Name
		})
		if o.Value != nil && *o.Value != "" {
			have = append(have, o.Name+":"+*o.Value)
			continue
		}
		have = append(have, o.Name)
	}
	return have
}

func unique(in []string) []string {
	var out []string
	for _, s := range in {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// readResolv reads a resolv.conf; what is missing or unknown counts as empty.
func readResolv(path string) *runtimeapi.DNSConfig {
	out := &runtimeapi.DNSConfig{}
	f, err := os.Open(path)
	if err != nil {
		return out
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		words := strings.Fields(sc.Text())
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			out.Servers = append(out.Servers, words[1])
		case "search":
			out.Searches = nil
			for _, s := range words[1:] {
				if s != "." {
					s = strings.TrimSuffix(s, ".")
				}
				out.Searches = append(out.Searches, s)
			}
		case "options":
			out.Options = words[1:]
		}
	}
	return out
}

// hostsFile is the /etc/hosts of a pod's containers.
func (a *Agent) hostsFile(pod *corev1.Pod, ips []string) []byte {
	var b strings.Builder
	if pod.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		if own, err := os.ReadFile("/etc/hosts"); err == nil {
			b.Write(own)
		}
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n" +
			"127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\n" +
			"fe00::2\tip6-allrouters\n")
		name, full := a.hostnameOf(pod)
		for _, ip := range ips {
			if full != "" && full != name {
				fmt.Fprintf(&b, "%s\t%s\t%s\n", ip, full, name)
				continue
			}
			fmt.Fprintf(&b, "%s\t%s\n", ip, name)
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, alias := range pod.Spec.HostAliases {
			fmt.Fprintf(&b, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
		}
	}
	return []byte(b.String())
}
