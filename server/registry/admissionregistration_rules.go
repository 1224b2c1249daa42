package registry

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"orrery.dev/api"
)

// The expressions of webhooks and policies have to compile.

// expression is one of them as the compiler wants it; a name makes it a variable.
type expression struct {
	name, text string
	types      []*cel.Type
}

func (e *expression) GetExpression() string    { return e.text }
func (e *expression) ReturnTypes() []*cel.Type { return e.types }
func (e *expression) GetName() string          { return e.name }

// compiler compiles what stands alone. It takes a while to make.
var compiler = sync.OnceValue(func() celplugin.Compiler {
	return celplugin.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// compiles reports why an expression doesn't compile.
func compiles(c celplugin.Compiler, e *expression, may celplugin.OptionalVariableDeclarations, at *field.Path) field.ErrorList {
	return compileError(c.CompileCELExpression(e, may, environment.NewExpressions).Error, e.text, at)
}

func compileError(err *apiservercel.Error, text string, at *field.Path) field.ErrorList {
	switch {
	case err == nil:
		return nil
	case err.Type == apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(at, err.Detail)}
	case err.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(at, text, err.Detail)}
	}
	return field.ErrorList{field.InternalError(at, err)}
}

// validConditions checks match conditions.
func validConditions(conditions []admissionv1.MatchCondition, params bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	const most = 64
	if len(conditions) > most {
		errs = append(errs, field.TooMany(at, len(conditions), most))
	}
	seen := map[string]bool{}
	for i, c := range conditions {
		here := at.Index(i)
		if text := strings.TrimSpace(c.Expression); text == "" {
			errs = append(errs, field.Required(here.Child("expression"), ""))
		} else {
			e := &expression{text: text, types: []*cel.Type{cel.BoolType}}
			errs = append(errs, compiles(compiler(), e, celplugin.OptionalVariableDeclarations{HasParams: params, HasAuthorizer: true}, here.Child("expression"))...)
		}
		if c.Name == "" {
			errs = append(errs, field.Required(here.Child("name"), ""))
			continue
		}
		for _, complaint := range validation.IsQualifiedName(c.Name) {
			errs = append(errs, field.Invalid(here.Child("name"), c.Name, complaint))
		}
		if seen[c.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), c.Name))
		}
		seen[c.Name] = true
	}
	return errs
}

func validateValidatingWebhooks(c, old *admissionv1.ValidatingWebhookConfiguration) field.ErrorList {
	conditions := func(c *admissionv1.ValidatingWebhookConfiguration) (all [][]admissionv1.MatchCondition) {
		if c != nil {
			for _, w := range c.Webhooks {
				all = append(all, w.MatchConditions)
			}
		}
		return all
	}
	return append(api.ValidateValidatingWebhooks(c, old), changedConditions(conditions(c), conditions(old), old != nil)...)
}

func validateMutatingWebhooks(c, old *admissionv1.MutatingWebhookConfiguration) field.ErrorList {
	conditions := func(c *admissionv1.MutatingWebhookConfiguration) (all [][]admissionv1.MatchCondition) {
		if c != nil {
			for _, w := range c.Webhooks {
				all = append(all, w.MatchConditions)
			}
		}
		return all
	}
	return append(api.ValidateMutatingWebhooks(c, old), changedConditions(conditions(c), conditions(old), old != nil)...)
}

// changedConditions checks the conditions of a configuration's webhooks, by
// webhook. Those of an update are checked only if they changed, so that a rule
// made stricter locks nobody out of what is stored.
func changedConditions(now, before [][]admissionv1.MatchCondition, update bool) (errs field.ErrorList) {
	if update && reflect.DeepEqual(now, before) {
		return nil
	}
	for i, conditions := range now {
		errs = append(errs, validConditions(conditions, false, field.NewPath("webhooks").Index(i).Child("matchConditions"))...)
	}
	return errs
}

// policyExpressions checks the expressions of one policy, which may name its
// variables.
type policyExpressions struct {
	compiler celplugin.Compiler
	composed *celplugin.CompositedCompiler // the same; nil if there are no variables
	may      celplugin.OptionalVariableDeclarations
}

func newPolicyExpressions(params *admissionv1.ParamKind, composed bool) (*policyExpressions, error) {
	may := celplugin.OptionalVariableDeclarations{HasParams: params != nil, HasAuthorizer: true}
	if !composed {
		return &policyExpressions{compiler(), nil, may}, nil
	}
	c, err := celplugin.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, err
	}
	return &policyExpressions{c, c, may}, nil
}

var identifier = regexp.MustCompile("^[_a-zA-Z][_a-zA-Z0-9]*$")

// reserved words of the expression language are no names.
var reserved = []string{
	"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package",
	"namespace", "return", "var", "void", "while",
}

