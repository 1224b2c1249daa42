package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

func (p *policies) mutating() Plugin {
	return Plugin{
		Name: "MutatingAdmissionPolicy",
		// What is deleted has no new state that could be changed.
		On:     func(r *Request) bool { return !exempt(r) && r.Operation != Delete && r.Object != nil },
		Mutate: p.mutate,
	}
}

// mutate applies one policy after another; each sees what those before it made
// of the object. What goes wrong is gathered, and refuses the request at the end.
func (p *policies) mutate(ctx context.Context, r *Request) error {
	all, err := listByName[*admissionregistrationv1.MutatingAdmissionPolicy](ctx, p.hooks.reader, "mutatingadmissionpolicies")
	if err != nil || len(all) == 0 {
		return err
	}
	bindings, err := listByName[*admissionregistrationv1.MutatingAdmissionPolicyBinding](ctx, p.hooks.reader, "mutatingadmissionpolicybindings")
	if err != nil {
		return err
	}
	var failures []policyFailure
	for _, policy := range all {
		for _, b := range bindings {
			if b.Spec.PolicyName != policy.Name {
				continue
			}
			failed, err := p.change(ctx, r, policy, b)
			if err != nil {
				return err
			}
			failures = append(failures, failed...)
		}
	}
	return refusalOf(r, failures)
}

// policyFailure is why a mutating policy could not do what it should.
type policyFailure struct {
	policy, binding string
	err             error
	reason          metav1.StatusReason
}

func (f policyFailure) Error() string {
	return fmt.Sprintf("policy '%s' with binding '%s' denied request: %v", f.policy, f.binding, f.err)
}

// refusalOf refuses a request by the first of the failures; all are its causes.
func refusalOf(r *Request, failures []policyFailure) error {
	if len(failures) == 0 {
		return nil
	}
	refusal := r.forbid("admission request denied by policy")
	refusal.ErrStatus.Message = failures[0].Error()
	if reason := failures[0].reason; reason != "" {
		refusal.ErrStatus.Reason = reason
	}
	for _, f := range failures {
		refusal.ErrStatus.Details.Causes = append(refusal.ErrStatus.Details.Causes, metav1.StatusCause{Message: f.Error()})
	}
	return refusal
}

func mutatingTerms(m *admissionregistrationv1.MutatingAdmissionPolicy) terms {
	s := &m.Spec
	failOpen := s.FailurePolicy != nil && *s.FailurePolicy == admissionregistrationv1.Ignore
	return terms{m.Name, failOpen, s.ParamKind, s.MatchConstraints, s.MatchConditions}
}

// change applies one policy under one binding.
func (p *policies) change(ctx context.Context, r *Request, m *admissionregistrationv1.MutatingAdmissionPolicy, b *admissionregistrationv1.MutatingAdmissionPolicyBinding) (failed []policyFailure, err error) {
	t := mutatingTerms(m)
	fail := func(err error, reason metav1.StatusReason) {
		if !t.failOpen {
			failed = append(failed, policyFailure{m.Name, b.Name, err, reason})
		}
	}
	in, params, err := p.applies(ctx, r, t, binding{b.Name, b.Spec.ParamRef, b.Spec.MatchResources})
	if err != nil {
		fail(err, "")
		return failed, nil
	}
	for _, param := range params {
		step := "policy " + m.Name + " " + b.Name + " " + nameOf(param)
		if !r.due(step) {
			continue
		}
		ok, err := p.conditions(ctx, r, in, t, param)
		if err != nil {
			fail(err, metav1.StatusReasonInvalid)
			continue
		}
		if !ok {
			continue
		}
		errs, err := p.mutations(ctx, r, in, m, param)
		if err != nil {
			return nil, err
		}
		for _, err := range errs {
			fail(err, metav1.StatusReasonInvalid)
		}
		r.ran(step, m.Spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy)
	}
	return failed, nil
}

// nameOf tells the objects of parameters apart.
func nameOf(param runtime.Object) string {
	if param == nil {
		return ""
	}
	m, err := meta.Accessor(param)
	if err != nil {
		return ""
	}
	return m.GetNamespace() + "/" + m.GetName()
}

// mutations makes a policy's changes one after another. Those that fail are
// skipped and told; an error of the API ends the request.
func (p *policies) mutations(ctx context.Context, r *Request, in invocation, m *admissionregistrationv1.MutatingAdmissionPolicy, param runtime.Object) (failed []error, err error) {
	program, err := p.changes.of(m, func() (*mutatingProgram, error) { return compileMutating(m) })
	if err != nil {
		return []error{err}, nil
	}
	ctx = program.context(ctx)
	for _, mutation := range program.mutations {
		err := p.mutation(ctx, r, in, mutation, param)
		var status *apierrors.StatusError
		switch {
		case errors.As(err, &status):
			return nil, err
		case err != nil:
			failed = append(failed, err)
		}
	}
	return failed, nil
}

// mutation makes one change. The object that an expression sees, and that it
// changes, is of the version that the policy matched.
func (p *policies) mutation(ctx context.Context, r *Request, in invocation, m mutation, param runtime.Object) error {
	result, err := p.evaluate(ctx, r, in, m, param)
	if err != nil {
		return err
	}
	var after []byte
	before, err := in.encode(r.Object)
	if err != nil {
		return err
	}
	if m.kind == admissionregistrationv1.PatchTypeJSONPatch {
		after, err = patchedBy(result, before)
	} else {
		after, err = p.merged(result, r.Object, in)
	}
	if err != nil || after == nil {
		return err
	}
	obj, err := in.decode(after, r.Object)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	changed := r.Object.DeepCopyObject()
	if err := replace(r.Object, obj); err != nil {
		return err
	}
	r.changed = r.changed || !reflect.DeepEqual(changed, r.Object)
	return nil
}

