package admission

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"orrery.dev/server/registry"
)

type mutatingPolicySpec = admissionregistrationv1.MutatingAdmissionPolicySpec
type mutatingBindingSpec = admissionregistrationv1.MutatingAdmissionPolicyBindingSpec

func applied(expression string) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: expression}}
}

func patched(expression string) admissionregistrationv1.Mutation {
	return admissionregistrationv1.Mutation{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: expression}}
}

func anyDeployment() *admissionregistrationv1.MatchResources {
	return &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
	}}}}
}

func policyStore(policies ...*admissionregistrationv1.MutatingAdmissionPolicy) *fakeStore {
	group := admissionregistrationv1.GroupName
	store := newFakeStore().with(core("namespaces"), &corev1.Namespace{ObjectMeta: named("", "ns")}).
		with(core("configmaps"), &corev1.ConfigMap{ObjectMeta: named("ns", "params"), Data: map[string]string{"team": "blue"}})
	for _, p := range policies {
		store.with(schema.GroupResource{Group: group, Resource: "mutatingadmissionpolicies"}, p)
		store.with(schema.GroupResource{Group: group, Resource: "mutatingadmissionpolicybindings"},
			&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: named("", "b-"+p.Name), Spec: mutatingBindingSpec{PolicyName: p.Name}})
	}
	return store
}

func newTestPolicies(store *fakeStore) *policies {
	types := applyconfigurations.NewTypeConverter(scheme.Scheme)
	authz := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	})
	return newPolicies(newWebhooks(store, registry.NewBuiltinTable(), authz), func(*registry.Kind) (managedfields.TypeConverter, error) { return types, nil })
}

func deploymentRequest() (*appsv1.Deployment, *Request) {
	d := &appsv1.Deployment{ObjectMeta: named("ns", "d"), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
		Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Args: []string{"x"}}}}},
	}}
	r := request(Create, "deployments", d, nil)
	r.Resource.Group = "apps"
	r.Kind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	return d, r
}

