package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	upstream "k8s.io/apiserver/pkg/admission"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"

	"orrery.dev/server/registry"
)

// invocation is a webhook that is to be called, with the version in which it
// wants to see the object.
type invocation struct {
	hook
	resource schema.GroupVersionResource
	kind     schema.GroupVersionKind
	asked    schema.GroupVersionKind // of the version in the URL
	row      *registry.Kind          // converts to kind; nil: the object is shown as it is
	hub      *registry.Kind          // the row that the request's objects are of; nil as row
}

// invocation decides whether a webhook is called for a request.
func (w *webhooks) invocation(ctx context.Context, r *Request, h hook) (invocation, bool, error) {
	in, ok := w.byRule(r, h)
	if !ok {
		return in, false, nil
	}
	if ok, err := w.matcher.inNamespace(ctx, r, h.namespaces); !ok || err != nil {
		return in, false, err
	}
	if ok, err := hasLabels(r, h.objects); !ok || err != nil {
		return in, false, err
	}
	if len(h.conditions) == 0 {
		return in, true, nil
	}
	ok, err := w.matcher.conditions(ctx, r, in, nil, false)
	if err != nil && h.failOpen {
		return in, false, nil
	}
	if err != nil {
		return in, false, r.forbid("%w", err)
	}
	return in, ok, nil
}

// byRule looks for a rule that matches the resource as asked for, or, unless the
// webhook wants exact matches, as another version of it.
func (w *webhooks) byRule(r *Request, h hook) (invocation, bool) {
	in := invocation{hook: h, resource: r.Resource, kind: r.Kind, asked: r.Kind}
	var row *registry.Kind
	if w.kinds != nil {
		row = w.kinds.Find(r.Resource)
	}
	// Only objects of the row's own kind have versions; what a subresource like
	// eviction takes is shown as it came.
	if row != nil && row.Hub().GroupVersionKind == r.Kind {
		in.hub = row.Hub()
		in.row, in.kind, in.asked = row, row.GroupVersionKind, row.GroupVersionKind
	}
	if matchesRules(h.rules, r, r.Resource) {
		return in, true
	}
	if h.exact || in.row == nil {
		return in, false
	}
	for _, k := range w.kinds.Kinds() {
		if k != row && k.Stored() == row.Stored() && matchesRules(h.rules, r, k.GroupVersionResource()) {
			in.row, in.resource, in.kind = k, k.GroupVersionResource(), k.GroupVersionKind
			return in, true
		}
	}
	return in, false
}

func matchesRules(rules []admissionregistrationv1.RuleWithOperations, r *Request, resource schema.GroupVersionResource) bool {
	return slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return matchesScope(rule.Scope, r) && matchesOperation(rule.Operations, r.Operation) &&
			matchesName(rule.APIGroups, resource.Group) && matchesName(rule.APIVersions, resource.Version) &&
			matchesResource(rule.Resources, resource.Resource, r.Subresource)
	})
}

func matchesScope(scope *admissionregistrationv1.ScopeType, r *Request) bool {
	if scope == nil || *scope == admissionregistrationv1.AllScopes {
		return true
	}
	// A namespace is a cluster-scoped object although its requests carry one.
	namespaced := r.Namespace != "" && !(r.Resource.Group == "" && r.Resource.Resource == "namespaces")
	return namespaced == (*scope == admissionregistrationv1.NamespacedScope)
}

func matchesOperation(ops []admissionregistrationv1.OperationType, op Operation) bool {
	return slices.Contains(ops, admissionregistrationv1.OperationAll) || slices.Contains(ops, admissionregistrationv1.OperationType(op))
}

func matchesName(names []string, name string) bool {
	return slices.Contains(names, "*") || slices.Contains(names, name)
}

// matchesResource knows pods, pods/log, pods/*, */log, * (no subresources), */*.
func matchesResource(rules []string, resource, sub string) bool {
	return slices.ContainsFunc(rules, func(rule string) bool {
		wantResource, wantSub, _ := strings.Cut(rule, "/")
		return (wantResource == "*" || wantResource == resource) && (wantSub == "*" || wantSub == sub)
	})
}

// matcher knows selectors and match conditions.
type matcher struct {
	reader Reader
	authz  authorizer.UnconditionalAuthorizer

	mu       sync.Mutex                  // protects the fields below
	compiler celplugin.ConditionCompiler // made when it is first needed: that takes a while
	compiled map[string]celplugin.ConditionEvaluator
}

