package admission

import (
	"context"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/registry"
)

func TestParamRights(t *testing.T) {
	policy := func(kind string) *admissionregistrationv1.ValidatingAdmissionPolicy {
		p := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("", "p")}
		if kind != "" {
			p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: kind}
		}
		return p
	}
	binding := func(policy, namespace, name string) *admissionregistrationv1.MutatingAdmissionPolicyBinding {
		b := &admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: named("", "b")}
		b.Spec.PolicyName = policy
		b.Spec.ParamRef = &admissionregistrationv1.ParamRef{Namespace: namespace, Name: name}
		return b
	}
	mutating := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: named("", "m")}
	mutating.Spec.ParamKind = policy("ConfigMap").Spec.ParamKind
	store := newFakeStore().with(schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicies"}, mutating)
	const mustRead = `spec.paramKind: Forbidden: user &{ann  [] map[]} must have "get" permission on all objects of the referenced paramKind (kind=%, apiVersion=v1)`
	for name, c := range map[string]struct {
		obj, old runtime.Object
		right    string // that ann has
		want     string // the end of the refusal
	}{
		"without":             {policy(""), nil, "", ""},
		"may not read":        {policy("ConfigMap"), nil, "get ns / configmaps c", strings.Replace(mustRead, "%", "ConfigMap", 1)},
		"may read":            {policy("ConfigMap"), nil, "get * / configmaps *", ""},
		"unknown kind":        {policy("Thing"), nil, "get * / configmaps *", strings.Replace(mustRead, "%", "Thing", 1)},
		"all of the group":    {policy("Thing"), nil, "get * / * *", ""},
		"unchanged":           {policy("ConfigMap"), policy("ConfigMap"), "", ""},
		"another kind":        {policy("ConfigMap"), policy("Secret"), "", strings.Replace(mustRead, "%", "ConfigMap", 1)},
		"binding":             {binding("m", "ns", "c"), nil, "", `spec.paramRef: Forbidden: user &{ann  [] map[]} does not have "get" permission on the object referenced by paramRef`},
		"binding, may":        {binding("m", "ns", "c"), nil, "get ns / configmaps c", ""},
		"binding by selector": {binding("m", "ns", ""), nil, "get ns / configmaps c", `user &{ann  [] map[]} does not have "list" permission on the object referenced by paramRef`},
		"binding of nothing":  {binding("x", "ns", "c"), nil, "get ns / configmaps c", `unable to get policy x to determine minimum required permissions and user &{ann  [] map[]} does not have "get" permission for all groups, versions and resources`},
		"binding unchanged":   {binding("m", "ns", "c"), binding("m", "ns", "c"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			authz := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if strings.Join([]string{a.GetVerb(), a.GetNamespace(), a.GetAPIGroup() + "/", a.GetResource(), a.GetName()}, " ") == c.right {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
			op := Create
			if c.old != nil {
				op = Update
			}
			r := request(op, "x", c.obj, c.old)
			r.Resource.Group = admissionregistrationv1.GroupName
			err := run(t, paramRights(store, registry.NewBuiltinTable(), authz), r)
			if c.want == "" {
				wantError(t, err, "")
			} else if err == nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
			r.by("root", "system:masters")
			wantError(t, run(t, paramRights(store, registry.NewBuiltinTable(), authz), r), "")
		})
	}
}
