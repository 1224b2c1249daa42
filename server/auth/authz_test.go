package auth

import (
	"context"
	"errors"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// runAuthorizer starts an authoriser over a store and waits until it has read it.
func runAuthorizer(t *testing.T, store *fakeStore) *Authorizer {
	t.Helper()
	a, err := NewAuthorizer(AuthorizerConfig{Source: store})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	<-a.Synced()
	return a
}

func rule(verbs, group, resources string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: strings.Fields(verbs), APIGroups: []string{group}, Resources: strings.Fields(resources), ResourceNames: names}
}

func who(name string, groups ...string) user.Info {
	return &user.DefaultInfo{Name: name, Groups: groups}
}

// ask is "verb group/resource[/sub] [namespace/]name" or "verb /path".
func ask(u user.Info, verb, what, namespace, name string) authorizer.AttributesRecord {
	if strings.HasPrefix(what, "/") {
		return authorizer.AttributesRecord{User: u, Verb: verb, Path: what}
	}
	group, resource, ok := strings.Cut(what, ":")
	if !ok {
		group, resource = "", what
	}
	resource, sub, _ := strings.Cut(resource, "/")
	return authorizer.AttributesRecord{User: u, Verb: verb, APIGroup: group, Resource: resource, Subresource: sub, Namespace: namespace, Name: name, ResourceRequest: true}
}

