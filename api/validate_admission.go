package api

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/transport"
)

// What is wrong with the objects of admissionregistration.k8s.io, but for their
// expressions: those have to be compiled, which is the registry's business.

// ValidateMutatingWebhooks names the faults of a MutatingWebhookConfiguration.
func ValidateMutatingWebhooks(c, old *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
	var before []webhook
	if old != nil {
		for i := range old.Webhooks {
			before = append(before, mutatingWebhook(&old.Webhooks[i]))
		}
	}
	var errs field.ErrorList
	check := webhookCheck{lenientOn(before), map[string]bool{}}
	for i := range c.Webhooks {
		at := field.NewPath("webhooks").Index(i)
		errs = append(errs, check.webhook(mutatingWebhook(&c.Webhooks[i]), at)...)
		errs = append(errs, amongIfSet(c.Webhooks[i].ReinvocationPolicy, at.Child("reinvocationPolicy"), admissionv1.IfNeededReinvocationPolicy, admissionv1.NeverReinvocationPolicy)...)
	}
	return errs
}

// ValidateValidatingWebhooks names the faults of a ValidatingWebhookConfiguration.
func ValidateValidatingWebhooks(c, old *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
	var before []webhook
	if old != nil {
		for i := range old.Webhooks {
			before = append(before, validatingWebhook(&old.Webhooks[i]))
		}
	}
	var errs field.ErrorList
	check := webhookCheck{lenientOn(before), map[string]bool{}}
	for i := range c.Webhooks {
		errs = append(errs, check.webhook(validatingWebhook(&c.Webhooks[i]), field.NewPath("webhooks").Index(i))...)
	}
	return errs
}

// webhook is what mutating and validating webhooks have in common.
type webhook struct {
	name                string
	sideEffects         *admissionv1.SideEffectClass
	timeout             *int32
	failure             *admissionv1.FailurePolicyType
	match               *admissionv1.MatchPolicyType
	client              admissionv1.WebhookClientConfig
	versions            []string
	rules               []admissionv1.RuleWithOperations
	namespaces, objects *metav1.LabelSelector
}

func mutatingWebhook(w *admissionv1.MutatingWebhook) webhook {
	return webhook{w.Name, w.SideEffects, w.TimeoutSeconds, w.FailurePolicy, w.MatchPolicy, w.ClientConfig, w.AdmissionReviewVersions, w.Rules, w.NamespaceSelector, w.ObjectSelector}
}

func validatingWebhook(w *admissionv1.ValidatingWebhook) webhook {
	return webhook{w.Name, w.SideEffects, w.TimeoutSeconds, w.FailurePolicy, w.MatchPolicy, w.ClientConfig, w.AdmissionReviewVersions, w.Rules, w.NamespaceSelector, w.ObjectSelector}
}

// lenient is what may be wrong in a configuration because it was so before:
// rules that came later must not keep it from being changed.
type lenient struct {
	versions, sideEffects, names, selectors bool
}

func lenientOn(before []webhook) lenient {
	var l lenient
	seen := map[string]bool{}
	for _, w := range before {
		l.versions = l.versions || len(w.versions) > 0 && !knowsReview(w.versions)
		l.sideEffects = l.sideEffects || w.sideEffects == nil || !slices.Contains(noSideEffects, *w.sideEffects)
		l.names = l.names || seen[w.name]
		seen[w.name] = true
		l.selectors = l.selectors || hasBadSelector(w.namespaces, w.objects)
	}
	return l
}

// reviewVersions are the versions of AdmissionReview that we speak.
var reviewVersions = []string{"v1", "v1beta1"}

var noSideEffects = []admissionv1.SideEffectClass{admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun}

func knowsReview(versions []string) bool {
	return slices.ContainsFunc(versions, func(v string) bool { return slices.Contains(reviewVersions, v) })
}

// webhookCheck checks the webhooks of one configuration.
type webhookCheck struct {
	lenient
	seen map[string]bool // names
}

