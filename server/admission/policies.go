package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// policies judges requests by the cluster's ValidatingAdmissionPolicies: each
// that a binding puts into force, for each of the objects that the binding takes
// its parameters from.
type policies struct {
	hooks    *webhooks // matches as for webhooks
	programs *programs
}

func newPolicies(hooks *webhooks) *policies {
	return &policies{hooks, newPrograms(hooks.reader, hooks.matcher.authz)}
}

func (p *policies) plugin() Plugin {
	return Plugin{
		Name:     "ValidatingAdmissionPolicy",
		On:       func(r *Request) bool { return !exempt(r) },
		Validate: p.validate,
	}
}

// verdict is what one policy, under one binding, says against a request.
type verdict struct {
	policy, binding string
	message         string
	expression      int // its place in the policy's validations
	reason          metav1.StatusReason
	actions         []admissionregistrationv1.ValidationAction
}

func (p *policies) validate(ctx context.Context, r *Request) error {
	reader := p.hooks.reader
	all, err := list[*admissionregistrationv1.ValidatingAdmissionPolicy](ctx, reader, schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "validatingadmissionpolicies"}, "")
	if err != nil || len(all) == 0 {
		return err
	}
	bindings, err := list[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](ctx, reader, schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "validatingadmissionpolicybindings"}, "")
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b *admissionregistrationv1.ValidatingAdmissionPolicy) int {
		return strings.Compare(a.Name, b.Name)
	})
	slices.SortFunc(bindings, func(a, b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) int {
		return strings.Compare(a.Name, b.Name)
	})
	var verdicts []verdict
	for _, policy := range all {
		for _, b := range bindings {
			if b.Spec.PolicyName == policy.Name {
				verdicts = append(verdicts, p.judge(ctx, r, policy, b)...)
			}
		}
	}
	return p.act(r, verdicts)
}

// judge asks one policy under one binding. What goes wrong on the way counts
// against the request, or not, as the policy's failurePolicy says.
func (p *policies) judge(ctx context.Context, r *Request, policy *admissionregistrationv1.ValidatingAdmissionPolicy, b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) []verdict {
	base := verdict{policy: policy.Name, binding: b.Name, actions: b.Spec.ValidationActions, reason: metav1.StatusReasonInvalid}
	failure := func(err error) []verdict {
		if f := policy.Spec.FailurePolicy; f != nil && *f == admissionregistrationv1.Ignore {
			return nil
		}
		v := base
		v.message = err.Error()
		return []verdict{v}
	}
	in, ok, err := p.matches(ctx, r, policy, b)
	if err != nil {
		return failure(err)
	}
	if !ok {
		return nil
	}
	params, err := p.params(ctx, r, policy, b)
	if err != nil {
		return failure(fmt.Errorf("failed to configure binding: %w", err))
	}
	var verdicts []verdict
	for _, param := range params {
		ok, err := p.conditions(ctx, r, in, policy, param)
		if err != nil {
			verdicts = append(verdicts, failure(err)...)
			continue
		}
		if !ok {
			continue
		}
		found, err := p.programs.run(ctx, r, in, policy, param, base)
		if err != nil {
			found = append(found, failure(err)...)
		}
		verdicts = append(verdicts, found...)
	}
	return verdicts
}

func (p *policies) conditions(ctx context.Context, r *Request, in invocation, policy *admissionregistrationv1.ValidatingAdmissionPolicy, param runtime.Object) (bool, error) {
	if len(policy.Spec.MatchConditions) == 0 {
		return true, nil
	}
	in.hook.conditions = policy.Spec.MatchConditions
	return p.hooks.matcher.conditions(ctx, r, in, param, policy.Spec.ParamKind != nil)
}

// matches checks the policy's and the binding's constraints. The policy's say
// in which version the object is judged.
func (p *policies) matches(ctx context.Context, r *Request, policy *admissionregistrationv1.ValidatingAdmissionPolicy, b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) (invocation, bool, error) {
	if policy.Spec.MatchConstraints == nil {
		return invocation{}, false, nil
	}
	in, ok, err := p.matchesResources(ctx, r, policy.Spec.MatchConstraints)
	if !ok || err != nil || b.Spec.MatchResources == nil {
		return in, ok, err
	}
	_, ok, err = p.matchesResources(ctx, r, b.Spec.MatchResources)
	return in, ok, err
}

func (p *policies) matchesResources(ctx context.Context, r *Request, m *admissionregistrationv1.MatchResources) (invocation, bool, error) {
	exact := m.MatchPolicy != nil && *m.MatchPolicy == admissionregistrationv1.Exact
	if _, excluded := p.hooks.byRule(r, hook{rules: rulesFor(r, m.ExcludeResourceRules), exact: exact}); excluded {
		return invocation{}, false, nil
	}
	h := hook{rules: rulesFor(r, m.ResourceRules), exact: exact, namespaces: m.NamespaceSelector, objects: m.ObjectSelector}
	if len(m.ResourceRules) == 0 { // a binding that does not narrow its policy down
		h.rules = []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
		}}
	}
	return p.hooks.invocation(ctx, r, h)
}

