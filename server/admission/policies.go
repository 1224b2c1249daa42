package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"

	"orrery.dev/server/registry"
)

// policies judges and changes requests by the cluster's admission policies: each
// that a binding puts into force, for each of the objects that the binding takes
// its parameters from. What validating and mutating policies have in common is
// here.
type policies struct {
	hooks     *webhooks // matches as for webhooks
	types     func(*registry.Kind) (managedfields.TypeConverter, error)
	judgments programs[*validatingProgram]
	changes   programs[*mutatingProgram]
}

func newPolicies(hooks *webhooks, types func(*registry.Kind) (managedfields.TypeConverter, error)) *policies {
	return &policies{hooks: hooks, types: types}
}

// terms is when a policy applies: what policies of both kinds have in common.
type terms struct {
	name        string
	failOpen    bool // failurePolicy Ignore
	paramKind   *admissionregistrationv1.ParamKind
	constraints *admissionregistrationv1.MatchResources
	conditions  []admissionregistrationv1.MatchCondition
}

// binding puts a policy into force, perhaps for fewer objects than it is about.
type binding struct {
	name   string
	params *admissionregistrationv1.ParamRef
	narrow *admissionregistrationv1.MatchResources
}

// listByName reads all objects of a resource of the group, in the order in which
// they are applied.
func listByName[T metav1.Object](ctx context.Context, reader Reader, resource string) ([]T, error) {
	all, err := list[T](ctx, reader, schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: resource}, "")
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all, err
}

// applies works out whether a policy is about a request under a binding, in which
// version it wants to see the object, and with which parameters; it is run once
// for each of those.
func (p *policies) applies(ctx context.Context, r *Request, t terms, b binding) (in invocation, params []runtime.Object, err error) {
	in, ok, err := p.matches(ctx, r, t, b)
	if err != nil || !ok {
		return in, nil, err
	}
	if params, err = p.params(ctx, r, t, b); err != nil {
		return in, nil, fmt.Errorf("failed to configure binding: %w", err)
	}
	return in, params, nil
}

// matches checks the policy's and the binding's constraints. The policy's say
// in which version the object is judged.
func (p *policies) matches(ctx context.Context, r *Request, t terms, b binding) (invocation, bool, error) {
	if t.constraints == nil {
		return invocation{}, false, nil
	}
	in, ok, err := p.matchesResources(ctx, r, t.constraints)
	if !ok || err != nil || b.narrow == nil {
		return in, ok, err
	}
	_, ok, err = p.matchesResources(ctx, r, b.narrow)
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

// conditions reports whether the policy's match conditions hold.
func (p *policies) conditions(ctx context.Context, r *Request, in invocation, t terms, param runtime.Object) (bool, error) {
	if len(t.conditions) == 0 {
		return true, nil
	}
	in.hook.conditions = t.conditions
	return p.hooks.matcher.conditions(ctx, r, in, param, t.paramKind != nil)
}

// params are the objects that a binding takes its parameters from; one nil if
// there is nothing to take.
func (p *policies) params(ctx context.Context, r *Request, t terms, b binding) ([]runtime.Object, error) {
	kind, ref := t.paramKind, b.params
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
	switch {
	case row.Namespaced:
		if namespace = ref.Namespace; namespace == "" {
			namespace = r.Namespace
		}
		if namespace == "" {
			return nil, errors.New("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
		}
	case ref.Namespace != "":
		return nil, errors.New("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
	}
	found, err := p.findParams(ctx, row.Stored().GroupResource(), namespace, ref)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if a := ref.ParameterNotFoundAction; a != nil && *a == admissionregistrationv1.AllowAction {
			return nil, nil
		}
		return nil, errors.New("no params found for policy binding with `Deny` parameterNotFoundAction")
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

// namespace is what expressions see as namespaceObject.
func (p *policies) namespace(ctx context.Context, r *Request) (*corev1.Namespace, error) {
	if r.Namespace == "" || r.Is("", "namespaces") {
		return nil, nil
	}
	ns, err := get[*corev1.Namespace](ctx, p.hooks.reader, core("namespaces"), "", r.Namespace)
	if err != nil {
		return nil, err
	}
	return celplugin.CreateNamespaceObject(ns), nil
}
