package cluster

import (
	"slices"
	"testing"
)

// TestAPIServerArgs: further flags take the place of ours, and bring what they
// name with them.
func TestAPIServerArgs(t *testing.T) {
	c := ControlPlane{
		Layout: Layout{Dir: "/var/lib/orrery"}, NodeName: "n", NodeIP: "192.0.2.1", ServiceCIDR: "10.96.0.0/12", APIPort: 6443,
		APIServerArgs: []string{
			"--authorization-config=/etc/orrery/authz.yaml", "--encryption-provider-config=/etc/orrery/encryption.yaml",
			"--service-cluster-ip-range=10.0.0.0/16", "--audit-log-path=/var/log/orrery/audit.log",
			"--token-auth-file=" + Layout{Dir: "/var/lib/orrery"}.PKI("tokens.csv"), "--oidc-issuer-url=https://x",
		},
		APIServerMounts: []string{"/run/kms"},
	}
	at := slices.IndexFunc(c.components(), func(c component) bool { return c.name == "kube-apiserver" })
	api := c.components()[at]
	if want := []string{c.Layout.PKI(""), "/etc/orrery", "+/var/log/orrery", "/run/kms"}; !slices.Equal(api.mounts, want) {
		t.Errorf("mounts %v, want %v", api.mounts, want)
	}
	for _, gone := range []string{"--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.96.0.0/12"} {
		if slices.Contains(api.args, gone) {
			t.Errorf("still has %s", gone)
		}
	}
	for _, there := range append(c.APIServerArgs, "--client-ca-file="+c.Layout.PKI("ca.crt")) {
		if !slices.Contains(api.args, there) {
			t.Errorf("has no %s", there)
		}
	}
}
