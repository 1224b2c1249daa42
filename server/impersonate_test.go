package server

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestImpersonationModes: what rights let whom act as whom.
func TestImpersonationModes(t *testing.T) {
	ann := &user.DefaultInfo{Name: "ann"}
	agent := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:agent", Extra: map[string][]string{"authentication.kubernetes.io/node-name": {"n1"}}}
	for _, c := range []struct {
		name    string
		by      user.Info
		headers string // name=value, ...
		rights  string // verb group/resource/name, ...
		want    string // who groups constraint, or the refusal
	}{
		{"nobody asked for", ann, "", "", "<nil>"},
		{"a group without a user", ann, "Group=ops", "", "without impersonating a user name"},
		{"the oldest right", ann, "User=bob", "impersonate /users/bob", "bob [system:authenticated] "},
		{"no right", ann, "User=bob", "", `pods is forbidden: User "ann" cannot impersonate-on:user-info:list resource "pods" in API group "" at the cluster scope`},
		{"half of the constrained right", ann, "User=bob", "impersonate-on:user-info:list /pods/", `users.authentication.k8s.io "bob" is forbidden: User "ann" cannot impersonate:user-info resource "users" in API group "authentication.k8s.io" at the cluster scope`},
		{"the constrained right", ann, "User=bob", "impersonate-on:user-info:list /pods/, impersonate:user-info authentication.k8s.io/users/bob", "bob [system:authenticated] impersonate:user-info"},
		{"with a group", ann, "User=bob,Group=ops", "impersonate /users/bob, impersonate /groups/ops", "bob [ops system:authenticated] "},
		{"with a group that is refused", ann, "User=bob,Group=ops", "impersonate /users/bob", "forbidden"},
		{"masters by the constrained right", ann, "User=bob,Group=system:masters", "impersonate-on:user-info:list /pods/, impersonate:user-info authentication.k8s.io/users/bob, impersonate:user-info authentication.k8s.io/groups/system:masters", "impersonating the system:masters group is not allowed"},
		{"with a uid and an extra field", ann, "User=bob,Uid=u1,Extra-Scope=s", "impersonate /users/bob, impersonate authentication.k8s.io/uids/u1, impersonate authentication.k8s.io/userextras/s", "bob [system:authenticated] "},
		{"a service account", ann, "User=system:serviceaccount:a:b", "impersonate /serviceaccounts/b", "system:serviceaccount:a:b [system:serviceaccounts system:serviceaccounts:a system:authenticated] "},
		{"a service account, constrained", ann, "User=system:serviceaccount:a:b", "impersonate-on:serviceaccount:list /pods/, impersonate:serviceaccount authentication.k8s.io/serviceaccounts/b", "system:serviceaccount:a:b [system:serviceaccounts system:serviceaccounts:a system:authenticated] impersonate:serviceaccount"},
		{"anonymous", ann, "User=system:anonymous", "impersonate /users/system:anonymous", "system:anonymous [system:unauthenticated] "},
		{"one's own node", agent, "User=system:node:n1", "impersonate-on:associated-node:list /pods/, impersonate:associated-node authentication.k8s.io/nodes/*", "system:node:n1 [system:nodes system:authenticated] impersonate:associated-node"},
		{"another node", agent, "User=system:node:n2", "impersonate-on:associated-node:list /pods/, impersonate:associated-node authentication.k8s.io/nodes/*", "forbidden"},
		{"any node", ann, "User=system:node:n2", "impersonate-on:arbitrary-node:list /pods/, impersonate:arbitrary-node authentication.k8s.io/nodes/n2", "system:node:n2 [system:nodes system:authenticated] impersonate:arbitrary-node"},
	} {
		header := http.Header{}
		for part := range strings.SplitSeq(c.headers, ",") {
			if name, value, ok := strings.Cut(part, "="); ok {
				header.Add("Impersonate-"+name, value)
			}
		}
		rights := strings.Split(c.rights, ", ")
		authz := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if slices.Contains(rights, a.GetVerb()+" "+a.GetAPIGroup()+"/"+a.GetResource()+"/"+a.GetName()) {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
		got := "<nil>"
		asked, err := impersonation(header)
		if err == nil && asked != nil {
			var as user.Info
			var constraint string
			request := &authorizer.AttributesRecord{User: c.by, Verb: "list", APIVersion: "v1", Resource: "pods", ResourceRequest: true}
			if as, constraint, err = new(modeMemory).choose(t.Context(), authz, asked, request); err == nil {
				got = as.GetName() + " [" + strings.Join(as.GetGroups(), " ") + "] " + constraint
			}
		}
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
		if err == nil && len(header) > 0 {
			t.Errorf("%s: headers left: %v", c.name, header)
		}
	}
}
