package why

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"orrery.dev/api"
)

const policies = `
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: cluster-admin}, rules: [{verbs: ["*"], apiGroups: ["*"], resources: ["*"]}, {verbs: ["*"], nonResourceURLs: ["*"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: view}, rules: [{verbs: [get, list, watch], apiGroups: ["", apps], resources: [pods, pods/log, deployments]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: metrics}, rules: [{verbs: [get], nonResourceURLs: [/metrics, /healthz/*]}, {verbs: [list], apiGroups: [""], resources: [nodes]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "system:node"}, rules: [{verbs: [get], apiGroups: [""], resources: [secrets]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: key, namespace: shop}, rules: [{verbs: [get], apiGroups: [""], resources: [secrets], resourceNames: [tls, db]}, {verbs: [update], apiGroups: ["*"], resources: ["*/scale"]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: admins}, roleRef: {kind: ClusterRole, name: cluster-admin}, subjects: [{kind: Group, name: "system:masters"}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: scrape}, roleRef: {kind: ClusterRole, name: metrics}, subjects: [{kind: ServiceAccount, name: prometheus, namespace: watch}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: all}, roleRef: {kind: ClusterRole, name: nowhere}, subjects: [{kind: Group, name: "system:authenticated"}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: viewers, namespace: shop}, roleRef: {kind: ClusterRole, name: view}, subjects: [{kind: User, name: jane}, {kind: Group, name: dev}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: key, namespace: shop}, roleRef: {kind: Role, name: key}, subjects: [{kind: ServiceAccount, name: web}, {kind: User, name: "system:serviceaccount:shop:old"}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: nodes, namespace: bank}, roleRef: {kind: ClusterRole, name: metrics}, subjects: [{kind: User, name: jane}]}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}}
---
{apiVersion: v1, kind: Node, metadata: {name: node-1}}
---
{apiVersion: v1, kind: Secret, metadata: {name: tls, namespace: shop}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: shop}}`

// ruled is a Reader over the policies for a user.
func ruled(t *testing.T, who string, groups []string, denied ...string) Reader {
	t.Helper()
	var all []runtime.Object
	for doc := range strings.SplitSeq(policies, "\n---\n") {
		data, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
		if err != nil {
			t.Fatalf("%v in %s", err, doc)
		}
		all = append(all, o)
	}
	r := shelf{all, denied}.reader()
	r.Self = func(namespace string) (user.Info, Own, error) {
		said := authorizationv1.SubjectRulesReviewStatus{
			ResourceRules:    []authorizationv1.ResourceRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}, {Verbs: []string{"delete"}, APIGroups: []string{""}, Resources: []string{"pods"}}},
			NonResourceRules: []authorizationv1.NonResourceRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/version"}}},
			Incomplete:       slices.Contains(groups, "webhook"),
		}
		return &user.DefaultInfo{Name: who, Groups: groups}, OwnOf(said, namespace), nil
	}
	return r
}

func remarks(t *testing.T, all []api.Finding) string {
	t.Helper()
	inCatalogue(t, &api.Why{Links: []api.WhyLink{{Name: "quota", State: api.WhyOK, Findings: all}}})
	var codes []string
	for _, f := range all {
		codes = append(codes, f.Code)
	}
	return strings.Join(codes, " ")
}

