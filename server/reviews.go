package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/audit"
)

// Reviews are questions to the authenticator and the authoriser, posted as
// objects and answered in their status. Nothing is stored.

// question reads the posted object.
func (c *call) question(into runtime.Object) error {
	req, err := c.posted(into, c.kind.GroupVersionKind)
	if err != nil {
		return err
	}
	defer req.Finish(c.r.Context(), nil)
	return c.s.Admission.Validate(c.r.Context(), req)
}

func (c *call) answer(obj runtime.Object) error {
	obj.GetObjectKind().SetGroupVersionKind(c.kind.GroupVersionKind)
	return c.reply(http.StatusCreated, obj, c.kind.GroupVersionKind)
}

// invalidReview is the error for a question that makes no sense, if there are any
// faults; upstream does not name the kind in it.
func (c *call) invalidReview(m metav1.ObjectMeta, errs field.ErrorList) error {
	given := m
	m.ManagedFields = nil
	must := "must be empty"
	if c.kind.Namespaced {
		m.Namespace, must = "", "must be empty except for namespace"
	}
	if !equality.Semantic.DeepEqual(m, metav1.ObjectMeta{}) {
		errs = append(errs, field.Invalid(field.NewPath("metadata"), given, must))
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: c.kind.Group}, "", errs)
}

// reviewToken says whose a token is.
func (c *call) reviewToken() error {
	var review authenticationv1.TokenReview
	if err := c.question(&review); err != nil {
		return err
	}
	if review.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	ctx := c.r.Context()
	if len(review.Spec.Audiences) > 0 {
		ctx = authenticator.WithAudiences(ctx, review.Spec.Audiences)
	}
	probe := (&http.Request{Header: http.Header{}, URL: &url.URL{}}).WithContext(ctx)
	probe.Header.Set("Authorization", "Bearer "+review.Spec.Token)
	answer, ok, err := c.s.Authenticator.AuthenticateRequest(probe)
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: ok}
	if err != nil {
		// Upstream asks another authenticator before, which knows a token of its own.
		review.Status.Error = utilerrors.NewAggregate([]error{errors.New("invalid bearer token"), err}).Error()
	}
	if ok && answer != nil {
		review.Status.User = audit.UserInfo(answer.User)
		review.Status.Audiences = answer.Audiences
	}
	return c.answer(&review)
}

// reviewSelf says who is asking.
func (c *call) reviewSelf() error {
	var review authenticationv1.SelfSubjectReview
	if err := c.question(&review); err != nil {
		return err
	}
	// Of all reviews only this one has a beginning and nothing else.
	review.ObjectMeta = metav1.ObjectMeta{CreationTimestamp: metav1.Now().Rfc3339Copy()}
	review.Status.UserInfo = audit.UserInfo(c.user)
	return c.answer(&review)
}

// reviewAccess says what somebody may do.
func (c *call) reviewAccess() error {
	var review authorizationv1.SubjectAccessReview
	if err := c.question(&review); err != nil {
		return err
	}
	if err := c.invalidReview(review.ObjectMeta, accessErrors(&review.Spec)); err != nil {
		return err
	}
	review.Status = c.decide(subjectOf(&review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	return c.answer(&review)
}

// reviewLocalAccess is the same for those who may only ask about a namespace.
func (c *call) reviewLocalAccess() error {
	var review authorizationv1.LocalSubjectAccessReview
	if err := c.question(&review); err != nil {
		return err
	}
	spec := field.NewPath("spec")
	errs := accessErrors(&review.Spec)
	if r := review.Spec.ResourceAttributes; r != nil && r.Namespace != c.Namespace {
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes", "namespace"), r.Namespace, "must match metadata.namespace"))
	}
	if n := review.Spec.NonResourceAttributes; n != nil {
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), inner(n), "disallowed on this kind of request"))
	}
	if err := c.invalidReview(review.ObjectMeta, errs); err != nil {
		return err
	}
	review.Namespace = c.Namespace
	review.Status = c.decide(subjectOf(&review.Spec), review.Spec.ResourceAttributes, nil)
	return c.answer(&review)
}

