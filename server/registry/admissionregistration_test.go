package registry

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"orrery.dev/api"
)

func TestWebhookValidation(t *testing.T) {
	type hook = admissionv1.ValidatingWebhook
	for _, c := range []struct {
		name string
		spec func(*hook)
		want string // a part of the complaint
	}{
		{"fine", func(*hook) {}, ""},
		{"condition does not compile", func(h *hook) { h.MatchConditions[0].Expression = "... [] bad expression" }, "webhooks[0].matchConditions[0].expression: Invalid value: \"... [] bad expression\": compilation failed"},
		{"condition is not a bool", func(h *hook) { h.MatchConditions[0].Expression = "'x'" }, "must evaluate to bool"},
		{"condition without a name", func(h *hook) { h.MatchConditions[0].Name = "" }, "webhooks[0].matchConditions[0].name: Required value"},
		{"two conditions of one name", func(h *hook) { h.MatchConditions = append(h.MatchConditions, h.MatchConditions[0]) }, `webhooks[0].matchConditions[1].name: Duplicate value: "x"`},
		{"operation", func(h *hook) { h.Rules[0].Operations = []admissionv1.OperationType{"READ"} }, `webhooks[0].rules[0].operations[0]: Unsupported value: "READ": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`},
		{"resources", func(h *hook) { h.Rules[0].Resources = []string{"pods/*", "pods/log"} }, `webhooks[0].rules[0].resources[1]: Invalid value: "pods/log": if 'pods/*' is present, must not specify pods/log`},
		{"versions", func(h *hook) { h.AdmissionReviewVersions = []string{"v2"} }, "webhooks[0].admissionReviewVersions: Invalid value: [\"v2\"]: must include at least one of v1, v1beta1"},
		{"path", func(h *hook) { h.ClientConfig.Service.Path = ptr.To("a//b") }, `webhooks[0].clientConfig.service.path: Invalid value: "a//b": must start with a '/'`},
	} {
		t.Run(c.name, func(t *testing.T) {
			config := &admissionv1.ValidatingWebhookConfiguration{Webhooks: []hook{{
				Name: "a.example.com", SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				ClientConfig:    admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "ns", Name: "s"}},
				MatchConditions: []admissionv1.MatchCondition{{Name: "x", Expression: "request.operation == 'CREATE'"}},
				Rules: []admissionv1.RuleWithOperations{{
					Operations: []admissionv1.OperationType{"CREATE"}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}},
			}}}
			api.DefaultValidatingWebhooks(config)
			old := config.DeepCopy()
			c.spec(&config.Webhooks[0])
			wantComplaint(t, validateValidatingWebhooks(config, nil).ToAggregate(), c.want)
			wantComplaint(t, validateValidatingWebhooks(config, old).ToAggregate(), c.want)
			if strings.Contains(c.name, "condition") {
				// What was let in once must not keep the rest from being changed.
				wantComplaint(t, validateValidatingWebhooks(config, config).ToAggregate(), "")
			}
		})
	}
}

func wantComplaint(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil && want == "":
	case err == nil || want == "" || !strings.Contains(err.Error(), want):
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestPolicyValidation(t *testing.T) {
	type spec = admissionv1.MutatingAdmissionPolicySpec
	apply := func(text string) []admissionv1.Mutation {
		return []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionv1.ApplyConfiguration{Expression: text}}}
	}
	for _, c := range []struct {
		name string
		spec func(*spec)
		want string
	}{
		{"fine", func(*spec) {}, ""},
		{"variable", func(p *spec) {
			p.Variables = []admissionv1.Variable{{Name: "n", Expression: "object.spec.replicas"}}
			p.Mutations = apply("Object{spec: Object.spec{replicas: variables.n}}")
		}, ""},
		{"unknown variable", func(p *spec) { p.Mutations = apply("Object{spec: Object.spec{replicas: variables.n}}") }, "undefined field 'n'"},
		{"wrong type", func(p *spec) { p.Mutations = apply("1") }, "spec.mutations[0].applyConfiguration.expression: Invalid value: \"1\": must evaluate to Object"},
		{"params", func(p *spec) { p.Mutations = apply("Object{spec: Object.spec{replicas: params.n}}") }, "undeclared reference to 'params'"},
		{"delete", func(p *spec) { p.MatchConstraints.ResourceRules[0].Operations[0] = "DELETE" }, `spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"`},
		{"form", func(p *spec) { p.Mutations[0].PatchType = admissionv1.PatchTypeJSONPatch }, "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch"},
		{"nothing", func(p *spec) { p.Mutations = nil }, "spec.mutations: Required value: mutations must contain at least one item"},
		{"again", func(p *spec) { p.ReinvocationPolicy = "" }, "spec.reinvocationPolicy: Required value"},
		{"no rules", func(p *spec) { p.MatchConstraints.ResourceRules = nil }, "spec.matchConstraints.resourceRules: Required value"},
	} {
		t.Run(c.name, func(t *testing.T) {
			policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec{
				Mutations: apply("Object{spec: Object.spec{replicas: 1}}"), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
				MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{"CREATE"}, Rule: admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
				}}}},
			}}
			api.DefaultMutatingPolicy(policy)
			c.spec(&policy.Spec)
			wantComplaint(t, validateMutatingPolicy(policy, nil).ToAggregate(), c.want)
		})
	}
}