// Who can do something is told with where it holds, and by which binding and role.
func TestWhoCan(t *testing.T) {
	const masters = "group:system:masters by admins cluster-admin everywhere"
	for _, c := range []struct {
		name    string
		of      Deed
		want    []string
		remarks string
	}{
		{"one namespace", Deed{Verb: "list", Resource: "pods", Namespace: "shop"},
			[]string{masters, "group:dev by viewers view in shop", "user:jane by viewers view in shop"}, "mastersMay"},
		{"another namespace", Deed{Verb: "list", Resource: "pods", Namespace: "bank"}, []string{masters}, "mastersMay"},
		{"anywhere", Deed{Verb: "get", Group: "apps", Resource: "deployments"},
			[]string{masters, "group:dev by viewers view in shop", "user:jane by viewers view in shop"}, "mastersMay"},
		{"another group", Deed{Verb: "get", Group: "extensions", Resource: "deployments"}, []string{masters}, "mastersMay"},
		{"of a subresource", Deed{Verb: "get", Resource: "pods/log", Namespace: "shop"},
			[]string{masters, "group:dev by viewers view in shop", "user:jane by viewers view in shop"}, "mastersMay"},
		{"of any kind's subresource", Deed{Verb: "update", Group: "apps", Resource: "deployments/scale", Namespace: "shop"},
			[]string{masters, "sa:shop:old by key key in shop", "sa:shop:web by key key in shop"}, "mastersMay"},
		{"what is in no namespace", Deed{Verb: "list", Resource: "nodes"},
			[]string{masters, "sa:watch:prometheus by scrape metrics everywhere"}, "mastersMay"},
		{"some names", Deed{Verb: "get", Resource: "secrets", Namespace: "shop"},
			[]string{masters, "sa:shop:old by key key in shop only db,tls", "sa:shop:web by key key in shop only db,tls"}, "mastersMay nodesMay"},
		{"one of the names", Deed{Verb: "get", Resource: "secrets", Namespace: "shop", Name: "tls"},
			[]string{masters, "sa:shop:old by key key in shop", "sa:shop:web by key key in shop"}, "mastersMay nodesMay"},
		{"another name", Deed{Verb: "get", Resource: "secrets", Namespace: "shop", Name: "root"}, []string{masters}, "mastersMay nodesMay"},
		{"a path", Deed{Verb: "get", Resource: "/healthz/etcd"},
			[]string{masters, "sa:watch:prometheus by scrape metrics everywhere"}, "mastersMay"},
		{"all verbs", Deed{Verb: "*", Resource: "pods"}, []string{masters}, "mastersMay"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := WhoCan(ruled(t, "ada", nil), c.of)
			if err != nil {
				t.Fatal(err)
			}
			var holders []string
			for _, h := range got.Holders {
				line := fmt.Sprintf("%s by %s %s", h.Subject, h.Binding.Name, h.Role.Name)
				if h.Namespace == "" {
					line += " everywhere"
				} else {
					line += " in " + h.Namespace
				}
				if len(h.Names) > 0 {
					line += " only " + strings.Join(h.Names, ",")
				}
				holders = append(holders, line)
			}
			if !slices.Equal(holders, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(holders, "\n"), strings.Join(c.want, "\n"))
			}
			if got := remarks(t, got.Remarks); got != c.remarks {
				t.Errorf("remarks %q, want %q", got, c.remarks)
			}
		})
	}
}

