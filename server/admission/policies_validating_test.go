package admission

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"orrery.dev/server/registry"
)

type policySpec = admissionregistrationv1.ValidatingAdmissionPolicySpec
type bindingSpec = admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec

func TestValidatingPolicy(t *testing.T) {
	const refused = `pods "p" is forbidden: ValidatingAdmissionPolicy 'policy' with binding 'binding' denied request: `
	for _, c := range []struct {
		name string
		spec func(*policySpec, *bindingSpec)
		want string
		code int32
	}{
		{"fulfilled", func(p *policySpec, _ *bindingSpec) { p.Validations[0].Expression = "object.metadata.name == 'p'" }, "", 0},
		{"not fulfilled", func(*policySpec, *bindingSpec) {}, refused + "failed expression: object.metadata.name == 'q'", 422},
		{"message and reason", func(p *policySpec, _ *bindingSpec) {
			p.Validations[0].Message, p.Validations[0].Reason = "name it q", ptr.To(metav1.StatusReasonForbidden)
		}, refused + "name it q", 403},
		{"message expression and variable", func(p *policySpec, _ *bindingSpec) {
			p.Variables = []admissionregistrationv1.Variable{{Name: "n", Expression: "object.metadata.name"}}
			p.Validations[0] = admissionregistrationv1.Validation{Expression: "variables.n == 'q'", MessageExpression: "'not ' + variables.n"}
		}, refused + "not p", 422},
		{"error", func(p *policySpec, _ *bindingSpec) { p.Validations[0].Expression = "object.nope == 1" }, refused + "expression 'object.nope == 1' resulted in error: no such key: nope", 422},
		{"error ignored", func(p *policySpec, _ *bindingSpec) {
			p.Validations[0].Expression, p.FailurePolicy = "object.nope == 1", ptr.To(admissionregistrationv1.Ignore)
		}, "", 0},
		{"warns only", func(_ *policySpec, b *bindingSpec) {
			b.ValidationActions = []admissionregistrationv1.ValidationAction{admissionregistrationv1.Warn}
		}, "", 0},
		{"condition", func(p *policySpec, _ *bindingSpec) {
			p.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "x", Expression: "request.operation == 'DELETE'"}}
		}, "", 0},
		{"namespace of the binding", func(_ *policySpec, b *bindingSpec) {
			b.MatchResources = &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}, "", 0},
		{"namespace object", func(p *policySpec, _ *bindingSpec) {
			p.Validations[0].Expression = "namespaceObject.metadata.name == 'ns'"
		}, "", 0},
		{"excluded", func(p *policySpec, _ *bindingSpec) {
			p.MatchConstraints.ExcludeResourceRules = p.MatchConstraints.ResourceRules
		}, "", 0},
		{"parameters", func(p *policySpec, b *bindingSpec) {
			p.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			p.Validations[0].Expression = "object.metadata.name == params.data.name"
			b.ParamRef = &admissionregistrationv1.ParamRef{Name: "params", ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)}
		}, refused + "failed expression: object.metadata.name == params.data.name", 422},
		{"no parameters", func(p *policySpec, b *bindingSpec) {
			p.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			b.ParamRef = &admissionregistrationv1.ParamRef{Name: "gone", ParameterNotFoundAction: ptr.To(admissionregistrationv1.DenyAction)}
		}, refused + "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction", 422},
		{"no parameters allowed", func(p *policySpec, b *bindingSpec) {
			p.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
			b.ParamRef = &admissionregistrationv1.ParamRef{Name: "gone", ParameterNotFoundAction: ptr.To(admissionregistrationv1.AllowAction)}
		}, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: named("", "policy"), Spec: policySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: anyPod()[0]}}},
				Validations:      []admissionregistrationv1.Validation{{Expression: "object.metadata.name == 'q'"}},
			}}
			binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named("", "binding"), Spec: bindingSpec{
				PolicyName: "policy", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			}}
			c.spec(&policy.Spec, &binding.Spec)
			group := admissionregistrationv1.GroupName
			store := newFakeStore().
				with(schema.GroupResource{Group: group, Resource: "validatingadmissionpolicies"}, policy).
				with(schema.GroupResource{Group: group, Resource: "validatingadmissionpolicybindings"}, binding).
				with(core("namespaces"), &corev1.Namespace{ObjectMeta: named("", "ns")}).
				with(core("configmaps"), &corev1.ConfigMap{ObjectMeta: named("ns", "params"), Data: map[string]string{"name": "other"}})
			authz := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				return authorizer.DecisionNoOpinion, "", nil
			})
			r := podRequest(newPod("p"))
			warned := 0
			r.Warn = func(string) { warned++ }
			err := run(t, newPolicies(newWebhooks(store, registry.NewBuiltinTable(), authz), nil).validating(), r)
			wantError(t, err, c.want)
			if status, ok := err.(interface{ Status() metav1.Status }); ok && status.Status().Code != c.code {
				t.Errorf("code %d, want %d", status.Status().Code, c.code)
			}
			if (c.name == "warns only") != (warned == 1) {
				t.Errorf("%d warnings", warned)
			}
		})
	}
}
