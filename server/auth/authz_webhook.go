package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"orrery.dev/server/webhook"
)

const (
	// answersKept bounds how many answers of a webhook are remembered.
	answersKept = 8192
	// largestQuestion is how long the words of a request may be altogether for its
	// answer to be remembered: the user chooses them.
	largestQuestion = 10000
)

// authzWebhook asks a service what users may do, by SubjectAccessReviews.
type authzWebhook struct {
	name       string
	version    string
	client     *webhook.Client
	conditions *authorizationcel.CELMatcher // nil: it is always asked
	onError    authorizer.Decision
	answers    *cache.LRUExpireCache
	yes, no    time.Duration // how long answers are remembered; 0: not
	metrics    *authzMetrics
}

func newAuthzWebhook(c apiserver.AuthorizerConfiguration, metrics *authzMetrics) (*authzWebhook, error) {
	w := c.Webhook
	if w.ConnectionInfo.Type != apiserver.AuthorizationWebhookConnectionInfoTypeKubeConfigFile || w.ConnectionInfo.KubeConfigFile == nil {
		return nil, fmt.Errorf("connectionInfo.type %s is not allowed for kube-apiserver", w.ConnectionInfo.Type)
	}
	if v := w.SubjectAccessReviewVersion; v != "v1" && v != "v1beta1" {
		return nil, fmt.Errorf("unsupported webhook authorizer version %q, supported versions are %q, %q", v, "v1", "v1beta1")
	}
	client, err := webhook.Open(*w.ConnectionInfo.KubeConfigFile, webhook.Options{Timeout: w.Timeout.Duration})
	if err != nil {
		return nil, err
	}
	conditions, errs := validation.ValidateAndCompileMatchConditions(authorizationcel.NewDefaultCompiler(), w.MatchConditions)
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	if conditions != nil {
		conditions.AuthorizerType, conditions.AuthorizerName = ModeWebhook, c.Name
		conditions.Metrics = authorizationcel.NewMatcherMetrics()
	}
	hook := &authzWebhook{
		name: c.Name, version: w.SubjectAccessReviewVersion, client: client, conditions: conditions,
		onError: authorizer.DecisionNoOpinion, answers: cache.NewLRUExpireCache(answersKept), metrics: metrics,
	}
	if w.FailurePolicy == apiserver.FailurePolicyDeny {
		hook.onError = authorizer.DecisionDeny
	}
	if w.CacheAuthorizedRequests {
		hook.yes = w.AuthorizedTTL.Duration
	}
	if w.CacheUnauthorizedRequests {
		hook.no = w.UnauthorizedTTL.Duration
	}
	return hook, nil
}

func (w *authzWebhook) authorize(ctx context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	question := authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authorization.k8s.io/" + w.version, Kind: "SubjectAccessReview"},
		Spec:     reviewSpec(attrs),
	}
	if w.conditions != nil && len(w.conditions.CompilationResults) > 0 {
		applies, err := w.conditions.Eval(ctx, &question)
		if err != nil {
			return w.onError, "", err
		}
		if !applies {
			return authorizer.DecisionNoOpinion, "", nil
		}
	}
	status, err := w.ask(ctx, &question)
	switch {
	case err != nil:
		return w.onError, "", err
	case status.Denied && status.Allowed:
		return authorizer.DecisionDeny, status.Reason, errors.New("webhook subject access review returned both allow and deny response")
	case status.Denied:
		return authorizer.DecisionDeny, status.Reason, nil
	case status.Allowed:
		return authorizer.DecisionAllow, status.Reason, nil
	}
	return authorizer.DecisionNoOpinion, status.Reason, nil
}

// ask gets the answer from memory or from the service.
func (w *authzWebhook) ask(ctx context.Context, question *authorizationv1.SubjectAccessReview) (authorizationv1.SubjectAccessReviewStatus, error) {
	var status authorizationv1.SubjectAccessReviewStatus
	key, err := json.Marshal(question)
	if err != nil {
		return status, err
	}
	if known, ok := w.answers.Get(string(key)); ok {
		return known.(authorizationv1.SubjectAccessReviewStatus), nil
	}
	begin := time.Now()
	raw, err := w.client.PostBytes(ctx, key)
	var answer authorizationv1.SubjectAccessReview
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	w.observe(ctx, err, time.Since(begin))
	if err != nil {
		return status, err
	}
	status = answer.Status
	if sizeOf(&question.Spec) >= largestQuestion {
		return status, nil
	}
	ttl := w.no
	if status.Allowed {
		ttl = w.yes
	}
	if ttl > 0 {
		w.answers.Add(string(key), status, ttl)
	}
	return status, nil
}