// What somebody may do is told by kind, with the bindings that say it.
func TestRights(t *testing.T) {
	for _, c := range []struct {
		name, of, namespace string
		me                  string
		groups, denied      []string
		want                string
		remarks             string
	}{
		{name: "a user in a namespace", of: "u:jane", namespace: "shop", want: `
pods: get list watch (viewers)
pods/log: get list watch (viewers)
deployments.apps: get list watch (viewers)`, remarks: "groupsUnknown"},
		{name: "a user in no namespace", of: "u:jane", want: `
pods: some get list watch (viewers)
pods/log: some get list watch (viewers)
deployments.apps: some get list watch (viewers)`, remarks: "groupsUnknown"},
		{name: "an account that is named as a user", of: "s:shop:old", namespace: "shop", want: `
secrets: some get (key)
*/scale.*: update (key)`},
		{name: "an account of another namespace", of: "sa:watch:prometheus", namespace: "shop", want: `
nodes: list (scrape)
/healthz/*: get (scrape)
/metrics: get (scrape)`},
		{name: "a node", of: "u:system:node:n1", want: `
secrets: some get ()`, remarks: "groupsUnknown nodesPass"},
		{name: "oneself", me: "jane", groups: []string{"system:authenticated", "webhook"}, namespace: "shop", want: `
pods: get list watch delete (viewers )
pods/log: get list watch (viewers)
deployments.apps: get list watch (viewers)
/version: get ()`, remarks: "othersMayDecide"},
		{name: "oneself, without reading roles", me: "jane", groups: []string{"system:authenticated"}, namespace: "shop", denied: []string{"clusterroles"}, want: `
pods: get delete ()
/version: get ()`, remarks: "originsUnread"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := askRights(ruled(t, c.me, c.groups, c.denied...), url.Values{"of": {map[bool]string{true: "me"}[c.me != ""] + c.of}, "namespace": {c.namespace}})
			if err != nil {
				t.Fatal(err)
			}
			rights := got.(*api.Rights)
			if text := summary(rights); text != strings.TrimSpace(c.want) {
				t.Errorf("got\n%s\nwant%s", text, c.want)
			}
			if got := remarks(t, rights.Remarks); got != c.remarks {
				t.Errorf("remarks %q, want %q", got, c.remarks)
			}
		})
	}
}

func summary(r *api.Rights) string {
	var out []string
	for _, k := range r.Kinds {
		if len(k.All)+len(k.Some) == 0 {
			continue
		}
		name := k.Resource
		if k.Group != "" {
			name += "." + k.Group
		}
		line := name + ":"
		if len(k.All) > 0 {
			line += " " + strings.Join(k.All, " ")
		}
		if len(k.Some) > 0 {
			line += " some " + strings.Join(k.Some, " ")
		}
		var from []string
		for _, i := range k.Rules {
			name := ""
			if b := r.Rules[i].Binding; b != nil {
				name = b.Name
			}
			from = append(from, name)
		}
		out = append(out, line+" ("+strings.Join(slices.Compact(from), " ")+")")
	}
	return strings.Join(out, "\n")
}

// system:masters is over all bindings.
func TestRightsOfMasters(t *testing.T) {
	got, err := Rights(ruled(t, "root", []string{"system:masters"}, "clusterrolebindings"), nil, "shop")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range got.Kinds {
		if len(k.Some) > 0 || !slices.Contains(k.All, "delete") && !strings.HasPrefix(k.Resource, "/") {
			t.Errorf("%+v", k)
		}
	}
	if got := remarks(t, got.Remarks); got != "originsUnread mastersPass" {
		t.Errorf("remarks %q", got)
	}
}

func TestSubjects(t *testing.T) {
	got, err := Subjects(ruled(t, "ada", nil), "")
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, s := range got.Items {
		text = append(text, fmt.Sprintf("%s %d", s.Subject, s.Bindings))
	}
	if got := strings.Join(text, ", "); got != "group:dev 1, group:system:authenticated 1, group:system:masters 1, sa:shop:old 1, sa:shop:web 1, sa:watch:prometheus 1, user:jane 2" {
		t.Error(got)
	}
}

// Who may not read all that it takes is refused, and told what is missing.
func TestRightsRefused(t *testing.T) {
	for _, denied := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		for _, q := range []string{"verb=get&resource=pods", "of=user:jane", ""} {
			query, _ := url.ParseQuery(q)
			_, err := askRights(ruled(t, "ada", nil, denied), query)
			if q == "" && strings.HasSuffix(denied, "roles") { // the bindings will do
				continue
			}
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), denied) {
				t.Errorf("without %s, %q: %v", denied, q, err)
			}
		}
	}
	for _, q := range []string{"verb=get", "resource=pods", "of=jane", "of=sa:shop"} {
		query, _ := url.ParseQuery(q)
		if _, err := askRights(ruled(t, "ada", nil), query); !apierrors.IsBadRequest(err) {
			t.Errorf("%s: %v", q, err)
		}
	}
}
