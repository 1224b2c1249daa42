package server

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"orrery.dev/server/admission"
	"orrery.dev/server/auth"
)

// startGuarded is start with the real authoriser and the real admission chain.
func startGuarded(t *testing.T, choice ...admission.Choice) *cluster {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	return start(t, func(c *Config) {
		authz, err := auth.NewAuthorizer(auth.AuthorizerConfig{Source: AuthSource{Store: c.Store}})
		if err != nil {
			t.Fatal(err)
		}
		addresses, err := admission.NewAddresses(c.Store, NewOwnStore(c.Store, c.Kinds, NewFieldTypes(c.Kinds)), []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}, admission.PortRange{First: 30000, Last: 32767})
		if err != nil {
			t.Fatal(err)
		}
		config := admission.Config{Reader: c.Store, Writer: c.Store, Addresses: addresses, Authorizer: authz, Kinds: c.Kinds, CheckGrant: authz.CheckGrant}
		for _, config.Choice = range choice {
		}
		chain, err := admission.All(config)
		if err != nil {
			t.Fatal(err)
		}
		c.Admission, c.Authorizer, c.Rules = chain, authz, authz
		for _, run := range []func(context.Context) error{authz.Run, addresses.Run} {
			running.Go(func() {
				if err := run(ctx); err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
		}
	})
}

func TestServicesOverRealStorage(t *testing.T) {
	c := startGuarded(t)
	ctx := t.Context()
	services := c.client.CoreV1().Services("default")
	want := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	made, err := services.Create(ctx, want, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	port := made.Spec.Ports[0].NodePort
	if made.Spec.ClusterIP == "" || port < 30000 {
		t.Fatalf("service %+v", made.Spec)
	}
	if _, err := c.client.NetworkingV1().IPAddresses().Get(ctx, made.Spec.ClusterIP, metav1.GetOptions{}); err != nil {
		t.Errorf("its address: %v", err)
	}
	second := want.DeepCopy()
	second.Name, second.Spec.Ports[0].NodePort = "other", port
	if _, err := services.Create(ctx, second, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "provided port is already allocated") {
		t.Errorf("taken port: %v", err)
	}
	if err := services.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.NetworkingV1().IPAddresses().Get(ctx, made.Spec.ClusterIP, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("its address afterwards: %v", err)
	}
	if _, err := services.Create(ctx, second, metav1.CreateOptions{}); err != nil {
		t.Errorf("freed port: %v", err)
	}
	// kubectl delete --cascade=foreground: gone by the update that takes the finalizer.
	third := want.DeepCopy()
	third.Name, third.Finalizers = "held", []string{"example.com/hold"}
	held, err := services.Create(ctx, third, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := services.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ip := held.Spec.ClusterIP
	if _, err := c.client.NetworkingV1().IPAddresses().Get(ctx, ip, metav1.GetOptions{}); err != nil {
		t.Errorf("address of a held service: %v", err)
	}
	if _, err := services.Patch(ctx, "held", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.NetworkingV1().IPAddresses().Get(ctx, ip, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("address of a service that ended by update: %v", err)
	}
	c.await("the kubernetes ServiceCIDR", func() bool {
		_, err := c.client.NetworkingV1().ServiceCIDRs().Get(ctx, "kubernetes", metav1.GetOptions{})
		return err == nil
	})
}

func TestPodsAndQuotaOverRealStorage(t *testing.T) {
	c := startGuarded(t)
	ctx := t.Context()
	if _, err := c.client.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("1")}}}
	made, err := c.client.CoreV1().ResourceQuotas("default").Create(ctx, quota, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Status = corev1.ResourceQuotaStatus{Hard: made.Spec.Hard, Used: corev1.ResourceList{"pods": resource.MustParse("0")}}
	if _, err := c.client.CoreV1().ResourceQuotas("default").UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	// Admission reads quotas as the cache has them.
	c.await("the quota in the cache", func() bool {
		cached, err := c.client.CoreV1().ResourceQuotas("default").Get(ctx, "q", metav1.GetOptions{ResourceVersion: "0"})
		return err == nil && len(cached.Status.Hard) > 0
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: corev1.PodSpec{PriorityClassName: "system-node-critical", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	var got *corev1.Pod
	c.await("a pod", func() bool {
		got, err = c.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		return err == nil
	})
	if len(got.Spec.Volumes) != 1 || len(got.Spec.Tolerations) != 2 || got.Spec.Priority == nil || *got.Spec.Priority != 2000001000 || got.Spec.ServiceAccountName != "default" {
		t.Errorf("pod %+v", got.Spec)
	}
	_, err = c.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1") {
		t.Errorf("one pod too many: %v", err)
	}
}

func TestRBACOverRealStorage(t *testing.T) {
	c := startGuarded(t)
	ctx := t.Context()
	bob, err := kubernetes.NewForConfig(&rest.Config{Host: c.url, BearerToken: "bob", QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	// The authoriser says which roles it misses until it has seen them all.
	c.await("a plain refusal", func() bool {
		_, err := bob.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err != nil && err.Error() == `pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default"`
	})
	// The aggregation controller fills view; here it is not running.
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "bob"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "system:aggregate-to-view"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "bob"}}}
	if _, err := c.client.RbacV1().RoleBindings("default").Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.await("the binding", func() bool {
		_, err := bob.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err == nil
	})
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}
	if _, err := bob.RbacV1().Roles("default").Create(ctx, role, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("bob made a role: %v", err)
	}
	roles, err := c.client.RbacV1().ClusterRoles().List(ctx, metav1.ListOptions{})
	if err != nil || !slices.ContainsFunc(roles.Items, func(r rbacv1.ClusterRole) bool { return r.Name == "cluster-admin" }) {
		t.Errorf("%d cluster roles: %v", len(roles.Items), err)
	}
}

// TestAdmissionChoice: plugins that an administrator enables and configures do
// their work, and those that are disabled do not.
func TestAdmissionChoice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(file, []byte(`
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: Namespace, qps: 1, burst: 1}]
- name: PodSecurity
  configuration:
    apiVersion: pod-security.admission.config.k8s.io/v1
    kind: PodSecurityConfiguration
    defaults: {enforce: baseline}
    exemptions: {namespaces: [kube-system]}
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources: [{resource: services, matchContains: [nodeports]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	configurations, err := admission.ReadConfigurations(file)
	if err != nil {
		t.Fatal(err)
	}
	c := startGuarded(t, admission.Choice{
		Enable: []string{"EventRateLimit", "AlwaysPullImages", "DenyServiceExternalIPs", "NamespaceAutoProvision"}, Disable: []string{"ServiceAccount"}, Configurations: configurations,
	})
	const pods, services, events = "/api/v1/namespaces/%/pods", "/api/v1/namespaces/default/services", "/api/v1/namespaces/default/events"
	for _, ask := range []struct {
		path, body string
		code       int
		want       string // a part of the answer
	}{
		{strings.Replace(pods, "%", "fresh", 1), `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`, 201, `"imagePullPolicy":"Always"`},
		{strings.Replace(pods, "%", "default", 1), `{"metadata":{"name":"p"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}`, 403, `violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true)`},
		{strings.Replace(pods, "%", "kube-system", 1), `{"metadata":{"name":"p"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}`, 201, `"hostNetwork":true`},
		{services, `{"metadata":{"name":"s"},"spec":{"externalIPs":["192.0.2.1"],"ports":[{"port":1}]}}`, 403, "Use of external IPs is denied by admission control"},
		{services, `{"metadata":{"name":"s"},"spec":{"type":"NodePort","ports":[{"port":1}]}}`, 403, "insufficient quota to consume: services.nodeports"},
		{events, `{"metadata":{"name":"a"},"involvedObject":{"namespace":"default"}}`, 201, ""},
		{events, `{"metadata":{"name":"b"},"involvedObject":{"namespace":"default"}}`, 429, "Too many requests: limit reached on type Namespace for key default"},
	} {
		if code, body := c.do("POST", ask.path, ask.body, nil); code != ask.code || !strings.Contains(body, ask.want) {
			t.Errorf("%s %s: %d %s", ask.path, ask.body, code, body)
		}
	}
}
