package admission

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/environment"
)

// programs keeps policies compiled.
type programs struct {
	reader Reader
	authz  authorizer.UnconditionalAuthorizer

	mu       sync.Mutex // protects compiled
	compiled map[string]*program
}

// program is a policy, ready to run. The evaluators' results stand in the order
// of the policy's validations and annotations.
type program struct {
	validations, messages, annotations celplugin.ConditionEvaluator
}

func newPrograms(reader Reader, authz authorizer.UnconditionalAuthorizer) *programs {
	return &programs{reader: reader, authz: authz, compiled: map[string]*program{}}
}

// expression is one expression of a policy as the compiler wants it; a name
// makes it a variable.
type expression struct {
	name, text string
	types      []*cel.Type
}

func (e *expression) GetExpression() string    { return e.text }
func (e *expression) ReturnTypes() []*cel.Type { return e.types }
func (e *expression) GetName() string          { return e.name }

func (p *programs) of(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (*program, error) {
	key := fmt.Sprintf("%s %s %d", policy.UID, policy.ResourceVersion, policy.Generation)
	p.mu.Lock()
	defer p.mu.Unlock()
	if done, ok := p.compiled[key]; ok {
		return done, nil
	}
	if len(p.compiled) >= compiledSize {
		clear(p.compiled)
	}
	done, err := compilePolicy(policy)
	if err != nil {
		return nil, err
	}
	p.compiled[key] = done
	return done, nil
}

func compilePolicy(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (*program, error) {
	compiler, err := celplugin.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, err
	}
	declared := celplugin.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	for _, v := range policy.Spec.Variables {
		compiler.CompileAndStoreVariable(&expression{v.Name, v.Expression, []*cel.Type{cel.AnyType, cel.DynType}}, declared, environment.StoredExpressions)
	}
	var validations, messages, annotations []celplugin.ExpressionAccessor
	for _, v := range policy.Spec.Validations {
		validations = append(validations, &expression{text: v.Expression, types: []*cel.Type{cel.BoolType}})
		if v.MessageExpression == "" {
			messages = append(messages, nil)
			continue
		}
		messages = append(messages, &expression{text: v.MessageExpression, types: []*cel.Type{cel.StringType}})
	}
	for _, a := range policy.Spec.AuditAnnotations {
		annotations = append(annotations, &expression{text: a.ValueExpression, types: []*cel.Type{cel.StringType, cel.NullType}})
	}
	plain := declared
	plain.HasAuthorizer = false
	return &program{
		validations: compiler.CompileCondition(validations, declared, environment.StoredExpressions),
		messages:    compiler.CompileCondition(messages, plain, environment.StoredExpressions),
		annotations: compiler.CompileCondition(annotations, declared, environment.StoredExpressions),
	}, nil
}

// run evaluates a policy for one object of parameters, and returns what it finds
// wrong, each as base with a message.
func (p *programs) run(ctx context.Context, r *Request, in invocation, policy *admissionregistrationv1.ValidatingAdmissionPolicy, param runtime.Object, base verdict) ([]verdict, error) {
	program, err := p.of(policy)
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
		results, budget, err = e.ForInput(ctx, attributes, request, celplugin.OptionalVariableBindings{VersionedParams: param, Authorizer: p.authz}, namespace, budget)
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

func (p *programs) annotate(r *Request, policy *admissionregistrationv1.ValidatingAdmissionPolicy, program *program, evaluate func(celplugin.ConditionEvaluator) ([]celplugin.EvaluationResult, error)) error {
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

// namespace is what expressions see as namespaceObject.
func (p *programs) namespace(ctx context.Context, r *Request) (*corev1.Namespace, error) {
	if r.Namespace == "" || r.Is("", "namespaces") {
		return nil, nil
	}
	ns, err := get[*corev1.Namespace](ctx, p.reader, core("namespaces"), "", r.Namespace)
	if err != nil {
		return nil, err
	}
	return celplugin.CreateNamespaceObject(ns), nil
}