func (c webhookCheck) webhook(w webhook, at *field.Path) field.ErrorList {
	errs := validation.IsFullyQualifiedName(at.Child("name"), w.name)
	for i := range w.rules {
		errs = append(errs, validRule(&w.rules[i], at.Child("rules").Index(i))...)
	}
	errs = append(errs, amongIfSet(w.failure, at.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)...)
	errs = append(errs, amongIfSet(w.match, at.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)...)
	errs = append(errs, c.effects(w.sideEffects, at.Child("sideEffects"))...)
	if w.timeout != nil && (*w.timeout < 1 || *w.timeout > 30) {
		errs = append(errs, field.Invalid(at.Child("timeoutSeconds"), *w.timeout, "the timeout value must be between 1 and 30 seconds"))
	}
	options := metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: c.selectors}
	if w.namespaces != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(w.namespaces, options, at.Child("namespaceSelector"))...)
	}
	if w.objects != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(w.objects, options, at.Child("objectSelector"))...)
	}
	errs = append(errs, validWebhookClient(w.client, at.Child("clientConfig"))...)
	errs = append(errs, c.reviews(w.versions, at.Child("admissionReviewVersions"))...)
	if !c.names && w.name != "" {
		if c.seen[w.name] {
			errs = append(errs, field.Duplicate(at.Child("name"), w.name))
		}
		c.seen[w.name] = true
	}
	return errs
}

func (c webhookCheck) effects(effects *admissionv1.SideEffectClass, at *field.Path) field.ErrorList {
	allowed := noSideEffects
	if c.sideEffects {
		allowed = []admissionv1.SideEffectClass{admissionv1.SideEffectClassNone, admissionv1.SideEffectClassNoneOnDryRun, admissionv1.SideEffectClassSome, admissionv1.SideEffectClassUnknown}
	}
	if effects != nil {
		return among(*effects, at, allowed...)
	}
	var words []string
	for _, a := range allowed {
		words = append(words, string(a))
	}
	return field.ErrorList{field.Required(at, "must specify one of "+strings.Join(words, ", "))}
}

func (c webhookCheck) reviews(versions []string, at *field.Path) field.ErrorList {
	if len(versions) == 0 {
		return field.ErrorList{field.Required(at, "must specify one of "+strings.Join(reviewVersions, ", "))}
	}
	var errs field.ErrorList
	for i, v := range versions {
		if slices.Contains(versions[:i], v) {
			errs = append(errs, field.Invalid(at.Index(i), v, "duplicate version"))
			continue
		}
		errs = append(errs, invalid(at.Index(i), v, validation.IsDNS1035Label(v))...)
	}
	if !c.versions && !knowsReview(versions) {
		errs = append(errs, field.Invalid(at, versions, "must include at least one of "+strings.Join(reviewVersions, ", ")))
	}
	return errs
}

func validWebhookClient(c admissionv1.WebhookClientConfig, at *field.Path) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(at, "exactly one of url or service is required")}
	case c.URL != nil:
		return ValidateWebhookURL(*c.URL, at.Child("url"))
	}
	var port int32 // has its default
	if c.Service.Port != nil {
		port = *c.Service.Port
	}
	return ValidateWebhookService(c.Service.Namespace, c.Service.Name, c.Service.Path, port, at.Child("service"))
}

// ValidateWebhookService names what is wrong with the service of a webhook.
func ValidateWebhookService(namespace, name string, path *string, port int32, at *field.Path) field.ErrorList {
	// Upstream takes one for the other in what it says.
	errs := requiredFields(at, "name", namespace, "namespace", name)
	complaints := validation.IsValidPortNum(int(port))
	errs = append(errs, refuse(len(complaints) > 0, at.Child("port"), port, "port is not valid: "+strings.Join(complaints, ", "))...)
	if path == nil {
		return errs
	}
	return append(errs, validWebhookPath(*path, at.Child("path"))...)
}

// ValidateCABundle names what is wrong with certificates to trust.
func ValidateCABundle(bundle []byte, at *field.Path) field.ErrorList {
	if _, err := transport.TLSConfigFor(&transport.Config{TLS: transport.TLSConfig{CAData: bundle}}); err != nil {
		return field.ErrorList{field.Invalid(at, bundle, err.Error())}
	}
	return nil
}

