package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

func (p *policies) validating() Plugin {
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
	all, err := listByName[*admissionregistrationv1.ValidatingAdmissionPolicy](ctx, p.hooks.reader, "validatingadmissionpolicies")
	if err != nil || len(all) == 0 {
		return err
	}
	bindings, err := listByName[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](ctx, p.hooks.reader, "validatingadmissionpolicybindings")
	if err != nil {
		return err
	}
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

func validatingTerms(v *admissionregistrationv1.ValidatingAdmissionPolicy) terms {
	s := &v.Spec
	failOpen := s.FailurePolicy != nil && *s.FailurePolicy == admissionregistrationv1.Ignore
	return terms{v.Name, failOpen, s.ParamKind, s.MatchConstraints, s.MatchConditions}
}

// judge asks one policy under one binding. What goes wrong on the way counts
// against the request, or not, as the policy's failurePolicy says.
func (p *policies) judge(ctx context.Context, r *Request, v *admissionregistrationv1.ValidatingAdmissionPolicy, b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) []verdict {
	t := validatingTerms(v)
	base := verdict{policy: v.Name, binding: b.Name, actions: b.Spec.ValidationActions, reason: metav1.StatusReasonInvalid}
	failure := func(err error) []verdict {
		if t.failOpen {
			return nil
		}
		v := base
		v.message = err.Error()
		return []verdict{v}
	}
	in, params, err := p.applies(ctx, r, t, binding{b.Name, b.Spec.ParamRef, b.Spec.MatchResources})
	if err != nil {
		return failure(err)
	}
	var verdicts []verdict
	for _, param := range params {
		ok, err := p.conditions(ctx, r, in, t, param)
		if err != nil {
			verdicts = append(verdicts, failure(err)...)
			continue
		}
		if !ok {
			continue
		}
		found, err := p.run(ctx, r, in, v, param, base)
		if err != nil {
			found = append(found, failure(err)...)
		}
		verdicts = append(verdicts, found...)
	}
	return verdicts
}

// run evaluates a policy for one object of parameters, and returns what it finds
// wrong, each as base with a message.
func (p *policies) run(ctx context.Context, r *Request, in invocation, policy *admissionregistrationv1.ValidatingAdmissionPolicy, param runtime.Object, base verdict) ([]verdict, error) {
	program, err := p.judgments.of(policy, func() (*validatingProgram, error) { return compileValidating(policy) })
	if err != nil {
		return nil, err
	}
	attributes, err := in.attributes(r)
	if err != nil {
		return nil, err
	}
	request := celplugin.CreateAdmissionRequest(attributes.Attributes, metav1.GroupVersionResource(in.resource), metav1.GroupVersionKind(in.kind))
	namespace, err := p.namespace(ctx, r)
	if err != nil {
		return nil, err
	}
	budget := int64(celconfig.RuntimeCELCostBudget)
	evaluate := func(e celplugin.ConditionEvaluator) (results []celplugin.EvaluationResult, err error) {
		results, budget, err = e.ForInput(ctx, attributes, request, celplugin.OptionalVariableBindings{VersionedParams: param, Authorizer: p.hooks.matcher.authz}, namespace, budget)
		return results, err
	}
	results, err := evaluate(program.validations)
	if err != nil {
		return nil, err
	}
	messages, err := evaluate(program.messages)
	if err != nil {
		return nil, err
	}
	if err := p.annotate(r, policy, program, evaluate); err != nil {
		return nil, err
	}
	ignore := policy.Spec.FailurePolicy != nil && *policy.Spec.FailurePolicy == admissionregistrationv1.Ignore
	var wrong []verdict
	for i, result := range results {
		v := base
		v.expression = i
		validation := policy.Spec.Validations[i]
		switch {
		case result.Error != nil && ignore, result.Error == nil && result.EvalResult == celtypes.True:
			continue
		case result.Error != nil:
			v.message = result.Error.Error()
		default:
			v.message = messageOf(validation, messages[i])
			if validation.Reason != nil {
				v.reason = *validation.Reason
			}
		}
		wrong = append(wrong, v)
	}
	return wrong, nil
}

// messageOf is what a policy's author has to say; a message expression that
// fails, or gives nothing that fits on a line, falls back to the fixed message.
func messageOf(v admissionregistrationv1.Validation, computed celplugin.EvaluationResult) string {
	const longest = 5 * 1024
	if computed.Error == nil && computed.EvalResult != nil {
		if text, ok := computed.EvalResult.Value().(string); ok {
			text = strings.TrimSpace(text)
			if text != "" && len(text) <= longest && !strings.ContainsAny(text, "\n\r") {
				return text
			}
		}
	}
	if text := strings.TrimSpace(v.Message); text != "" {
		return text
	}
	return fmt.Sprintf("failed expression: %v", strings.TrimSpace(v.Expression))
}

func (p *policies) annotate(r *Request, policy *admissionregistrationv1.ValidatingAdmissionPolicy, program *validatingProgram, evaluate func(celplugin.ConditionEvaluator) ([]celplugin.EvaluationResult, error)) error {
	if len(policy.Spec.AuditAnnotations) == 0 {
		return nil
	}
	results, err := evaluate(program.annotations)
	if err != nil {
		return err
	}
	for i, result := range results {
		if result.Error != nil {
			return fmt.Errorf("valueExpression '%s' resulted in error: %w", policy.Spec.AuditAnnotations[i].ValueExpression, result.Error)
		}
		if text, ok := result.EvalResult.Value().(string); ok && strings.TrimSpace(text) != "" && r.Annotate != nil {
			r.Annotate(policy.Name+"/"+policy.Spec.AuditAnnotations[i].Key, strings.TrimSpace(text))
		}
	}
	return nil
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
