package api

import (
	"fmt"
	"net/url"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateFlowSchema names the faults of a FlowSchema.
func ValidateFlowSchema(f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	at := specPath()
	var errs field.ErrorList
	if f.Spec.MatchingPrecedence <= 0 {
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), f.Spec.MatchingPrecedence, "must be a positive value"))
	}
	if f.Spec.MatchingPrecedence > flowcontrolv1.FlowSchemaMaxMatchingPrecedence {
		errs = append(errs, field.Invalid(at.Child("matchingPrecedence"), f.Spec.MatchingPrecedence, fmt.Sprintf("must not be greater than %v", flowcontrolv1.FlowSchemaMaxMatchingPrecedence)))
	}
	if f.Spec.PriorityLevelConfiguration.Name == "" {
		errs = append(errs, field.Required(at.Child("priorityLevelConfiguration", "name"), "must reference a priority level"))
	}
	if f.Spec.DistinguisherMethod != nil {
		errs = append(errs, oneOf(f.Spec.DistinguisherMethod.Type, at.Child("distinguisherMethod", "type"), flowcontrolv1.FlowDistinguisherMethodByUserType, flowcontrolv1.FlowDistinguisherMethodByNamespaceType)...)
	}
	for i, rule := range f.Spec.Rules {
		here := at.Child("rules").Index(i)
		if len(rule.Subjects) == 0 {
			errs = append(errs, field.Required(here.Child("subjects"), "subjects must contain at least one value"))
		}
		if len(rule.ResourceRules)+len(rule.NonResourceRules) == 0 {
			errs = append(errs, field.Required(here, "at least one of resourceRules and nonResourceRules has to be non-empty"))
		}
	}
	return errs
}

// ValidatePriorityLevel names the faults of a PriorityLevelConfiguration.
func ValidatePriorityLevel(l, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	at := specPath()
	errs := oneOf(l.Spec.Type, at.Child("type"), flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)
	switch l.Spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if l.Spec.Limited != nil {
			errs = append(errs, field.Forbidden(at.Child("limited"), "must be nil if the type is not Limited"))
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if l.Spec.Limited == nil {
			return append(errs, field.Required(at.Child("limited"), "must not be empty when type is Limited"))
		}
		errs = append(errs, oneOf(l.Spec.Limited.LimitResponse.Type, at.Child("limited", "limitResponse", "type"), flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)...)
	}
	return errs
}

// ValidateMutatingWebhooks names the faults of a MutatingWebhookConfiguration.
func ValidateMutatingWebhooks(c, _ *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range c.Webhooks {
		w, at := &c.Webhooks[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, validWebhook(webhook{w.Name, w.SideEffects, w.TimeoutSeconds, w.FailurePolicy, w.MatchPolicy, w.ClientConfig, w.AdmissionReviewVersions}, w.Rules, seen, at)...)
		errs = append(errs, oneOfIfSet(w.ReinvocationPolicy, at.Child("reinvocationPolicy"), admissionv1.NeverReinvocationPolicy, admissionv1.IfNeededReinvocationPolicy)...)
	}
	return errs
}

// ValidateValidatingWebhooks names the faults of a ValidatingWebhookConfiguration.
func ValidateValidatingWebhooks(c, _ *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range c.Webhooks {
		w, at := &c.Webhooks[i], field.NewPath("webhooks").Index(i)
		errs = append(errs, validWebhook(webhook{w.Name, w.SideEffects, w.TimeoutSeconds, w.FailurePolicy, w.MatchPolicy, w.ClientConfig, w.AdmissionReviewVersions}, w.Rules, seen, at)...)
	}
	return errs
}

// webhook is what mutating and validating webhooks have in common.
type webhook struct {
	name        string
	sideEffects *admissionv1.SideEffectClass
	timeout     *int32
	failure     *admissionv1.FailurePolicyType
	match       *admissionv1.MatchPolicyType
	client      admissionv1.WebhookClientConfig
	versions    []string
}