// ValidateWebhookURL names what is wrong with the URL of a webhook.
func ValidateWebhookURL(raw string, at *field.Path) field.ErrorList {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(raw)
	if err != nil {
		return field.ErrorList{field.Required(at, "url must be a valid URL: "+err.Error()+form)}
	}
	errs := refuse(u.Scheme != "https", at, u.Scheme, "'https' is the only allowed URL scheme"+form)
	errs = append(errs, refuse(u.Host == "", at, u.Host, "host must be specified"+form)...)
	errs = append(errs, refuse(u.User != nil, at, u.User.String(), "user information is not permitted in the URL")...)
	errs = append(errs, refuse(u.Fragment != "", at, u.Fragment, "fragments are not permitted in the URL")...)
	return append(errs, refuse(u.RawQuery != "", at, u.RawQuery, "query parameters are not permitted in the URL")...)
}

// validWebhookPath wants a path of DNS subdomains.
func validWebhookPath(p string, at *field.Path) field.ErrorList {
	if p == "/" || p == "" {
		return nil
	}
	if p == "//" {
		return field.ErrorList{field.Invalid(at, p, "segment[0] may not be empty")}
	}
	errs := refuse(!strings.HasPrefix(p, "/"), at, p, "must start with a '/'")
	for i, step := range strings.Split(strings.TrimSuffix(p[1:], "/"), "/") {
		if step == "" {
			errs = append(errs, field.Invalid(at, p, fmt.Sprintf("segment[%d] may not be empty", i)))
			continue
		}
		for _, complaint := range subdomain(step) {
			errs = append(errs, field.Invalid(at, p, fmt.Sprintf("segment[%d]: %v", i, complaint)))
		}
	}
	return errs
}

// validRule checks a rule that says which requests are meant.
func validRule(r *admissionv1.RuleWithOperations, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, need(len(r.Operations) == 0, at.Child("operations"), "")...)
	if len(r.Operations) > 1 && slices.Contains(r.Operations, admissionv1.OperationAll) {
		errs = append(errs, field.Invalid(at.Child("operations"), r.Operations, "if '*' is present, must not specify other operations"))
	}
	for i, o := range r.Operations {
		errs = append(errs, supported(o, at.Child("operations").Index(i), admissionv1.OperationAll, admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect)...)
	}
	errs = append(errs, validNames(r.APIGroups, at.Child("apiGroups"), "API groups", true)...)
	errs = append(errs, validNames(r.APIVersions, at.Child("apiVersions"), "API versions", false)...)
	errs = append(errs, validRuleResources(r.Resources, at.Child("resources"))...)
	if r.Scope != nil {
		errs = append(errs, supported(*r.Scope, at.Child("scope"), admissionv1.ClusterScope, admissionv1.NamespacedScope, admissionv1.AllScopes)...)
	}
	return errs
}

// supported wants one of the given words, also where none is given.
func supported[T ~string](value T, at *field.Path, allowed ...T) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	sorted := slices.Sorted(slices.Values(allowed))
	return field.ErrorList{field.NotSupported(at, value, sorted)}
}

// validNames checks a list of groups or versions, of which only the group of the
// core may be empty.
func validNames(names []string, at *field.Path, what string, empty bool) field.ErrorList {
	if len(names) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(names) > 1 && slices.Contains(names, "*") {
		errs = append(errs, field.Invalid(at, names, fmt.Sprintf("if '*' is present, must not specify other %s", what)))
	}
	for i, name := range names {
		errs = append(errs, need(name == "" && !empty, at.Index(i), "")...)
	}
	return errs
}

