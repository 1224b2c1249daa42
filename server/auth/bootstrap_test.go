package auth

import (
	"context"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBootstrap(t *testing.T) {
	store := newFakeStore()
	if err := bootstrap(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for k := range store.Objects {
		count[k.Resource.Resource]++
	}
	for resource, want := range map[string]int{
		"clusterroles": 73, "clusterrolebindings": 54, "roles": 7, "rolebindings": 7, "flowschemas": 11, "prioritylevelconfigurations": 8, "priorityclasses": 2, "namespaces": 4,
	} {
		if count[resource] != want {
			t.Errorf("%d %s, want %d", count[resource], resource, want)
		}
	}
	store.Writes = 0
	if err := bootstrap(t.Context(), store); err != nil || store.Writes != 0 {
		t.Errorf("a second run made %d writes: %v", store.Writes, err)
	}
}

func TestBootstrapMends(t *testing.T) {
	store := newFakeStore()
	mine := rule("get", "", "things")
	store.With(rbac("clusterroles"),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "system:kube-dns"}, Rules: []rbacv1.PolicyRule{mine}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "system:basic-user", Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}}},
	)
	store.With(rbac("clusterrolebindings"), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-admin"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "other", APIGroup: rbacv1.GroupName},
	})
	if err := bootstrap(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	dns, _ := get[*rbacv1.ClusterRole](t.Context(), store, rbac("clusterroles"), "", "system:kube-dns")
	if len(dns.Rules) < 2 || dns.Rules[0].Resources[0] != "things" {
		t.Errorf("rules %v", dns.Rules)
	}
	basic, _ := get[*rbacv1.ClusterRole](t.Context(), store, rbac("clusterroles"), "", "system:basic-user")
	if len(basic.Rules) != 0 {
		t.Errorf("changed in spite of autoupdate=false: %v", basic.Rules)
	}
	admin, _ := get[*rbacv1.ClusterRoleBinding](t.Context(), store, rbac("clusterrolebindings"), "", "cluster-admin")
	if admin.RoleRef.Name != "cluster-admin" || len(admin.Subjects) != 1 {
		t.Errorf("binding %+v", admin)
	}
}

// TestBootstrapFlow: suggested objects are kept until somebody changes them,
// mandatory ones always.
func TestBootstrapFlow(t *testing.T) {
	const key = flowcontrolv1.AutoUpdateAnnotationKey
	shares := int32(7)
	level := func(name, auto string, generation int64) *flowcontrolv1.PriorityLevelConfiguration {
		p := &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation}}
		p.Spec.Type = flowcontrolv1.PriorityLevelEnablementLimited
		p.Spec.Limited = &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares}
		if auto != "" {
			p.Annotations = map[string]string{key: auto}
		}
		return p
	}
	for _, c := range []struct {
		name, auto string
		generation int64
		want       string // annotation afterwards; "-": deleted
		shares     int32
	}{
		{"catch-all", "false", 3, "true", 5},
		{"system", "true", 3, "true", 30},
		{"system", "false", 1, "false", 7},
		{"system", "", 1, "true", 30},
		{"system", "", 2, "false", 7},
		{"system", "what", 2, "false", 7},
		{"mine", "", 1, "", 7},
		{"mine", "false", 1, "false", 7},
		{"of-an-older-version", "true", 1, "-", 0},
	} {
		store, resource := newFakeStore(), flowResource("prioritylevelconfigurations")
		store.With(resource, level(c.name, c.auto, c.generation))
		if err := bootstrap(t.Context(), store); err != nil {
			t.Fatal(err)
		}
		got, err := get[*flowcontrolv1.PriorityLevelConfiguration](t.Context(), store, resource, "", c.name)
		if c.want == "-" {
			if err == nil {
				t.Errorf("%+v: still there", c)
			}
			continue
		}
		if err != nil || got.Annotations[key] != c.want || *got.Spec.Limited.NominalConcurrencyShares != c.shares {
			t.Errorf("%+v: got %v %d %v", c, got.Annotations, *got.Spec.Limited.NominalConcurrencyShares, err)
		}
		if changed := c.shares != shares; changed != (got.Generation == c.generation+1) {
			t.Errorf("%+v: generation %d", c, got.Generation)
		}
	}
}

func bootstrap(ctx context.Context, s Store) error {
	for _, step := range BootstrapSteps(s) {
		if err := step.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}