func rbacStore() *fakeStore {
	store := newFakeStore()
	store.With(rbac("clusterroles"),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Rules: []rbacv1.PolicyRule{rule("get list", "", "pods pods/log"), rule("update", "*", "*/scale")}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics", "/debug/*"}}}},
	)
	store.With(rbac("roles"), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "one"}, Rules: []rbacv1.PolicyRule{rule("get", "", "secrets", "s1")}})
	store.With(rbac("clusterrolebindings"),
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "readers"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}, Subjects: []rbacv1.Subject{{Kind: "Group", Name: "devs"}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "webs"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "web"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "ann"}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "lost"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "gone"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "lost"}}},
	)
	store.With(rbac("rolebindings"),
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "ones"}, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: "one"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "app"}}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "local"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "bob"}}},
	)
	return store
}

func TestRBAC(t *testing.T) {
	a := runAuthorizer(t, rbacStore())
	dev, app := who("dan", "devs"), who("system:serviceaccount:a:app")
	for _, c := range []struct {
		name   string
		ask    authorizer.AttributesRecord
		allow  bool
		reason string
	}{
		{"group", ask(dev, "get", "pods", "x", "p"), true, `RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to Group "devs"`},
		{"other verb", ask(dev, "delete", "pods", "x", "p"), false, ""},
		{"subresource", ask(dev, "get", "pods/log", "x", "p"), true, `RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to Group "devs"`},
		{"other subresource", ask(dev, "get", "pods/exec", "x", "p"), false, ""},
		{"any scale", ask(dev, "update", "apps:deployments/scale", "x", "p"), true, `RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to Group "devs"`},
		{"service account, named object", ask(app, "get", "secrets", "a", "s1"), true, `RBAC: allowed by RoleBinding "ones/a" of Role "one" to ServiceAccount "app/a"`},
		{"other name", ask(app, "get", "secrets", "a", "s2"), false, ""},
		{"other namespace", ask(app, "get", "secrets", "b", "s1"), false, ""},
		{"cluster role in a namespace", ask(who("bob"), "list", "pods", "a", ""), true, `RBAC: allowed by RoleBinding "local/a" of ClusterRole "reader" to User "bob"`},
		{"not in all namespaces", ask(who("bob"), "list", "pods", "", ""), false, ""},
		{"path", ask(who("ann"), "get", "/metrics", "", ""), true, `RBAC: allowed by ClusterRoleBinding "webs" of ClusterRole "web" to User "ann"`},
		{"path below", ask(who("ann"), "get", "/debug/pprof", "", ""), true, `RBAC: allowed by ClusterRoleBinding "webs" of ClusterRole "web" to User "ann"`},
		{"other path", ask(who("ann"), "get", "/metrics/x", "", ""), false, ""},
		{"role that is gone", ask(who("lost"), "get", "pods", "x", ""), false, `rbac: RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found`},
		{"masters", ask(who("root", "system:masters"), "delete", "nodes", "", "n"), true, ""},
	} {
		decision, reason, err := a.Authorize(t.Context(), c.ask)
		if err != nil || (decision == authorizer.DecisionAllow) != c.allow || reason != c.reason {
			t.Errorf("%s: %v %q %v, want %v %q", c.name, decision, reason, err, c.allow, c.reason)
		}
	}
}

func TestRBACFollowsChanges(t *testing.T) {
	r := NewRBAC()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "r"}, Rules: []rbacv1.PolicyRule{rule("get", "", "pods")}}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "ann"}}}
	may := func(name string) bool {
		d, _, _ := r.Authorize(t.Context(), ask(who(name), "get", "pods", "a", "p"))
		return d == authorizer.DecisionAllow
	}
	r.apply("clusterroles", []Change{{Object: role}}, true)
	r.apply("rolebindings", []Change{{Object: binding}}, true)
	if !may("ann") {
		t.Error("a new binding does nothing")
	}
	moved := binding.DeepCopy()
	moved.Subjects[0].Name = "bob"
	r.apply("rolebindings", []Change{{Object: moved}}, false)
	if may("ann") || !may("bob") {
		t.Error("a changed binding keeps its old subject")
	}
	r.apply("rolebindings", []Change{{Object: moved, Deleted: true}}, false)
	if may("bob") {
		t.Error("a deleted binding still allows")
	}
	r.apply("rolebindings", []Change{{Object: binding}}, false)
	r.apply("rolebindings", nil, true)
	if may("ann") {
		t.Error("a reset keeps what is no longer there")
	}
}

func TestRulesFor(t *testing.T) {
	a := runAuthorizer(t, rbacStore())
	resources, _, _, err := a.RulesFor(t.Context(), who("bob"), "a")
	if err != nil || len(resources) != 2 || resources[0].GetResources()[0] != "pods" {
		t.Errorf("%v %v", resources, err)
	}
}

func TestCheckGrant(t *testing.T) {
	store := rbacStore()
	store.With(rbac("clusterrolebindings"), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "binder"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "binder"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "binder"}}})
	store.With(rbac("clusterroles"), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "binder"}, Rules: []rbacv1.PolicyRule{rule("bind", rbacv1.GroupName, "clusterroles", "web"), rule("escalate", rbacv1.GroupName, "roles")}})
	a := runAuthorizer(t, store)
	dev := who("dan", "devs")
	role := func(r rbacv1.PolicyRule) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "new"}, Rules: []rbacv1.PolicyRule{r}}
	}
	bind := func(name string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "new"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: name}}
	}
	const refusal = `roles.rbac.authorization.k8s.io "new" is forbidden: user "dan" (groups=["devs"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}`
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"held", a.CheckGrant(t.Context(), dev, role(rule("get", "", "pods")), nil), ""},
		{"not held", a.CheckGrant(t.Context(), dev, role(rule("get delete", "", "pods")), nil), refusal},
		{"unchanged", a.CheckGrant(t.Context(), dev, role(rule("delete", "", "pods")), role(rule("delete", "", "pods"))), ""},
		{"masters", a.CheckGrant(t.Context(), who("root", "system:masters"), role(rule("*", "*", "*")), nil), ""},
		{"escalate", a.CheckGrant(t.Context(), who("binder"), role(rule("*", "*", "*")), nil), ""},
		{"bind", a.CheckGrant(t.Context(), who("binder"), bind("web"), nil), ""},
		{"bind a held role", a.CheckGrant(t.Context(), dev, bind("reader"), nil), ""},
		{"bind a missing role", a.CheckGrant(t.Context(), dev, bind("gone"), nil), `clusterroles.rbac.authorization.k8s.io "gone" not found`},
	} {
		got := ""
		if c.err != nil {
			got = c.err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if err := a.CheckGrant(t.Context(), dev, bind("web"), nil); err == nil {
		t.Error("bound a role that is not held")
	}
}

func TestNodeAuthorizer(t *testing.T) {
	store := newFakeStore()
	store.With(core("pods"), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"},
		Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "app", Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}},
			{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}},
		}},
	})
	store.With(core("persistentvolumes"), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef:               &corev1.ObjectReference{Namespace: "a", Name: "c"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{NodeStageSecretRef: &corev1.SecretReference{Namespace: "csi", Name: "stage"}}},
		},
	})
	store.With(schema.GroupResource{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "req"}, Spec: certificatesv1.PodCertificateRequestSpec{NodeName: "n1"},
	})
	a := runAuthorizer(t, store)
	n1, n2 := who("system:node:n1", "system:nodes"), who("system:node:n2", "system:nodes")
	onNode := func(r authorizer.AttributesRecord, field, node string) authorizer.AttributesRecord {
		r.FieldSelectorRequirements = fields.OneTermEqualSelector(field, node).Requirements()
		return r
	}
	for _, c := range []struct {
		name  string
		ask   authorizer.AttributesRecord
		allow bool
	}{
		{"secret of its pod", ask(n1, "get", "secrets", "a", "s"), true},
		{"secret of another node's pod", ask(n2, "get", "secrets", "a", "s"), false},
		{"all secrets", ask(n1, "list", "secrets", "a", ""), false},
		{"write a secret", ask(n1, "update", "secrets", "a", "s"), false},
		{"claim", ask(n1, "get", "persistentvolumeclaims", "a", "c"), true},
		{"volume of the claim", ask(n1, "get", "persistentvolumes", "", "pv"), true},
		{"secret of the volume", ask(n1, "get", "secrets", "csi", "stage"), true},
		{"token for its pod's account", ask(n1, "create", "serviceaccounts/token", "a", "app"), true},
		{"token for another account", ask(n1, "create", "serviceaccounts/token", "a", "other"), false},
		{"own lease", ask(n1, "update", "coordination.k8s.io:leases", "kube-node-lease", "n1"), true},
		{"another's lease", ask(n1, "update", "coordination.k8s.io:leases", "kube-node-lease", "n2"), false},
		{"ask for a certificate", ask(n1, "create", "certificates.k8s.io:podcertificaterequests", "a", ""), true},
		{"own certificate request", ask(n1, "get", "certificates.k8s.io:podcertificaterequests", "a", "req"), true},
		{"another's certificate request", ask(n2, "get", "certificates.k8s.io:podcertificaterequests", "a", "req"), false},
		{"own certificate requests", onNode(ask(n1, "watch", "certificates.k8s.io:podcertificaterequests", "", ""), "spec.nodeName", "n1"), true},
		{"all certificate requests", ask(n1, "list", "certificates.k8s.io:podcertificaterequests", "", ""), false},
		{"issue its own certificate", ask(n1, "update", "certificates.k8s.io:podcertificaterequests/status", "a", "req"), false},
		{"own node", ask(n1, "get", "nodes", "", "n1"), true},
		{"another node", ask(n1, "get", "nodes", "", "n2"), false},
		{"own node by selector", onNode(ask(n1, "watch", "nodes", "", ""), "metadata.name", "n1"), true},
		{"own pods", onNode(ask(n1, "list", "pods", "", ""), "spec.nodeName", "n1"), true},
		{"all pods", ask(n1, "list", "pods", "", ""), false},
		{"own pod", ask(n1, "get", "pods", "a", "p"), true},
		{"another's pod", ask(n2, "get", "pods", "a", "p"), false},
		{"services by the role", ask(n1, "list", "services", "", ""), true},
		{"not of the group", ask(who("system:node:n1"), "get", "secrets", "a", "s"), false},
	} {
		decision, reason, err := a.Authorize(t.Context(), c.ask)
		if err != nil || (decision == authorizer.DecisionAllow) != c.allow {
			t.Errorf("%s: %v %q %v", c.name, decision, reason, err)
		}
	}
	// A kubelet may be faster than the graph.
	go a.nodes.graph.applyPods([]Change{{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "new"}, Spec: corev1.PodSpec{NodeName: "n2", ServiceAccountName: "fresh"}}}}, false)
	if d, reason, _ := a.Authorize(t.Context(), ask(n2, "create", "serviceaccounts/token", "a", "fresh")); d != authorizer.DecisionAllow {
		t.Errorf("token of a pod just bound: %s", reason)
	}
	a.nodes.graph.applyPods([]Change{{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p"}}, Deleted: true}}, false)
	if d, _, _ := a.Authorize(t.Context(), ask(n1, "get", "secrets", "a", "s")); d == authorizer.DecisionAllow {
		t.Error("a secret stays readable after its pod is gone")
	}
}

func BenchmarkAuthorize(b *testing.B) {
	r := NewRBAC()
	roles, err := BootstrapRoles()
	if err != nil {
		b.Fatal(err)
	}
	for _, o := range roles.ClusterRoles {
		r.applyOne(o, false)
	}
	for _, o := range roles.ClusterRoleBindings {
		r.applyOne(o, false)
	}
	record := ask(who("system:kube-controller-manager", "system:authenticated"), "list", "apps:deployments", "", "")
	for b.Loop() {
		_, _, _ = r.Authorize(b.Context(), record)
	}
}