// validRuleResources refuses names that others in the list take in: pods/log
// beside pods/*, anything beside */*.
func validRuleResources(resources []string, at *field.Path) field.ErrorList {
	if len(resources) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	allSubs, allResources := map[string]bool{}, map[string]bool{} // x/*, */x
	plain := false
	for i, name := range resources {
		if name == "" {
			errs = append(errs, field.Required(at.Index(i), ""))
			continue
		}
		resource, sub, both := strings.Cut(name, "/")
		if !both {
			plain = name != "*"
			continue
		}
		if allSubs[resource] {
			errs = append(errs, field.Invalid(at.Index(i), name, fmt.Sprintf("if '%s/*' is present, must not specify %s", resource, name)))
		}
		if allResources[sub] {
			errs = append(errs, field.Invalid(at.Index(i), name, fmt.Sprintf("if '*/%s' is present, must not specify %s", sub, name)))
		}
		allSubs[resource] = allSubs[resource] || sub == "*"
		allResources[sub] = allResources[sub] || resource == "*"
	}
	errs = append(errs, refuse(len(resources) > 1 && slices.Contains(resources, "*/*"), at, resources, "if '*/*' is present, must not specify other resources")...)
	errs = append(errs, refuse(slices.Contains(resources, "*") && plain, at, resources, "if '*' is present, must not specify other resources without subresources")...)
	return errs
}

// ValidateValidatingPolicy names the faults of a ValidatingAdmissionPolicy.
func ValidateValidatingPolicy(p, _ *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	at := specPath()
	errs := validTerms(p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints)
	if len(p.Spec.Validations)+len(p.Spec.AuditAnnotations) == 0 {
		const text = "validations or auditAnnotations must contain at least one item"
		return append(errs, field.Required(at.Child("validations"), text), field.Required(at.Child("auditAnnotations"), text))
	}
	for i, v := range p.Spec.Validations {
		errs = append(errs, validValidation(&v, at.Child("validations").Index(i))...)
	}
	const most = 20
	if len(p.Spec.AuditAnnotations) > most {
		errs = append(errs, field.Invalid(at.Child("auditAnnotations"), p.Spec.AuditAnnotations, fmt.Sprintf("must not have more than %d auditAnnotations", most)))
	}
	seen := map[string]bool{}
	for i, a := range p.Spec.AuditAnnotations {
		here := at.Child("auditAnnotations").Index(i).Child("key")
		if p.Name == "" {
			errs = append(errs, field.Invalid(here, a.Key, "requires metadata.name be non-empty"))
		} else {
			errs = append(errs, invalid(here, p.Name+"/"+a.Key, validation.IsQualifiedName(p.Name+"/"+a.Key))...)
		}
		if seen[a.Key] {
			errs = append(errs, field.Duplicate(here, a.Key))
		}
		seen[a.Key] = true
	}
	return errs
}

func validValidation(v *admissionv1.Validation, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	text := strings.TrimSpace(v.Message)
	switch {
	case v.Message != "" && text == "":
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must be non-empty if specified"))
	case strings.ContainsAny(text, "\n\r"):
		errs = append(errs, field.Invalid(at.Child("message"), v.Message, "must not contain line breaks"))
	}
	if v.Reason != nil {
		errs = append(errs, supported(*v.Reason, at.Child("reason"), metav1.StatusReasonForbidden, metav1.StatusReasonInvalid, metav1.StatusReasonRequestEntityTooLarge)...)
	}
	return errs
}

// ValidateMutatingPolicy names the faults of a MutatingAdmissionPolicy.
func ValidateMutatingPolicy(p, _ *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	at := specPath()
	errs := validTerms(p.Spec.FailurePolicy, p.Spec.ParamKind, p.Spec.MatchConstraints)
	errs = append(errs, mutableRules(p.Spec.MatchConstraints, at.Child("matchConstraints"))...)
	errs = append(errs, need(len(p.Spec.Mutations) == 0, at.Child("mutations"), "mutations must contain at least one item")...)
	for i, m := range p.Spec.Mutations {
		errs = append(errs, validMutation(&m, at.Child("mutations").Index(i))...)
	}
	return append(errs, oneOf(p.Spec.ReinvocationPolicy, at.Child("reinvocationPolicy"), admissionv1.NeverReinvocationPolicy, admissionv1.IfNeededReinvocationPolicy)...)
}