func (p *policies) evaluate(ctx context.Context, r *Request, in invocation, m mutation, param runtime.Object) (ref.Val, error) {
	if errs := m.CompilationErrors(); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	attributes, err := in.attributes(r)
	if err != nil {
		return nil, err
	}
	namespace, err := p.namespace(ctx, r)
	if err != nil {
		return nil, err
	}
	request := celplugin.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource(in.resource), metav1.GroupVersionKind(in.kind))
	bound := celplugin.OptionalVariableBindings{VersionedParams: param, Authorizer: p.hooks.matcher.authz}
	result, _, err := m.ForInput(ctx, attributes, request, bound, namespace, celconfig.RuntimeCELCostBudget)
	if err != nil {
		return nil, err
	}
	return result.EvalResult, result.Error
}

// patchedBy applies the operations that a JSONPatch expression gave to an
// object; nil if a test among them says that the patch is not meant for it.
func patchedBy(operations ref.Val, before []byte) ([]byte, error) {
	list, ok := operations.(traits.Lister)
	if !ok {
		return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	patch := jsonpatch.Patch{}
	for it := list.Iterator(); it.HasNext().Value() == true; {
		operation, err := operationOf(it.Next())
		if err != nil {
			return nil, err
		}
		patch = append(patch, operation)
	}
	after, err := patch.Apply(before)
	if errors.Is(err, jsonpatch.ErrTestFailed) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	return after, nil
}

// operationOf is one operation of a JSON patch.
func operationOf(v ref.Val) (jsonpatch.Operation, error) {
	native, err := v.ConvertToNative(reflect.TypeFor[*celmutation.JSONPatchVal]())
	if err != nil {
		return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch: %w", err)
	}
	op, ok := native.(*celmutation.JSONPatchVal)
	if !ok {
		return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of %T", native)
	}
	operation := jsonpatch.Operation{"op": quoted(op.Op), "path": quoted(op.Path)}
	if op.From != "" {
		operation["from"] = quoted(op.From)
	}
	if op.Val == nil {
		return operation, nil
	}
	if err := checkNames(op.Val); err != nil {
		return nil, err
	}
	plain, err := op.Val.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
	}
	text, err := json.Marshal(plain)
	if err != nil {
		return nil, fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
	}
	raw := json.RawMessage(text)
	operation["value"] = &raw
	return operation, nil
}

func quoted(s string) *json.RawMessage {
	text, _ := json.Marshal(s) // a string
	raw := json.RawMessage(text)
	return &raw
}

// checkNames wants the types that an expression names to stand where such fields
// are: the compiler doesn't look at that.
func checkNames(v ref.Val) error {
	if obj, ok := v.(*dynamic.ObjectVal); ok {
		if err := obj.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return fmt.Errorf("type mismatch: %w", err)
		}
	}
	return nil
}

// merged is an object with what an ApplyConfiguration expression gave merged into
// it, by the rules of server-side apply. No field changes its owner.
func (p *policies) merged(configuration ref.Val, into runtime.Object, in invocation) ([]byte, error) {
	obj, ok := configuration.(*dynamic.ObjectVal)
	if !ok {
		return nil, fmt.Errorf("unsupported return type from ApplyConfiguration expression: %v", configuration.Type())
	}
	if err := checkNames(obj); err != nil {
		return nil, err
	}
	fields, ok := obj.Value().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid return type: %T", configuration)
	}
	if p.types == nil || in.row == nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("Resource kind %s not found. There can be a delay between when CustomResourceDefinitions are created and when they are available.", in.kind))
	}
	types, err := p.types(in.row)
	if err != nil {
		return nil, err
	}
	intent := &unstructured.Unstructured{Object: fields}
	intent.SetGroupVersionKind(in.kind)
	wanted, err := types.ObjectToTyped(intent)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: failed to convert patch object to typed object: %w", err)
	}
	if whole := atomics("", wanted.Schema(), wanted.TypeRef(), wanted.AsValue()); len(whole) > 0 {
		return nil, fmt.Errorf("error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s", strings.Join(whole, ", "))
	}
	shown, err := in.convert(into)
	if err != nil {
		return nil, err
	}
	live, err := types.ObjectToTyped(shown, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: failed to convert original object to typed object: %w", err)
	}
	merged, err := live.Merge(wanted)
	if err != nil {
		return nil, fmt.Errorf("error applying patch: failed to merge patch: %w", err)
	}
	return value.ToJSON(merged.AsValue())
}

// atomics lists the places in a configuration that would be replaced as a whole,
// with all that the object has there. That is hardly what a policy's author
// means.
func atomics(at string, s *schema.Schema, ref schema.TypeRef, v value.Value) (found []string) {
	atom, ok := s.Resolve(ref)
	switch {
	case !ok:
	case v.IsMap() && atom.Map != nil:
		if atom.Map.ElementRelationship == schema.Atomic {
			found = append(found, at)
		}
		v.AsMap().Iterate(func(key string, below value.Value) bool {
			if f, ok := atom.Map.FindField(key); ok {
				found = append(found, atomics(at+fieldpath.PathElement{FieldName: &key}.String(), s, f.Type, below)...)
			}
			return true
		})
	case v.IsList() && atom.List != nil:
		if atom.List.ElementRelationship == schema.Atomic {
			found = append(found, at)
		}
		for i := range v.AsList().Length() {
			found = append(found, atomics(at+fieldpath.PathElement{Index: &i}.String(), s, atom.List.ElementType, v.AsList().At(i))...)
		}
	}
	return found
}