func validWebhook(w webhook, rules []admissionv1.RuleWithOperations, seen map[string]bool, at *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(at.Child("name"), w.name)
	if seen[w.name] {
		errs = append(errs, field.Duplicate(at.Child("name"), w.name))
	}
	seen[w.name] = true
	if w.sideEffects == nil {
		errs = append(errs, field.Required(at.Child("sideEffects"), "must specify one of None, NoneOnDryRun"))
	} else {
		errs = append(errs, oneOf(*w.sideEffects, at.Child("sideEffects"), admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun)...)
	}
	if w.timeout != nil && (*w.timeout < 1 || *w.timeout > 30) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *w.timeout, "the timeout value must be between 1 and 30 seconds"))
	}
	errs = append(errs, oneOfIfSet(w.failure, at.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)...)
	errs = append(errs, oneOfIfSet(w.match, at.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)...)
	if !slices.Contains(w.versions, "v1") && !slices.Contains(w.versions, "v1beta1") {
		errs = append(errs, field.Invalid(at.Child("admissionReviewVersions"), w.versions, "must include at least one of v1, v1beta1"))
	}
	if (w.client.URL == nil) == (w.client.Service == nil) {
		errs = append(errs, field.Required(at.Child("clientConfig"), "exactly one of url or service is required"))
	}
	if w.client.URL != nil {
		errs = append(errs, validWebhookURL(*w.client.URL, at.Child("clientConfig", "url"))...)
	}
	if s := w.client.Service; s != nil {
		errs = append(errs, required(s.Name, at.Child("clientConfig", "service", "name"))...)
		errs = append(errs, required(s.Namespace, at.Child("clientConfig", "service", "namespace"))...)
	}
	for i, r := range rules {
		here := at.Child("rules").Index(i)
		for name, list := range map[string][]string{"apiGroups": r.APIGroups, "apiVersions": r.APIVersions, "resources": r.Resources} {
			if len(list) == 0 {
				errs = append(errs, field.Required(here.Child(name), ""))
			}
		}
		if len(r.Operations) == 0 {
			errs = append(errs, field.Required(here.Child("operations"), ""))
		}
	}
	return errs
}

func validWebhookURL(raw string, at *field.Path) field.ErrorList {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return field.ErrorList{field.Required(at, "url must be a valid URL: "+err.Error()+"; desired format: https://host[/path]")}
	case u.Scheme != "https":
		return field.ErrorList{field.Invalid(at, u.Scheme, "'https' is the only allowed URL scheme; desired format: https://host[/path]")}
	case u.Host == "":
		return field.ErrorList{field.Invalid(at, u.Host, "host must be specified; desired format: https://host[/path]")}
	}
	return nil
}

// ValidateAPIService names the faults of an APIService.
func ValidateAPIService(a, _ *APIService) field.ErrorList {
	at := specPath()
	var errs field.ErrorList
	if want := a.Spec.Version + "." + a.Spec.Group; a.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), a.Name, fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", want)))
	}
	if a.Spec.Group != "" {
		errs = append(errs, invalid(at.Child("group"), a.Spec.Group, validation.IsDNS1123Subdomain(a.Spec.Group))...)
	}
	errs = append(errs, invalid(at.Child("version"), a.Spec.Version, validation.IsDNS1035Label(a.Spec.Version))...)
	if p := a.Spec.GroupPriorityMinimum; p <= 0 || p > 20000 {
		errs = append(errs, field.Invalid(at.Child("groupPriorityMinimum"), p, "must be positive and less than 20000"))
	}
	if p := a.Spec.VersionPriority; p <= 0 || p > 1000 {
		errs = append(errs, field.Invalid(at.Child("versionPriority"), p, "must be positive and less than 1000"))
	}
	if s := a.Spec.Service; s != nil {
		errs = append(errs, required(s.Name, at.Child("service", "name"))...)
		errs = append(errs, required(s.Namespace, at.Child("service", "namespace"))...)
		if a.Spec.InsecureSkipTLSVerify && len(a.Spec.CABundle) > 0 {
			errs = append(errs, field.Invalid(at.Child("insecureSkipTLSVerify"), a.Spec.InsecureSkipTLSVerify, "may not be true if caBundle is present"))
		}
	} else if len(a.Spec.CABundle) > 0 || a.Spec.InsecureSkipTLSVerify {
		errs = append(errs, field.Invalid(at.Child("caBundle"), "", "local APIServices may not have a caBundle"))
	}
	return errs
}