// validMutation wants the form of a mutation to be the one that its type names.
func validMutation(m *admissionv1.Mutation, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch m.PatchType {
	case admissionv1.PatchTypeJSONPatch:
		if m.JSONPatch == nil {
			errs = append(errs, field.Required(at.Child("jsonPatch"), "must be specified when patchType is JSONPatch"))
		}
		if m.ApplyConfiguration != nil {
			errs = append(errs, field.Invalid(at.Child("applyConfiguration"), "{applyConfiguration}", "must not be specified when patchType is JSONPatch"))
		}
		return errs
	case admissionv1.PatchTypeApplyConfiguration:
		if m.ApplyConfiguration == nil {
			errs = append(errs, field.Required(at.Child("applyConfiguration"), "must be specified when patchType is ApplyConfiguration"))
		}
		if m.JSONPatch != nil {
			errs = append(errs, field.Invalid(at.Child("jsonPatch"), "{jsonPatch}", "must not be specified when patchType is ApplyConfiguration"))
		}
		return errs
	}
	return oneOf(m.PatchType, at.Child("patchType"), admissionv1.PatchTypeApplyConfiguration, admissionv1.PatchTypeJSONPatch)
}

// mutableRules refuses operations that leave nothing to change.
func mutableRules(m *admissionv1.MatchResources, at *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	for _, r := range m.ResourceRules {
		for _, o := range r.Operations {
			errs = append(errs, supported(o, at.Child("resourceRules", "operations"), admissionv1.OperationAll, admissionv1.Create, admissionv1.Update, admissionv1.Connect)...)
		}
	}
	return errs
}

// validTerms checks what policies of both kinds have in common.
func validTerms(failure *admissionv1.FailurePolicyType, params *admissionv1.ParamKind, constraints *admissionv1.MatchResources) field.ErrorList {
	at := specPath()
	var errs field.ErrorList
	if failure == nil {
		errs = append(errs, field.Required(at.Child("failurePolicy"), ""))
	} else {
		errs = append(errs, supported(*failure, at.Child("failurePolicy"), admissionv1.Fail, admissionv1.Ignore)...)
	}
	if params != nil {
		errs = append(errs, validParamKind(params, at.Child("paramKind"))...)
	}
	if constraints == nil {
		return append(errs, field.Required(at.Child("matchConstraints"), ""))
	}
	errs = append(errs, validMatch(constraints, at.Child("matchConstraints"))...)
	errs = append(errs, need(len(constraints.ResourceRules) == 0, at.Child("matchConstraints", "resourceRules"), "")...)
	return errs
}

func validParamKind(k *admissionv1.ParamKind, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	group, version, two := strings.Cut(k.APIVersion, "/")
	if !two {
		group, version = "", k.APIVersion
	}
	switch here := at.Child("apiVersion"); {
	case k.APIVersion == "":
		errs = append(errs, field.Required(here, ""))
	case strings.Contains(version, "/"):
		errs = append(errs, field.Invalid(here, k.APIVersion, "unexpected GroupVersion string: "+k.APIVersion))
	default:
		if complaints := validation.IsDNS1123Subdomain(group); group != "" && len(complaints) > 0 {
			errs = append(errs, field.Invalid(here, group, strings.Join(complaints, ",")))
		}
		if version == "" {
			errs = append(errs, field.Invalid(here, k.APIVersion, "version must be specified"))
		} else if complaints := validation.IsDNS1035Label(version); len(complaints) > 0 {
			errs = append(errs, field.Invalid(here, version, strings.Join(complaints, ",")))
		}
	}
	if k.Kind == "" {
		return append(errs, field.Required(at.Child("kind"), ""))
	}
	if complaints := validation.IsDNS1035Label(strings.ToLower(k.Kind)); len(complaints) > 0 {
		errs = append(errs, field.Invalid(at.Child("kind"), k.Kind, "may have mixed case, but should otherwise match: "+strings.Join(complaints, ",")))
	}
	return errs
}

// validMatch checks what a policy or a binding says it is about.
func validMatch(m *admissionv1.MatchResources, at *field.Path) field.ErrorList {
	if m == nil {
		return nil
	}
	var errs field.ErrorList
	if m.MatchPolicy == nil {
		errs = append(errs, field.Required(at.Child("matchPolicy"), ""))
	} else {
		errs = append(errs, supported(*m.MatchPolicy, at.Child("matchPolicy"), admissionv1.Equivalent, admissionv1.Exact)...)
	}
	errs = append(errs, requiredSelector(m.NamespaceSelector, at.Child("namespaceSelector"))...)
	errs = append(errs, requiredSelector(m.ObjectSelector, at.Child("objectSelector"))...)
	for i := range m.ResourceRules {
		errs = append(errs, validNamedRule(&m.ResourceRules[i], at.Child("resourceRules").Index(i))...)
	}
	for i := range m.ExcludeResourceRules {
		errs = append(errs, validNamedRule(&m.ExcludeResourceRules[i], at.Child("excludeResourceRules").Index(i))...)
	}
	return errs
}

