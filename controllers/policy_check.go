package controllers

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// checkPolicy compiles a policy's expressions for each kind that it names, with
// object, oldObject and params of the types that they will have. What has no
// known type may be anything.
func checkPolicy(policy *admissionregistrationv1.ValidatingAdmissionPolicy, from kindSchemas) ([]admissionregistrationv1.ExpressionWarning, error) {
	kinds, err := matchedKinds(policy, from)
	if err != nil {
		return nil, err
	}
	params, err := paramType(policy.Spec.ParamKind, from)
	if err != nil {
		return nil, err
	}
	var checkers []*expressionChecker
	for _, kind := range kinds {
		object, err := typeOf(kind, "object", from)
		if err != nil {
			return nil, err
		}
		if object == nil {
			continue
		}
		c, err := newExpressionChecker(kind, object, params, policy)
		if err != nil {
			return nil, err
		}
		checkers = append(checkers, c)
	}
	var warnings []admissionregistrationv1.ExpressionWarning
	check := func(path *field.Path, text string) {
		var found []string
		for _, c := range checkers {
			if complaint := c.check(text); complaint != "" {
				found = append(found, fmt.Sprintf("%v: %s\n", c.kind, complaint))
			}
		}
		if len(found) > 0 {
			warnings = append(warnings, admissionregistrationv1.ExpressionWarning{FieldRef: path.String(), Warning: strings.Join(found, "\n")})
		}
	}
	for i, v := range policy.Spec.Validations {
		path := field.NewPath("spec", "validations").Index(i)
		check(path.Child("expression"), v.Expression)
		if v.MessageExpression != "" {
			check(path.Child("messageExpression"), v.MessageExpression)
		}
	}
	return warnings, nil
}

func paramType(kind *admissionregistrationv1.ParamKind, from kindSchemas) (*apiservercel.DeclType, error) {
	if kind == nil {
		return nil, nil
	}
	gv, err := schema.ParseGroupVersion(kind.APIVersion)
	if err != nil {
		return nil, nil
	}
	return typeOf(gv.WithKind(kind.Kind), "params", from)
}

// typeOf makes a kind's schema a type of the expression language; role makes the
// name its own, should object and params be of one kind.
func typeOf(kind schema.GroupVersionKind, role string, from kindSchemas) (*apiservercel.DeclType, error) {
	s, err := from.schemaOf(kind)
	if err != nil || s == nil {
		return nil, err
	}
	t := common.SchemaDeclType(&openapi.Schema{Schema: s}, true)
	if t == nil {
		return nil, nil
	}
	return t.MaybeAssignTypeName(kind.Kind + "." + role), nil
}

// expressionChecker compiles expressions for one kind of object.
type expressionChecker struct {
	kind     schema.GroupVersionKind
	compiler *celplugin.CompositedCompiler
}

func newExpressionChecker(kind schema.GroupVersionKind, object, params *apiservercel.DeclType, policy *admissionregistrationv1.ValidatingAdmissionPolicy) (*expressionChecker, error) {
	request, namespace := celplugin.BuildRequestType(), celplugin.BuildNamespaceType()
	known := []*apiservercel.DeclType{request, namespace, object}
	names := []cel.EnvOption{
		variable(celplugin.RequestVarName, request), variable(celplugin.NamespaceVarName, namespace),
		variable(celplugin.ObjectVarName, object), variable(celplugin.OldObjectVarName, object),
		cel.Variable(celplugin.AuthorizerVarName, library.AuthorizerType),
	}
	if policy.Spec.ParamKind != nil {
		names = append(names, variable(celplugin.ParamsVarName, params))
		if params != nil {
			known = append(known, params)
		}
	}
	set, err := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: names, DeclTypes: known,
	})
	if err != nil {
		return nil, err
	}
	c := &expressionChecker{kind: kind}
	if c.compiler, err = celplugin.NewCompositedCompilerForTypeChecking(set); err != nil {
		return nil, err
	}
	c.compiler.Compiler = c
	for _, v := range policy.Spec.Variables {
		c.compiler.CompileAndStoreVariable(checkedExpression{v.Name, v.Expression}, celplugin.OptionalVariableDeclarations{}, environment.StoredExpressions)
	}
	return c, nil
}