func TestMutatingPolicy(t *testing.T) {
	const refused = "policy 'p' with binding 'b-p' denied request: "
	for _, c := range []struct {
		name     string
		spec     func(*mutatingPolicySpec, *mutatingBindingSpec)
		replicas int32
		owner    string // an annotation
		want     string
	}{
		{"applied", func(*mutatingPolicySpec, *mutatingBindingSpec) {}, 7, "", ""},
		{"annotation", func(p *mutatingPolicySpec, _ *mutatingBindingSpec) {
			p.Mutations[0] = applied(`Object{metadata: Object.metadata{annotations: {"owner": "ann"}}}`)
		}, 1, "ann", ""},
		{"patched", func(p *mutatingPolicySpec, _ *mutatingBindingSpec) {
			p.Mutations[0] = patched(`[JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas + 4}]`)
		}, 5, "", ""},
		{"tested in vain", func(p *mutatingPolicySpec, _ *mutatingBindingSpec) {
			p.Mutations[0] = patched(`[JSONPatch{op: "test", path: "/spec/replicas", value: 9}, JSONPatch{op: "remove", path: "/spec/replicas"}]`)
		}, 1, "", ""},
		{"patched with an object", func(p *mutatingPolicySpec, _ *mutatingBindingSpec) {
			p.Mutations[0] = patched(`[JSONPatch{op: "add", path: "/metadata/annotations", value: {"owner": "eve"}}]`)
		}, 1, "eve", ""},
		{"one after the other", func(p *mutatingPolicySpec, _ *mutatingBindingSpec) {
			p.Mutations = append(p.Mutations, patched(`[JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas * 2}]`))
		}, 14, "", ""},
		{"variable", func(p *mutatingPolicySpec, _ *mutatingBindingSpec) {
			p.Variables = []admissionregistrationv1.Variable{{Name: "n", Expression: "object.spec.replicas + 1"}}
			p.Mutations[0] = applied("Object{spec: Object.spec{replicas: variables.n}}")
		}, 2, "", ""},
		{"parameters", func(p *mutatingPolicySpec, b *mutatingBindingSpec) {
			p.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			p.Mutations[0] = applied(`Object{metadata: Object.metadata{annotations: {"owner": params.data.team}}}`)
			b.ParamRef = &admissionregistrationv1.ParamRef{Name: "params", ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)}
		}, 1, "blue", ""},
		{"no parameters", func(p *mutatingPolicySpec, b *mutatingBindingSpec) {
			p.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			b.ParamRef = &admissionregistrationv1.ParamRef{Name: "gone", ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)}
		}, 1, "", refused + "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"},
		{"condition", func(p *mutatingPolicySpec, _ *mutatingBindingSpec) {
			p.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "x", Expression: "object.spec.replicas > 1"}}
		}, 1, "", ""},
		{"another resource", func(p *mutatingPolicySpec, _ *mutatingBindingSpec) {
			p.MatchConstraints.ResourceRules[0].Resources = []string{"statefulsets"}
		}, 1, "", ""},
		{"error", func(p *mutatingPolicySpec, _ *mutatingBindingSpec) {
			p.Mutations[0] = applied("Object{spec: Object.spec{replicas: object.spec.nope}}")
		}, 1, "", refused + "expression 'Object{spec: Object.spec{replicas: object.spec.nope}}' resulted in error: no such key: nope"},
		{"error ignored", func(p *mutatingPolicySpec, _ *mutatingBindingSpec) {
			p.Mutations[0], p.FailurePolicy = applied("Object{spec: Object.spec{replicas: object.spec.nope}}"), ptr.To(admissionregistrationv1.Ignore)
		}, 1, "", ""},
		{"atomic", func(p *mutatingPolicySpec, _ *mutatingBindingSpec) {
			p.Mutations[0] = applied(`Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: [Object.spec.template.spec.containers{name: "c", args: ["y"]}]}}}}`)
		}, 1, "", refused + "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.template.spec.containers[0].args"},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: named("", "p"), Spec: mutatingPolicySpec{
				MatchConstraints: anyDeployment(), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
				Mutations: []admissionregistrationv1.Mutation{applied("Object{spec: Object.spec{replicas: 7}}")},
			}}
			store := policyStore(policy)
			bindings, _ := store.List(t.Context(), schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicybindings"}, "")
			c.spec(&policy.Spec, &bindings[0].(*admissionregistrationv1.MutatingAdmissionPolicyBinding).Spec)
			d, r := deploymentRequest()
			wantError(t, run(t, newTestPolicies(store).mutating(), r), c.want)
			if *d.Spec.Replicas != c.replicas || d.Annotations["owner"] != c.owner {
				t.Errorf("%d replicas, owner %q", *d.Spec.Replicas, d.Annotations["owner"])
			}
			if d.Spec.Template.Spec.Containers[0].Args[0] != "x" {
				t.Error("the rest of the object has changed")
			}
		})
	}
}

// A policy that asks for it sees what later ones made of the object; one that
// doesn't, doesn't.
func TestMutatingPolicyRunsAgain(t *testing.T) {
	for again, want := range map[admissionregistrationv1.ReinvocationPolicyType]string{
		admissionregistrationv1.IfNeededReinvocationPolicy: "20", admissionregistrationv1.NeverReinvocationPolicy: "1",
	} {
		note := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1"}, Spec: mutatingPolicySpec{
			MatchConstraints: anyDeployment(), ReinvocationPolicy: again,
			Mutations: []admissionregistrationv1.Mutation{applied(`Object{metadata: Object.metadata{annotations: {"owner": string(object.spec.replicas)}}}`)},
		}}
		scale := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "2"}, Spec: mutatingPolicySpec{
			MatchConstraints: anyDeployment(), ReinvocationPolicy: again,
			Mutations: []admissionregistrationv1.Mutation{applied(`Object{spec: Object.spec{replicas: object.spec.replicas < 20 ? 20 : object.spec.replicas}}`)},
		}}
		d, r := deploymentRequest()
		wantError(t, run(t, newTestPolicies(policyStore(note, scale)).mutating(), r), "")
		if got := d.Annotations["owner"]; got != want {
			t.Errorf("%s: noted %s, want %s", again, got, want)
		}
	}
}