func requiredSelector(s *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if s == nil {
		return field.ErrorList{field.Required(at, "")}
	}
	return metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, at)
}

func validNamedRule(r *admissionv1.NamedRuleWithOperations, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, name := range r.ResourceNames {
		here := at.Child("resourceNames").Index(i)
		errs = append(errs, invalid(here, name, path.IsValidPathSegmentName(name))...)
		if slices.Contains(r.ResourceNames[:i], name) {
			errs = append(errs, field.Duplicate(here, name))
		}
	}
	return append(errs, validRule(&r.RuleWithOperations, at)...)
}

// ValidateValidatingPolicyBinding names the faults of a
// ValidatingAdmissionPolicyBinding.
func ValidateValidatingPolicyBinding(b, _ *admissionv1.ValidatingAdmissionPolicyBinding) field.ErrorList {
	at := specPath()
	errs := validPolicyBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, true)
	actions := b.Spec.ValidationActions
	at = at.Child("validationActions")
	for i, a := range actions {
		errs = append(errs, supported(a, at.Index(i), admissionv1.Deny, admissionv1.Warn, admissionv1.Audit)...)
		if slices.Contains(actions[:i], a) {
			errs = append(errs, field.Duplicate(at.Index(i), a))
		}
	}
	if slices.Contains(actions, admissionv1.Deny) && slices.Contains(actions, admissionv1.Warn) {
		errs = append(errs, field.Invalid(at, actions, "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)"))
	}
	if len(actions) == 0 {
		errs = append(errs, declared(field.Required(at, ""))...)
	}
	return errs
}

// ValidateMutatingPolicyBinding names the faults of a
// MutatingAdmissionPolicyBinding.
func ValidateMutatingPolicyBinding(b, _ *admissionv1.MutatingAdmissionPolicyBinding) field.ErrorList {
	errs := validPolicyBinding(b.Spec.PolicyName, b.Spec.ParamRef, b.Spec.MatchResources, false)
	return append(errs, mutableRules(b.Spec.MatchResources, specPath().Child("matchResources"))...)
}

func validPolicyBinding(policy string, params *admissionv1.ParamRef, match *admissionv1.MatchResources, byRule bool) field.ErrorList {
	at := specPath()
	errs := ruleOnCreate(required(policy, at.Child("policyName")), !byRule)
	if policy != "" {
		errs = append(errs, invalid(at.Child("policyName"), policy, apivalidation.NameIsDNSSubdomain(policy, false))...)
	}
	if params != nil {
		errs = append(errs, validParamRef(params, at.Child("paramRef"))...)
	}
	return append(errs, validMatch(match, at.Child("matchResources"))...)
}

func validParamRef(r *admissionv1.ParamRef, at *field.Path) field.ErrorList {
	const either = "name and selector are mutually exclusive"
	var errs field.ErrorList
	if r.Name != "" {
		errs = append(errs, invalid(at.Child("name"), r.Name, path.IsValidPathSegmentName(r.Name))...)
		if r.Selector != nil {
			errs = append(errs, field.Forbidden(at.Child("name"), either))
		}
	}
	if r.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(r.Selector, metavalidation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
		errs = append(errs, forbid(r.Name != "", at.Child("selector"), either)...)
	}
	if r.Name == "" && r.Selector == nil {
		errs = append(errs, field.Required(at, "one of name or selector must be specified"))
	}
	if r.ParameterNotFoundAction == nil || *r.ParameterNotFoundAction == "" {
		return append(errs, field.Required(at.Child("parameterNotFoundAction"), ""))
	}
	return append(errs, among(*r.ParameterNotFoundAction, at.Child("parameterNotFoundAction"), admissionv1.DenyAction, admissionv1.AllowAction)...)
}
