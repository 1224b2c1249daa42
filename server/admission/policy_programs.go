package admission

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// programs keeps policies compiled, by what identifies one state of a policy.
type programs[P any] struct {
	mu       sync.Mutex // protects compiled
	compiled map[string]P
}

func (p *programs[P]) of(policy metav1.Object, compile func() (P, error)) (P, error) {
	key := fmt.Sprintf("%s %s %d", policy.GetUID(), policy.GetResourceVersion(), policy.GetGeneration())
	p.mu.Lock()
	defer p.mu.Unlock()
	if done, ok := p.compiled[key]; ok {
		return done, nil
	}
	if p.compiled == nil || len(p.compiled) >= compiledSize {
		p.compiled = map[string]P{}
	}
	done, err := compile()
	if err == nil {
		p.compiled[key] = done
	}
	return done, err
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

// newCompiler is a compiler whose expressions know the variables, and what else
// they may name.
func newCompiler(variables []admissionregistrationv1.Variable, params *admissionregistrationv1.ParamKind) (*celplugin.CompositedCompiler, celplugin.OptionalVariableDeclarations, error) {
	declared := celplugin.OptionalVariableDeclarations{HasParams: params != nil, HasAuthorizer: true}
	compiler, err := celplugin.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, declared, err
	}
	for _, v := range variables {
		compiler.CompileAndStoreVariable(&expression{v.Name, v.Expression, []*cel.Type{cel.AnyType, cel.DynType}}, declared, environment.StoredExpressions)
	}
	return compiler, declared, nil
}

// validatingProgram is a validating policy, ready to run. The evaluators' results
// stand in the order of the policy's validations and annotations.
type validatingProgram struct {
	validations, messages, annotations celplugin.ConditionEvaluator
}

func compileValidating(policy *admissionregistrationv1.ValidatingAdmissionPolicy) (*validatingProgram, error) {
	compiler, declared, err := newCompiler(policy.Spec.Variables, policy.Spec.ParamKind)
	if err != nil {
		return nil, err
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
	return &validatingProgram{
		validations: compiler.CompileCondition(validations, declared, environment.StoredExpressions),
		messages:    compiler.CompileCondition(messages, plain, environment.StoredExpressions),
		annotations: compiler.CompileCondition(annotations, declared, environment.StoredExpressions),
	}, nil
}

// mutatingProgram is a mutating policy, ready to run.
type mutatingProgram struct {
	mutations []mutation
	// context is one in which expressions find the policy's variables.
	context func(context.Context) celplugin.CompositionContext
}

// mutation is one step of a mutating policy.
type mutation struct {
	kind admissionregistrationv1.PatchType
	celplugin.MutatingEvaluator
}

func compileMutating(policy *admissionregistrationv1.MutatingAdmissionPolicy) (*mutatingProgram, error) {
	compiler, declared, err := newCompiler(policy.Spec.Variables, policy.Spec.ParamKind)
	if err != nil {
		return nil, err
	}
	declared.HasPatchTypes = true
	program := &mutatingProgram{context: compiler.CreateContext}
	for _, m := range policy.Spec.Mutations {
		e := &expression{}
		switch {
		case m.PatchType == admissionregistrationv1.PatchTypeJSONPatch && m.JSONPatch != nil:
			e.text, e.types = m.JSONPatch.Expression, []*cel.Type{cel.ListType(celtypes.NewObjectType("JSONPatch"))}
		case m.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
			e.text, e.types = m.ApplyConfiguration.Expression, []*cel.Type{celtypes.NewObjectType("Object")}
		default:
			return nil, fmt.Errorf("mutation of patchType %q has no expression", m.PatchType)
		}
		program.mutations = append(program.mutations, mutation{m.PatchType, compiler.CompileMutatingEvaluator(e, declared, environment.StoredExpressions)})
	}
	return program, nil
}