// variables checks variables, each of which those after it may name.
func (p *policyExpressions) variables(all []admissionv1.Variable, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, v := range all {
		here := at.Index(i)
		switch {
		case strings.TrimSpace(v.Name) == "":
			errs = append(errs, field.Required(here.Child("name"), "name is not specified"))
		case !identifier.MatchString(v.Name), slices.Contains(reserved, v.Name):
			errs = append(errs, field.Invalid(here.Child("name"), v.Name, "must be a valid CEL identifier"))
		}
		if strings.TrimSpace(v.Expression) == "" {
			errs = append(errs, field.Required(here.Child("expression"), "expression is not specified"))
			continue
		}
		e := &expression{v.Name, v.Expression, []*cel.Type{cel.AnyType, cel.DynType}}
		result := p.composed.CompileAndStoreVariable(e, p.may, environment.NewExpressions)
		errs = append(errs, compileError(result.Error, v.Expression, here.Child("expression"))...)
	}
	return errs
}

func (p *policyExpressions) validation(v *admissionv1.Validation, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(v.Expression) == "" {
		errs = append(errs, field.Required(at.Child("expression"), "expression is not specified"))
	} else {
		errs = append(errs, compiles(p.compiler, &expression{text: v.Expression, types: []*cel.Type{cel.BoolType}}, p.may, at.Child("expression"))...)
	}
	switch {
	case v.MessageExpression == "":
	case strings.TrimSpace(v.MessageExpression) == "":
		errs = append(errs, field.Invalid(at.Child("messageExpression"), v.MessageExpression, "must be non-empty if specified"))
	default:
		may := p.may
		may.HasAuthorizer = false
		errs = append(errs, compiles(p.compiler, &expression{text: v.MessageExpression, types: []*cel.Type{cel.StringType}}, may, at.Child("messageExpression"))...)
	}
	return errs
}

func (p *policyExpressions) annotation(a *admissionv1.AuditAnnotation, at *field.Path) field.ErrorList {
	const most = 5 * 1024
	text := strings.TrimSpace(a.ValueExpression)
	switch {
	case text == "":
		return field.ErrorList{field.Required(at, "valueExpression is not specified")}
	case len(text) > most:
		return field.ErrorList{field.Required(at, "must not exceed 5120 bytes in length")}
	}
	e := &expression{text: text, types: []*cel.Type{cel.StringType, cel.NullType}}
	return compileError(p.compiler.CompileCELExpression(e, p.may, environment.NewExpressions).Error, a.ValueExpression, at)
}

func (p *policyExpressions) mutation(m *admissionv1.Mutation, at *field.Path) field.ErrorList {
	e := &expression{}
	switch {
	case m.PatchType == admissionv1.PatchTypeJSONPatch && m.JSONPatch != nil:
		e.text, e.types = m.JSONPatch.Expression, []*cel.Type{cel.ListType(celtypes.NewObjectType("JSONPatch"))}
		at = at.Child("jsonPatch", "expression")
	case m.PatchType == admissionv1.PatchTypeApplyConfiguration && m.ApplyConfiguration != nil:
		e.text, e.types = m.ApplyConfiguration.Expression, []*cel.Type{celtypes.NewObjectType("Object")}
		at = at.Child("applyConfiguration", "expression")
	default:
		return nil // told elsewhere
	}
	if e.text = strings.TrimSpace(e.text); e.text == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	may := p.may
	may.HasPatchTypes = true
	return compiles(p.compiler, e, may, at)
}

func validateValidatingPolicy(p, old *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	errs := api.ValidateValidatingPolicy(p, old)
	if old != nil && reflect.DeepEqual(p.Spec, old.Spec) {
		return errs
	}
	at := field.NewPath("spec")
	errs = append(errs, validConditions(p.Spec.MatchConditions, p.Spec.ParamKind != nil, at.Child("matchConditions"))...)
	expressions, err := newPolicyExpressions(p.Spec.ParamKind, len(p.Spec.Variables) > 0)
	if err != nil {
		return append(errs, field.InternalError(at, errors.New("the compiler of expressions: "+err.Error())))
	}
	errs = append(errs, expressions.variables(p.Spec.Variables, at.Child("variables"))...)
	for i := range p.Spec.Validations {
		errs = append(errs, expressions.validation(&p.Spec.Validations[i], at.Child("validations").Index(i))...)
	}
	for i := range p.Spec.AuditAnnotations {
		errs = append(errs, expressions.annotation(&p.Spec.AuditAnnotations[i], at.Child("auditAnnotations").Index(i).Child("valueExpression"))...)
	}
	return errs
}

func validateMutatingPolicy(p, old *admissionv1.MutatingAdmissionPolicy) field.ErrorList {
	errs := api.ValidateMutatingPolicy(p, old)
	if old != nil && reflect.DeepEqual(p.Spec, old.Spec) {
		return errs
	}
	at := field.NewPath("spec")
	errs = append(errs, validConditions(p.Spec.MatchConditions, p.Spec.ParamKind != nil, at.Child("matchConditions"))...)
	expressions, err := newPolicyExpressions(p.Spec.ParamKind, true)
	if err != nil {
		return append(errs, field.InternalError(at, errors.New("the compiler of expressions: "+err.Error())))
	}
	errs = append(errs, expressions.variables(p.Spec.Variables, at.Child("variables"))...)
	for i := range p.Spec.Mutations {
		errs = append(errs, expressions.mutation(&p.Spec.Mutations[i], at.Child("mutations").Index(i))...)
	}
	return errs
}