func newMatcher(reader Reader, authz authorizer.UnconditionalAuthorizer) *matcher {
	return &matcher{reader: reader, authz: authz, compiled: map[string]celplugin.ConditionEvaluator{}}
}

// inNamespace matches the labels of the request's namespace. What is in none
// matches always.
func (m *matcher) inNamespace(ctx context.Context, r *Request, selector *metav1.LabelSelector) (bool, error) {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return true, nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	if r.Resource.Group == "" && r.Resource.Resource == "namespaces" {
		if meta := r.Meta(); meta != nil {
			return s.Matches(labels.Set(meta.GetLabels())), nil
		}
		return true, nil
	}
	if r.Namespace == "" {
		return true, nil
	}
	ns, err := get[*corev1.Namespace](ctx, m.reader, core("namespaces"), "", r.Namespace)
	if err != nil {
		return false, err
	}
	return s.Matches(labels.Set(ns.Labels)), nil
}

// hasLabels matches the object before or after.
func hasLabels(r *Request, selector *metav1.LabelSelector) (bool, error) {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return true, nil
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return false, err
	}
	for _, obj := range []runtime.Object{r.Object, r.Old} {
		if m, ok := obj.(metav1.Object); ok && s.Matches(labels.Set(m.GetLabels())) {
			return true, nil
		}
	}
	return false, nil
}

// condition is a match condition as the expression compiler wants it.
type condition admissionregistrationv1.MatchCondition

func (c *condition) GetExpression() string    { return c.Expression }
func (c *condition) ReturnTypes() []*cel.Type { return []*cel.Type{cel.BoolType} }

// compiledSize bounds the cache of compiled conditions.
const compiledSize = 1000

// compile makes a program of the conditions, which may look at params if
// hasParams.
func (m *matcher) compile(conditions []admissionregistrationv1.MatchCondition, hasParams bool) celplugin.ConditionEvaluator {
	var key strings.Builder
	fmt.Fprintln(&key, hasParams)
	expressions := make([]celplugin.ExpressionAccessor, len(conditions))
	for i := range conditions {
		expressions[i] = (*condition)(&conditions[i])
		key.WriteString(conditions[i].Name + "\x00" + conditions[i].Expression + "\x00")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if done, ok := m.compiled[key.String()]; ok {
		return done
	}
	if m.compiler == nil {
		m.compiler = celplugin.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	}
	if len(m.compiled) >= compiledSize {
		clear(m.compiled)
	}
	done := m.compiler.CompileCondition(expressions, celplugin.OptionalVariableDeclarations{HasAuthorizer: true, HasParams: hasParams}, environment.StoredExpressions)
	m.compiled[key.String()] = done
	return done
}

// conditions reports whether all of a webhook's expressions are true. One that
// is false settles it, whatever went wrong with others.
func (m *matcher) conditions(ctx context.Context, r *Request, in invocation, params runtime.Object, hasParams bool) (bool, error) {
	attributes, err := in.attributes(r)
	if err != nil {
		return false, err
	}
	request := celplugin.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource(in.resource), metav1.GroupVersionKind(in.kind))
	results, _, err := m.compile(in.hook.conditions, hasParams).ForInput(ctx, attributes, request, celplugin.OptionalVariableBindings{VersionedParams: params, Authorizer: m.authz}, nil, celconfig.RuntimeCELCostBudgetMatchConditions)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, result := range results {
		if result.EvalResult == celtypes.False {
			return false, nil
		}
		if result.Error != nil {
			errs = append(errs, result.Error)
		}
	}
	return len(errs) == 0, errors.Join(errs...)
}

// attributes are the request as upstream's expression library takes it.
func (in invocation) attributes(r *Request) (*upstream.VersionedAttributes, error) {
	obj, err := in.convert(r.Object)
	if err != nil {
		return nil, err
	}
	old, err := in.convert(r.Old)
	if err != nil {
		return nil, err
	}
	record := upstream.NewAttributesRecord(r.Object, r.Old, in.asked, r.Namespace, r.Name, r.Resource, r.Subresource, upstream.Operation(r.Operation), r.Options, r.DryRun, r.User)
	v := &upstream.VersionedAttributes{Attributes: record, VersionedKind: in.kind}
	if obj != nil {
		v.VersionedObject.Set(obj)
	}
	if old != nil {
		v.VersionedOldObject.Set(old)
	}
	return v, nil
}