func (w *authzWebhook) observe(ctx context.Context, err error, took time.Duration) {
	result := "success"
	switch {
	case err == nil:
	case ctx.Err() != nil:
		result = "canceled"
	case utilnet.IsTimeout(err) || errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err):
		result = "timeout"
	default:
		result = "error"
	}
	w.metrics.asked.WithLabelValues(w.name, result).Inc()
	w.metrics.took.WithLabelValues(w.name, result).Observe(took.Seconds())
	if err == nil || ctx.Err() != nil {
		return
	}
	slog.Warn("authorisation webhook", "name", w.name, "err", err)
	if w.onError == authorizer.DecisionNoOpinion {
		w.metrics.open.WithLabelValues(w.name, result).Inc()
	}
}

// sizeOf is how much of the question the user has chosen.
func sizeOf(spec *authorizationv1.SubjectAccessReviewSpec) int {
	if r := spec.ResourceAttributes; r != nil {
		return len(r.Namespace) + len(r.Verb) + len(r.Group) + len(r.Version) + len(r.Resource) + len(r.Subresource) + len(r.Name)
	}
	return len(spec.NonResourceAttributes.Path) + len(spec.NonResourceAttributes.Verb)
}

// reviewSpec is a request as reviews describe it.
func reviewSpec(attrs authorizer.Attributes) authorizationv1.SubjectAccessReviewSpec {
	var spec authorizationv1.SubjectAccessReviewSpec
	if who := attrs.GetUser(); who != nil {
		spec.User, spec.UID, spec.Groups = who.GetName(), who.GetUID(), who.GetGroups()
		for key, values := range who.GetExtra() {
			if spec.Extra == nil {
				spec.Extra = map[string]authorizationv1.ExtraValue{}
			}
			spec.Extra[key] = values
		}
	}
	if !attrs.IsResourceRequest() {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: attrs.GetPath(), Verb: attrs.GetVerb()}
		return spec
	}
	r := &authorizationv1.ResourceAttributes{
		Namespace: attrs.GetNamespace(), Verb: attrs.GetVerb(), Group: attrs.GetAPIGroup(), Version: attrs.GetAPIVersion(),
		Resource: attrs.GetResource(), Subresource: attrs.GetSubresource(), Name: attrs.GetName(),
	}
	if fields := fieldRequirements(attrs); len(fields) > 0 {
		r.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: fields}
	}
	if labels := labelRequirements(attrs); len(labels) > 0 {
		r.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: labels}
	}
	spec.ResourceAttributes = r
	return spec
}

// fieldRequirements leaves out what cannot be expressed or does not parse: the
// question is then about more than is asked for, never about less.
func fieldRequirements(attrs authorizer.Attributes) (all []metav1.FieldSelectorRequirement) {
	requirements, _ := attrs.GetFieldSelector()
	for _, q := range requirements {
		switch q.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
			all = append(all, metav1.FieldSelectorRequirement{Key: q.Field, Operator: metav1.FieldSelectorOpIn, Values: []string{q.Value}})
		case selection.NotEquals, selection.NotIn:
			all = append(all, metav1.FieldSelectorRequirement{Key: q.Field, Operator: metav1.FieldSelectorOpNotIn, Values: []string{q.Value}})
		}
	}
	return all
}

func labelRequirements(attrs authorizer.Attributes) (all []metav1.LabelSelectorRequirement) {
	operators := map[selection.Operator]metav1.LabelSelectorOperator{
		selection.Equals: metav1.LabelSelectorOpIn, selection.DoubleEquals: metav1.LabelSelectorOpIn, selection.In: metav1.LabelSelectorOpIn,
		selection.NotEquals: metav1.LabelSelectorOpNotIn, selection.NotIn: metav1.LabelSelectorOpNotIn,
		selection.Exists: metav1.LabelSelectorOpExists, selection.DoesNotExist: metav1.LabelSelectorOpDoesNotExist,
	}
	requirements, _ := attrs.GetLabelSelector()
	for _, q := range requirements {
		operator, ok := operators[q.Operator()]
		if !ok {
			continue
		}
		r := metav1.LabelSelectorRequirement{Key: q.Key(), Operator: operator}
		if values := q.ValuesUnsorted(); len(values) > 0 {
			r.Values = values
		}
		all = append(all, r)
	}
	return all
}