// rulesFor are the rules that do not ask for another name.
func rulesFor(r *Request, named []admissionregistrationv1.NamedRuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	var rules []admissionregistrationv1.RuleWithOperations
	for _, n := range named {
		if len(n.ResourceNames) == 0 || slices.Contains(n.ResourceNames, r.Name) {
			rules = append(rules, n.RuleWithOperations)
		}
	}
	return rules
}

// params are the objects that a binding takes its parameters from; one nil if
// there is nothing to take.
func (p *policies) params(ctx context.Context, r *Request, policy *admissionregistrationv1.ValidatingAdmissionPolicy, b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) ([]runtime.Object, error) {
	kind, ref := policy.Spec.ParamKind, b.Spec.ParamRef
	if kind == nil || ref == nil {
		return []runtime.Object{nil}, nil
	}
	if p.hooks.kinds == nil {
		return nil, fmt.Errorf("no table of kinds to find %s in", kind.Kind)
	}
	row := p.hooks.kinds.FindKind(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
	if row == nil {
		return nil, fmt.Errorf("failed to find resource referenced by paramKind: '%s, Kind=%s'", kind.APIVersion, kind.Kind)
	}
	namespace := ""
	if row.Namespaced {
		if namespace = ref.Namespace; namespace == "" {
			namespace = r.Namespace
		}
		if namespace == "" {
			return nil, fmt.Errorf("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
		}
	}
	found, err := p.findParams(ctx, row.Stored().GroupResource(), namespace, ref)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if a := ref.ParameterNotFoundAction; a != nil && *a == admissionregistrationv1.AllowAction {
			return nil, nil
		}
		return nil, fmt.Errorf("no params found for policy binding with `Deny` parameterNotFoundAction")
	}
	as := invocation{row: row, kind: row.GroupVersionKind}
	for i := range found {
		if found[i], err = as.convert(found[i]); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (p *policies) findParams(ctx context.Context, resource schema.GroupResource, namespace string, ref *admissionregistrationv1.ParamRef) ([]runtime.Object, error) {
	if ref.Name != "" {
		obj, err := p.hooks.reader.Get(ctx, resource, namespace, ref.Name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return []runtime.Object{obj}, err
	}
	selector, err := metav1.LabelSelectorAsSelector(ref.Selector)
	if err != nil {
		return nil, err
	}
	all, err := p.hooks.reader.List(ctx, resource, namespace)
	if err != nil {
		return nil, err
	}
	var found []runtime.Object
	for _, obj := range all {
		if m, ok := obj.(metav1.Object); ok && selector.Matches(labels.Set(m.GetLabels())) {
			found = append(found, obj)
		}
	}
	return found, nil
}

// act does what the bindings want done about the verdicts: warn, note, refuse.
func (p *policies) act(r *Request, verdicts []verdict) error {
	var refusal error
	var notes []map[string]any
	for _, v := range verdicts {
		for _, action := range v.actions {
			switch action {
			case admissionregistrationv1.Deny:
				if refusal == nil {
					refusal = v.refusal(r)
				}
			case admissionregistrationv1.Warn:
				if r.Warn != nil {
					r.Warn(fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", v.policy, v.binding, v.message))
				}
			case admissionregistrationv1.Audit:
				notes = append(notes, map[string]any{
					"message": v.message, "policy": v.policy, "binding": v.binding, "expressionIndex": fmt.Sprint(v.expression), "validationActions": v.actions,
				})
			}
		}
	}
	if len(notes) > 0 && r.Annotate != nil {
		if text, err := json.Marshal(notes); err == nil {
			r.Annotate("validation.policy.admission.k8s.io/validation_failure", string(text))
		}
	}
	return refusal
}

func (v verdict) refusal(r *Request) error {
	text := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", v.policy, v.binding, v.message)
	err := r.forbid("%s", text)
	err.ErrStatus.Reason = v.reason
	err.ErrStatus.Code = http.StatusUnprocessableEntity
	switch v.reason {
	case metav1.StatusReasonForbidden:
		err.ErrStatus.Code = http.StatusForbidden
	case metav1.StatusReasonUnauthorized:
		err.ErrStatus.Code = http.StatusUnauthorized
	case metav1.StatusReasonRequestEntityTooLarge:
		err.ErrStatus.Code = http.StatusRequestEntityTooLarge
	}
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Message: text})
	return err
}
