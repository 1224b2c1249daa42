package registry

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"

	"orrery.dev/api"
)

func admissionregistrationKinds() []*Kind {
	gv := admissionv1.SchemeGroupVersion
	in := []string{"api-extensions"}
	policy := halves[admissionv1.ValidatingAdmissionPolicy]{counted: true}
	return []*Kind{
		kind[admissionv1.MutatingAdmissionPolicy, admissionv1.MutatingAdmissionPolicyList]{
			Plural: "mutatingadmissionpolicies", Cluster: true, In: in, NeedsRevision: true,
			Columns: policyColumns("Mutations", "How many changes."), Row: mutatingPolicyRow,
			Default:  api.DefaultMutatingPolicy,
			Validate: validateMutatingPolicy,
			Prepare:  counted[admissionv1.MutatingAdmissionPolicy](),
		}.erase(gv),
		kind[admissionv1.MutatingAdmissionPolicyBinding, admissionv1.MutatingAdmissionPolicyBindingList]{
			Plural: "mutatingadmissionpolicybindings", Cluster: true, In: in, NeedsRevision: true,
			Columns: policyBindingColumns(), Row: mutatingBindingRow,
			Default:  api.DefaultMutatingPolicyBinding,
			Validate: api.ValidateMutatingPolicyBinding,
			Prepare:  counted[admissionv1.MutatingAdmissionPolicyBinding](),
		}.erase(gv),
		kind[admissionv1.MutatingWebhookConfiguration, admissionv1.MutatingWebhookConfigurationList]{
			Plural: "mutatingwebhookconfigurations", Cluster: true, In: in, NeedsRevision: true,
			Validate: validateMutatingWebhooks,
			Columns:  webhookColumns(), Row: mutatingWebhooksRow,
			Default: api.DefaultMutatingWebhooks,
			Prepare: halves[admissionv1.MutatingWebhookConfiguration]{spec: "Webhooks", counted: true, exactly: true}.prepare,
		}.erase(gv),
		kind[admissionv1.ValidatingAdmissionPolicy, admissionv1.ValidatingAdmissionPolicyList]{
			Plural: "validatingadmissionpolicies", Cluster: true, In: in, NeedsRevision: true,
			Columns: policyColumns("Validations", "How many checks."), Row: validatingPolicyRow,
			Default:  api.DefaultValidatingPolicy,
			Validate: validateValidatingPolicy,
			Prepare:  policy.prepare,
			Sub:      Sub{"status": policy.pure(api.ValidateValidatingPolicyStatus)},
		}.erase(gv),
		kind[admissionv1.ValidatingAdmissionPolicyBinding, admissionv1.ValidatingAdmissionPolicyBindingList]{
			Plural: "validatingadmissionpolicybindings", Cluster: true, In: in, NeedsRevision: true,
			Columns: policyBindingColumns(), Row: validatingBindingRow,
			Default:  api.DefaultValidatingPolicyBinding,
			Validate: api.ValidateValidatingPolicyBinding,
			Prepare:  counted[admissionv1.ValidatingAdmissionPolicyBinding](),
		}.erase(gv),
		kind[admissionv1.ValidatingWebhookConfiguration, admissionv1.ValidatingWebhookConfigurationList]{
			Plural: "validatingwebhookconfigurations", Cluster: true, In: in, NeedsRevision: true,
			Validate: validateValidatingWebhooks,
			Columns:  webhookColumns(), Row: validatingWebhooksRow,
			Default: api.DefaultValidatingWebhooks,
			Prepare: halves[admissionv1.ValidatingWebhookConfiguration]{spec: "Webhooks", counted: true, exactly: true}.prepare,
		}.erase(gv),
	}
}
