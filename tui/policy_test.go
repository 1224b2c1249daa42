package tui

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"
	authnv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	kubetesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"orrery.dev/api"
	"orrery.dev/why"
)

const shopPolicies = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: cluster-admin}, rules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"]}, {verbs: ["*"], nonResourceURLs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: edit}, rules: [{verbs: [get, list, watch], apiGroups: ["", apps], resources: [pods, pods/log, deployments, configmaps]}, {verbs: [create, update, patch, delete, deletecollection], apiGroups: ["", apps], resources: [pods, deployments]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: certificate, namespace: shop}, rules: [{verbs: [get], apiGroups: [""], resources: [secrets], resourceNames: [tls]}, {verbs: [impersonate], apiGroups: [""], resources: [serviceaccounts]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: cluster-admin}, roleRef: {kind: ClusterRole, name: cluster-admin}, subjects: [{kind: Group, name: "system:masters"}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: developers, namespace: shop}, roleRef: {kind: ClusterRole, name: edit}, subjects: [{kind: User, name: ada}, {kind: Group, name: dev}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: deployer, namespace: shop}, roleRef: {kind: ClusterRole, name: edit}, subjects: [{kind: ServiceAccount, name: deployer}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: certificate, namespace: shop}, roleRef: {kind: Role, name: certificate}, subjects: [{kind: ServiceAccount, name: deployer}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: analysts, namespace: data}, roleRef: {kind: ClusterRole, name: edit}, subjects: [{kind: User, name: grace}]}`

// shopPolicy answers who may do what in the shop, of which nothing in denied may be read.
func shopPolicy(denied ...string) http.Handler {
	var all []runtime.Object
	for doc := range strings.SplitSeq(shopPolicies, "\n---\n") {
		data, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			panic(err)
		}
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
		if err != nil {
			panic(err)
		}
		all = append(all, o)
	}
	reader := why.Reader{
		List: func(k schema.GroupVersionResource, namespace string) (out []runtime.Object, _ error) {
			if slices.Contains(denied, k.Resource) {
				return nil, apierrors.NewForbidden(k.GroupResource(), "", errors.New(`User "ada" cannot list resource "`+k.Resource+`" at the cluster scope`))
			}
			for _, o := range all {
				plural, _ := meta.UnsafeGuessKindToResource(o.GetObjectKind().GroupVersionKind())
				m, _ := meta.Accessor(o)
				if plural == k && (namespace == "" || m.GetNamespace() == namespace) {
					out = append(out, o)
				}
			}
			return out, nil
		},
		Kinds: func() (all []why.Kind, _ error) {
			for _, k := range []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"}, {Group: "apps", Version: "v1", Resource: "deployments"}} {
				all = append(all, why.Kind{GroupVersionResource: k, Namespaced: true})
			}
			return append(all, why.Kind{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "nodes"}}), nil
		},
		Self: func(namespace string) (user.Info, why.Own, error) {
			return &user.DefaultInfo{Name: "ada", Groups: []string{"dev"}}, why.Own{Namespace: namespace}, nil
		},
	}
	return why.Handler(func(*http.Request) why.Reader { return reader })
}

