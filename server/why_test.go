package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/api"
)

// TestWhyWithTheUsersRights asks for the same chain as an administrator, as a
// user who may read one namespace but no quotas, and as nobody in particular.
func TestWhyWithTheUsersRights(t *testing.T) {
	const bobsOwn = "default"
	may := authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "bob" && a.IsReadOnly() && a.GetNamespace() == bobsOwn && a.GetResource() != "resourcequotas" {
			return authorizer.DecisionAllow, "", nil
		}
		return onlyAdmins(ctx, a)
	})
	c := start(t, func(c *Config) {
		c.Authorizer, c.Own = may, []string{api.WhyPath, api.BlastPath, api.RightsPath}
		answers := NewWhy(c.Store, c.Kinds, may, nil)
		c.Extra = map[string]http.Handler{api.WhyPath: answers, api.BlastPath: answers, api.RightsPath: answers}
	})
	ctx := context.Background()
	apps := c.client.AppsV1()
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web"}}}}
	d, err := apps.Deployments("default").Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}}, metav1.CreateOptions{})
	must(t, err)
	d.Status.ObservedGeneration = d.Generation
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
		Message: `pods "web-1" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5`}}
	_, err = apps.Deployments("default").UpdateStatus(ctx, d, metav1.UpdateOptions{})
	must(t, err)
	_, err = c.client.CoreV1().Services("default").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "slip"},
		Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "wbe"}, Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	must(t, err)
	of := "?group=apps&resource=deployments&namespace=default&name=web"
	for user, quota := range map[string]bool{"admin": true, "bob": false} {
		c.await(user+" is told of the quota", func() bool { // the cache follows
			var w api.Why
			return askWhy(t, c, user, of, &w) == http.StatusOK && w.State == api.WhyBroken && w.Links[0].State == api.WhyBroken
		})
		var found api.Troubles
		if code := askWhy(t, c, user, "", &found); code != http.StatusOK || len(found.Items) != 2 || (len(found.Unread) == 0) != quota {
			t.Errorf("%s: %d, troubles %+v", user, code, found)
		}
	}
	if code := askWhy(t, c, "bob", "?resource=pods&namespace=kube-system&name=x", nil); code != http.StatusForbidden {
		t.Errorf("a pod of another namespace: %d", code)
	}
	if code := askWhy(t, c, "", of, nil); code != http.StatusForbidden {
		t.Errorf("nobody: %d", code)
	}
	what := api.BlastOf{Objects: []api.ObjectRef{{Group: "apps", Resource: "deployments", Namespace: "default", Name: "web"}}}
	_, err = apps.ReplicaSets("default").Create(ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-1", OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: d.UID}}},
		Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}}, metav1.CreateOptions{})
	must(t, err)
	for user, want := range map[string]string{"admin": "goes", "bob": "goes unlisted", "": ""} {
		c.await(fmt.Sprintf("%q is told what goes with it: %q", user, want), func() bool {
			var codes []string
			for _, f := range askBlast(t, c, user, what).Findings {
				codes = append(codes, f.Code)
			}
			return strings.Join(codes, " ") == want
		})
	}
}

// Who can do something is told to those who may read roles and bindings; what oneself may
// do is told to everybody.
func TestRightsWithTheUsersRights(t *testing.T) {
	may := authorizer.AuthorizerFunc(onlyAdmins)
	c := start(t, func(c *Config) {
		c.Authorizer, c.Own = may, []string{api.RightsPath}
		c.Extra = map[string]http.Handler{api.RightsPath: NewWhy(c.Store, c.Kinds, may, nil)}
	})
	ctx, rbac := context.Background(), c.client.RbacV1()
	_, err := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "mend"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"pods"}}}}, metav1.CreateOptions{})
	must(t, err)
	_, err = rbac.RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "menders"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mend"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "robot"}}}, metav1.CreateOptions{})
	must(t, err)
	c.await("the robot is told of", func() bool { // the cache follows
		var who api.WhoCan
		code := c.askRights(t, "admin", "?verb=delete&resource=pods&namespace=default", &who)
		return code == http.StatusOK && slices.ContainsFunc(who.Holders, func(h api.Holder) bool {
			return h.Subject.String() == "sa:default:robot" && h.Binding.Name == "menders" && h.Role.Name == "mend" && h.Namespace == "default"
		})
	})
	var refusal metav1.Status
	if code := c.askRights(t, "bob", "?verb=delete&resource=pods", &refusal); code != http.StatusForbidden || !strings.Contains(refusal.Message, `cannot list resource "clusterroles"`) {
		t.Errorf("bob: %d %s", code, refusal.Message)
	}
	var mine api.Rights
	if code := c.askRights(t, "bob", "?of=me", &mine); code != http.StatusOK || mine.Subject.Name != "bob" {
		t.Errorf("bob's own: %d %+v", code, mine.Subject)
	}
	if code := c.askRights(t, "admin", "?of=sa:default:robot&namespace=default", &mine); code != http.StatusOK || len(mine.Rules) == 0 {
		t.Errorf("the robot's: %d %+v", code, mine.Rules)
	}
}

func (c *cluster) askRights(t *testing.T, user, query string, into any) int {
	t.Helper()
	req, err := http.NewRequest("GET", c.url+api.RightsPath+query, nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+user)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	must(t, json.NewDecoder(resp.Body).Decode(into))
	return resp.StatusCode
}

func askBlast(t *testing.T, c *cluster, user string, of api.BlastOf) (b api.Blast) {
	t.Helper()
	body, err := json.Marshal(of)
	must(t, err)
	req, err := http.NewRequest("POST", c.url+api.BlastPath, bytes.NewReader(body))
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+user)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		must(t, json.NewDecoder(resp.Body).Decode(&b))
	}
	return b
}

func askWhy(t *testing.T, c *cluster, user, query string, into any) int {
	t.Helper()
	req, err := http.NewRequest("GET", c.url+api.WhyPath+query, nil)
	must(t, err)
	if user != "" {
		req.Header.Set("Authorization", "Bearer "+user)
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	if into != nil && resp.StatusCode == http.StatusOK {
		must(t, json.NewDecoder(resp.Body).Decode(into))
	}
	return resp.StatusCode
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