// reviewOwnAccess says what the asker may do.
func (c *call) reviewOwnAccess() error {
	var review authorizationv1.SelfSubjectAccessReview
	if err := c.question(&review); err != nil {
		return err
	}
	if err := c.invalidReview(review.ObjectMeta, attributeErrors(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)); err != nil {
		return err
	}
	review.Status = c.decide(c.user, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	return c.answer(&review)
}

// inner is how upstream shows attributes of paths in errors.
func inner(n *authorizationv1.NonResourceAttributes) any {
	if n == nil {
		return n
	}
	return struct{ Path, Verb string }{n.Path, n.Verb}
}

func attributeErrors(r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) field.ErrorList {
	spec := field.NewPath("spec")
	if (r == nil) == (n == nil) {
		return field.ErrorList{field.Invalid(spec, inner(n), "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	if r == nil {
		return nil
	}
	return selectorErrors(r, spec.Child("resourceAttributes"))
}

// selectorErrors are those of the selectors. Operators that this server does not know
// may be newer ones.
func selectorErrors(r *authorizationv1.ResourceAttributes, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := r.FieldSelector; s != nil {
		at := at.Child("fieldSelector")
		errs = append(errs, eitherSelector(s.RawSelector, len(s.Requirements), at)...)
		for i, q := range s.Requirements {
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(q, metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, at.Child("requirements").Index(i))...)
		}
	}
	if s := r.LabelSelector; s != nil {
		at := at.Child("labelSelector")
		errs = append(errs, eitherSelector(s.RawSelector, len(s.Requirements), at)...)
		for i, q := range s.Requirements {
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(q, metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}, at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

func eitherSelector(raw string, requirements int, at *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(at.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(at.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at))}
	}
	return nil
}

func accessErrors(spec *authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	errs := attributeErrors(spec.ResourceAttributes, spec.NonResourceAttributes)
	if spec.User == "" && len(spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec", "user"), "", "at least one of user or group must be specified"))
	}
	return errs
}

func subjectOf(spec *authorizationv1.SubjectAccessReviewSpec) user.Info {
	who := &user.DefaultInfo{Name: spec.User, Groups: spec.Groups, UID: spec.UID, Extra: map[string][]string{}}
	for key, values := range spec.Extra {
		who.Extra[strings.ToLower(key)] = values
	}
	return who
}

func (c *call) decide(who user.Info, r *authorizationv1.ResourceAttributes, n *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	a := &authorizer.AttributesRecord{User: who}
	var ignored []string
	if r != nil {
		a.Verb, a.Namespace, a.APIGroup, a.APIVersion = r.Verb, r.Namespace, r.Group, r.Version
		a.Resource, a.Subresource, a.Name, a.ResourceRequest = r.Resource, r.Subresource, r.Name, true
		if a.APIVersion == "" {
			a.APIVersion = "*"
		}
		ignored = addReviewSelectors(a, r)
	}
	if n != nil {
		a.Verb, a.Path = n.Verb, n.Path
	}
	decision, reason, err := c.s.Authorizer.Authorize(c.r.Context(), a)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow,
		Denied:  decision == authorizer.DecisionDeny,
		Reason:  reason,
	}
	if err != nil {
		ignored = append(ignored, err.Error())
	}
	status.EvaluationError = strings.Join(ignored, ", ")
	return status
}

// addReviewSelectors takes over the selectors of a question. What cannot be
// expressed is left out, which makes the question wider, never narrower; what is
// ignored altogether is told.
func addReviewSelectors(a *authorizer.AttributesRecord, r *authorizationv1.ResourceAttributes) (ignored []string) {
	if s := r.FieldSelector; s != nil {
		if s.RawSelector != "" {
			parsed, err := fields.ParseSelector(s.RawSelector)
			if err == nil {
				a.FieldSelectorRequirements = parsed.Requirements()
			} else {
				ignored = append(ignored, "spec.resourceAttributes.fieldSelector ignored due to parse error")
			}
		}
		for _, q := range s.Requirements {
			if len(q.Values) != 1 {
				continue
			}
			op := selection.Equals
			if q.Operator == metav1.FieldSelectorOpNotIn {
				op = selection.NotEquals
			}
			if q.Operator == metav1.FieldSelectorOpIn || q.Operator == metav1.FieldSelectorOpNotIn {
				a.FieldSelectorRequirements = append(a.FieldSelectorRequirements, fields.Requirement{Field: q.Key, Operator: op, Value: q.Values[0]})
			}
		}
	}
	if s := r.LabelSelector; s != nil {
		selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: s.Requirements})
		if s.RawSelector != "" {
			selector, err = labels.Parse(s.RawSelector)
		}
		if err == nil {
			a.LabelSelectorRequirements, _ = selector.Requirements()
		} else {
			ignored = append(ignored, "spec.resourceAttributes.labelSelector ignored due to parse error")
		}
	}
	return ignored
}

// reviewOwnRules lists all that the asker may do in a namespace.
func (c *call) reviewOwnRules() error {
	var review authorizationv1.SelfSubjectRulesReview
	if err := c.question(&review); err != nil {
		return err
	}
	if review.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	return c.answer(&authorizationv1.SelfSubjectRulesReview{Status: rulesFor(c.r.Context(), c.s.Rules, c.user, review.Spec.Namespace)})
}

func rulesFor(ctx context.Context, rules authorizer.RuleResolver, who user.Info, namespace string) authorizationv1.SubjectRulesReviewStatus {
	status := authorizationv1.SubjectRulesReviewStatus{ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}}
	if rules == nil {
		status.Incomplete = true
		return status
	}
	resources, paths, incomplete, err := rules.RulesFor(ctx, who, namespace)
	for _, r := range resources {
		status.ResourceRules = append(status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: r.GetVerbs(), APIGroups: r.GetAPIGroups(), Resources: r.GetResources(), ResourceNames: r.GetResourceNames(),
		})
	}
	for _, p := range paths {
		status.NonResourceRules = append(status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: p.GetVerbs(), NonResourceURLs: p.GetNonResourceURLs()})
	}
	status.Incomplete = incomplete
	if err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}