// Who can do something is a table; Enter tells what else a holder may do, and Enter on
// that the rules that say so. A ServiceAccount opens to its rights at once.
func TestRightsAreTold(t *testing.T) {
	s := newShow(t, Config{Namespace: "shop"}, 120, 30, asking(shopPolicy()))
	s.await("db-0")
	s.keys(":", "can delete po", tcell.KeyEnter)
	s.await("who can delete po(shop)[4]", "ServiceAccount", "everywhere", "ClusterRole/edit", "RoleBinding/developers", "system:masters may do it")
	s.keys("/", "deployer", tcell.KeyEnter)
	s.await("/deployer")
	s.keys(tcell.KeyEnter)
	text := s.await("rights of sa:shop:deployer(shop)", "deployments.apps", "impersonate", "deletecollection")
	for _, row := range []string{"secrets ◐ · · · · · · certificate", "configmaps ✓ ✓ ✓ · · · · deployer"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), row) {
			t.Errorf("no %q in\n%s", row, text)
		}
	}
	s.keys("/", "secrets", tcell.KeyEnter)
	s.await("/secrets")
	s.keys(tcell.KeyEnter)
	s.await("‹secrets›", "only tls", "RoleBinding/certificate → Role/certificate")
	s.keys(tcell.KeyEscape, tcell.KeyEscape, "0")
	s.await("rights of sa:shop:deployer(all)")
	s.keys(":", "can u:grace -n data", tcell.KeyEnter)
	s.await("rights of user:grace(data)", "analysts", "Which groups grace is in")
	s.keys(":", "can", tcell.KeyEnter)
	s.await("your rights(data)")
	s.keys(":", "can get /metrics", tcell.KeyEnter)
	s.await("who can get /metrics(data)[1]")
	s.keys(":", "can jane", tcell.KeyEnter)
	s.await("g:NAME, s:NAMESPACE:NAME")
}

// Users and groups are those that bindings name.
func TestUsersAndGroups(t *testing.T) {
	s := newShow(t, Config{}, 120, 30, asking(shopPolicy()))
	s.await("db-0")
	s.keys(":", "usr", tcell.KeyEnter)
	s.await("users(all)[2]", "ada", "grace")
	s.keys(":", "grp", tcell.KeyEnter)
	s.await("groups(all)[2]", "dev", "system:masters")
	s.keys(tcell.KeyEnter)
	s.await("rights of group:dev(all)", "developers")
}

// Who may not read roles and bindings is told which verb is missing.
func TestRightsRefused(t *testing.T) {
	s := newShow(t, Config{}, 120, 30, asking(shopPolicy("clusterroles")))
	s.await("db-0")
	s.keys(":", "can delete pods", tcell.KeyEnter)
	s.await(`cannot list resource "clusterroles"`)
	s.keys(":", "can", tcell.KeyEnter)
	s.await("your rights", "Where these rights come from is not told")
}

func TestWhoAmI(t *testing.T) {
	s := newShow(t, Config{}, 80, 24)
	s.await("db-0")
	s.app.cluster.kube.(*fake.Clientset).PrependReactor("create", "selfsubjectreviews", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, &authnv1.SelfSubjectReview{Status: authnv1.SelfSubjectReviewStatus{UserInfo: authnv1.UserInfo{Username: "ada", Groups: []string{"dev", "system:authenticated"}}}}, nil
	})
	s.keys(":", "whoami", tcell.KeyEnter)
	s.await("User      ada", "Group     dev", "system:authenticated")
}

// Every verb of a kind is told apart: for all, for some, not at all, and not there.
func TestPolicyRow(t *testing.T) {
	r := &api.Rights{Rules: []api.RightsRule{{}, {Binding: &api.ObjectRef{Name: "b"}}, {Binding: &api.ObjectRef{Name: "b"}}}}
	ks := kinds{{plural: "pods", verbs: []string{"get", "list", "delete"}}}
	row := policyRow(r, api.KindRights{Resource: "pods", All: []string{"get", "deletecollection"}, Some: []string{"list"}, Rules: []int{0, 1, 2}}, ks)
	if want := []any{"pods", "✓", "◐", "", "", "", "", "·", "deletecollection", "b"}; !slices.Equal(row.Cells, want) {
		t.Errorf("got %q, want %q", row.Cells, want)
	}
	row = policyRow(r, api.KindRights{Resource: "/metrics", All: []string{"get"}}, ks)
	if want := []any{"/metrics", "✓", "", "", "", "", "", "", "", ""}; !slices.Equal(row.Cells, want) {
		t.Errorf("got %q, want %q", row.Cells, want)
	}
}