// variable declares a name; without a type it may hold anything.
func variable(name string, t *apiservercel.DeclType) cel.EnvOption {
	if t == nil {
		return cel.Variable(name, cel.DynType)
	}
	return cel.Variable(name, t.CelType())
}

// check says what is wrong with an expression, or nothing.
func (c *expressionChecker) check(text string) string {
	result := c.CompileCELExpression(checkedExpression{text: text}, celplugin.OptionalVariableDeclarations{}, environment.StoredExpressions)
	if result.Error == nil {
		return ""
	}
	return result.Error.Error()
}

// CompileCELExpression implements the library's Compiler: it finds the type of an
// expression, and makes no program of it.
func (c *expressionChecker) CompileCELExpression(e celplugin.ExpressionAccessor, _ celplugin.OptionalVariableDeclarations, mode environment.Type) celplugin.CompilationResult {
	env, err := c.compiler.Env(mode)
	if err != nil {
		return celplugin.CompilationResult{Error: &apiservercel.Error{Type: apiservercel.ErrorTypeInternal, Detail: fmt.Sprintf("type checking error: fail to build env: %v", err)}}
	}
	ast, issues := env.Compile(e.GetExpression())
	if issues != nil {
		return celplugin.CompilationResult{Error: &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: issues.String()}}
	}
	return celplugin.CompilationResult{OutputType: ast.OutputType()}
}

// checkedExpression is an expression as the library wants it.
type checkedExpression struct{ name, text string }

func (e checkedExpression) GetName() string          { return e.name }
func (e checkedExpression) GetExpression() string    { return e.text }
func (e checkedExpression) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType} }

// schemaIn finds the schema of a kind in the OpenAPI document of its version.
func schemaIn(document []byte, kind schema.GroupVersionKind) (*spec.Schema, error) {
	var parsed struct {
		Components struct {
			Schemas map[string]*spec.Schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(document, &parsed); err != nil {
		return nil, err
	}
	all := parsed.Components.Schemas
	for name, s := range all {
		var kinds []schema.GroupVersionKind
		if err := s.Extensions.GetObject("x-kubernetes-group-version-kind", &kinds); err != nil {
			return nil, err
		}
		for _, k := range kinds {
			if k == kind {
				out := inlined(s, all, map[string]bool{name: true})
				return &out, nil
			}
		}
	}
	return nil, nil
}

// inlined puts what a schema refers to in place. above are the names that it is
// within: what holds itself is an object of which no more is known.
func inlined(s *spec.Schema, all map[string]*spec.Schema, above map[string]bool) spec.Schema {
	out := *s
	if name := referredTo(s); name != "" {
		target := all[name]
		if target == nil || above[name] {
			return spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
		}
		above = maps.Clone(above)
		above[name] = true
		out = *target
	}
	if len(out.Properties) > 0 {
		properties := make(map[string]spec.Schema, len(out.Properties))
		for name, p := range out.Properties {
			properties[name] = inlined(&p, all, above)
		}
		out.Properties = properties
	}
	if a := out.AdditionalProperties; a != nil && a.Schema != nil {
		values := inlined(a.Schema, all, above)
		out.AdditionalProperties = &spec.SchemaOrBool{Allows: a.Allows, Schema: &values}
	}
	if out.Items != nil && out.Items.Schema != nil {
		items := inlined(out.Items.Schema, all, above)
		out.Items = &spec.SchemaOrArray{Schema: &items}
	}
	return out
}

// referredTo is the name of the schema that stands for s; documents wrap such a
// reference in allOf to give it a description.
func referredTo(s *spec.Schema) string {
	refs := []spec.Ref{s.Ref}
	for _, part := range s.AllOf {
		refs = append(refs, part.Ref)
	}
	for _, ref := range refs {
		if ref.GetURL() != nil {
			return strings.TrimPrefix(ref.String(), "#/components/schemas/")
		}
	}
	return ""
}
