package controllers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	celplugin "k8s.io/apiserver/pkg/admission/plugin/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	configv1 "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
)

// policyTypes checks the expressions of validating policies against the types of
// the objects that they are about. The API server lets a policy in whose
// expressions compile when nothing is known of the objects; what is wrong with
// them here will fail at a request, and is told in the policy's status.
type policyTypes struct {
	*env
	informer cache.SharedIndexInformer
	kinds    *scaler
}

func newPolicyTypes(e *env) Controller {
	c := &policyTypes{env: e, informer: e.factory.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer(), kinds: newScaler(e)}
	return Controller{
		Name: "validatingadmissionpolicy-status-controller", Workers: 5,
		Reads:  []Source{wakesSelf(c.informer)},
		Writes: []string{"admissionregistration.k8s.io/validatingadmissionpolicies"},
		Sync:   c.sync,
	}
}

func (c *policyTypes) sync(ctx context.Context, key string) (time.Duration, error) {
	policy := cached[admissionv1.ValidatingAdmissionPolicy](c.informer, key)
	if policy == nil || policy.Generation <= policy.Status.ObservedGeneration {
		return 0, nil
	}
	checking := configv1.TypeChecking()
	for _, w := range c.check(policy) {
		checking.WithExpressionWarnings(configv1.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning))
	}
	status := configv1.ValidatingAdmissionPolicyStatus().WithObservedGeneration(policy.Generation).WithTypeChecking(checking)
	_, err := c.clients.AdmissionregistrationV1().ValidatingAdmissionPolicies().ApplyStatus(ctx,
		configv1.ValidatingAdmissionPolicy(policy.Name).WithStatus(status), metav1.ApplyOptions{FieldManager: "validatingadmissionpolicy-status-controller", Force: true})
	if ignoreNotFound(err) != nil {
		return 0, fmt.Errorf("status of policy %s: %w", policy.Name, err)
	}
	return 0, nil
}

// check returns what is wrong with a policy's expressions.
func (c *policyTypes) check(policy *admissionv1.ValidatingAdmissionPolicy) []admissionv1.ExpressionWarning {
	kinds := c.kindsOf(policy)
	objects := make([]*apiservercel.DeclType, len(kinds))
	for i, kind := range kinds {
		objects[i] = c.typeOf(kind)
	}
	var params *apiservercel.DeclType
	if p := policy.Spec.ParamKind; p != nil {
		params = c.typeOf(schema.FromAPIVersionAndKind(p.APIVersion, p.Kind))
	}
	var warnings []admissionv1.ExpressionWarning
	look := func(at, expression string) {
		var faults []string
		for i, kind := range kinds {
			if objects[i] == nil {
				continue // nothing to check against
			}
			if fault := checkTypes(policy, expression, kind, objects[i], params); fault != "" {
				faults = append(faults, fault)
			}
		}
		if len(faults) > 0 {
			warnings = append(warnings, admissionv1.ExpressionWarning{FieldRef: at, Warning: strings.Join(faults, "\n")})
		}
	}
	for i, v := range policy.Spec.Validations {
		at := fmt.Sprintf("spec.validations[%d].", i)
		look(at+"expression", v.Expression)
		if v.MessageExpression != "" {
			look(at+"messageExpression", v.MessageExpression)
		}
	}
	return warnings
}

// kindsOf are the kinds that a policy names, the first ten of a rule. Rules with
// wildcards name none.
func (c *policyTypes) kindsOf(policy *admissionv1.ValidatingAdmissionPolicy) []schema.GroupVersionKind {
	if policy.Spec.MatchConstraints == nil {
		return nil
	}
	var all []schema.GroupVersionKind
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		all = append(all, c.kindsOfRule(&rule.Rule)...)
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionKind) int {
		return strings.Compare(a.Group+"\x00"+a.Version+"\x00"+a.Kind, b.Group+"\x00"+b.Version+"\x00"+b.Kind)
	})
	return slices.Compact(all)
}

func (c *policyTypes) kindsOfRule(rule *admissionv1.Rule) []schema.GroupVersionKind {
	const most = 10
	wild := func(s string) bool { return strings.Contains(s, "*") }
	if slices.ContainsFunc(rule.APIGroups, wild) || slices.ContainsFunc(rule.APIVersions, wild) {
		return nil
	}
	var kinds []schema.GroupVersionKind
	for _, group := range slices.Sorted(slices.Values(rule.APIGroups)) {
		for _, v := range slices.Sorted(slices.Values(rule.APIVersions)) {
			for _, resource := range slices.Sorted(slices.Values(rule.Resources)) {
				if strings.ContainsAny(resource, "*/") || len(kinds) == most {
					continue
				}
				if kind, ok := c.kinds.kindOf(schema.GroupVersionResource{Group: group, Version: v, Resource: resource}); ok {
					kinds = append(kinds, kind)
				}
			}
		}
	}
	return kinds
}

// typeOf is the type of a kind's objects, by the server's OpenAPI document; nil
// if it has none.
func (c *policyTypes) typeOf(kind schema.GroupVersionKind) *apiservercel.DeclType {
	s, err := (&resolver.ClientDiscoveryResolver{Discovery: c.clients.Discovery()}).ResolveSchema(kind)
	if err != nil {
		if !errors.Is(err, resolver.ErrSchemaNotFound) {
			slog.Debug("no schema", "kind", kind.String(), "err", err)
		}
		return nil
	}
	t := common.SchemaDeclType(&openapi.Schema{Schema: s}, true)
	if t == nil {
		return nil
	}
	return t.MaybeAssignTypeName(kind.Kind + "1")
}

// checkTypes is what is wrong with an expression if object is of a type; "" if
// nothing.
func checkTypes(policy *admissionv1.ValidatingAdmissionPolicy, expression string, kind schema.GroupVersionKind, object, params *apiservercel.DeclType) string {
	known, err := typedEnvironment(policy.Spec.ParamKind != nil, object, params)
	if err != nil {
		return fmt.Sprintf("%v: type checking error: %v\n", kind, err)
	}
	composed, err := celplugin.NewCompositedCompilerForTypeChecking(known)
	if err != nil {
		return fmt.Sprintf("%v: type checking error: %v\n", kind, err)
	}
	composed.Compiler = typeCompiler{composed}
	declared := celplugin.OptionalVariableDeclarations{HasParams: policy.Spec.ParamKind != nil, HasAuthorizer: true}
	for _, v := range policy.Spec.Variables {
		composed.CompileAndStoreVariable(typedExpression{v.Name, v.Expression}, declared, environment.StoredExpressions)
	}
	fault := composed.CompileCELExpression(typedExpression{text: expression}, declared, environment.StoredExpressions).Error
	switch {
	case fault == nil:
		return ""
	case fault.Type == apiservercel.ErrorTypeInvalid:
		return fmt.Sprintf("%v: %s\n", kind, fault)
	}
	return fmt.Sprintf("%v: type checking error: %v\n", kind, fault)
}

// typedEnvironment knows the variables of a policy's expressions by their types.
func typedEnvironment(hasParams bool, object, params *apiservercel.DeclType) (*environment.EnvSet, error) {
	namespace, request := celplugin.BuildNamespaceType(), celplugin.BuildRequestType()
	types := []*apiservercel.DeclType{namespace, request, object}
	variables := []cel.EnvOption{
		cel.Variable(celplugin.NamespaceVarName, namespace.CelType()), cel.Variable(celplugin.RequestVarName, request.CelType()),
		cel.Variable(celplugin.ObjectVarName, object.CelType()), cel.Variable(celplugin.OldObjectVarName, object.CelType()),
		cel.Variable("authorizer", library.AuthorizerType),
	}
	switch {
	case hasParams && params != nil:
		types = append(types, params)
		variables = append(variables, cel.Variable(celplugin.ParamsVarName, params.CelType()))
	case hasParams:
		variables = append(variables, cel.Variable(celplugin.ParamsVarName, cel.DynType))
	}
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: variables, DeclTypes: types,
	})
}

// typedExpression is an expression, or a variable if it has a name, of any type.
type typedExpression struct{ name, text string }

func (e typedExpression) GetExpression() string  { return e.text }
func (typedExpression) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType} }
func (e typedExpression) GetName() string        { return e.name }

// typeCompiler compiles for the type alone; no program is made.
type typeCompiler struct{ in *celplugin.CompositedCompiler }

// CompileCELExpression implements the compiler that the composition asks.
func (c typeCompiler) CompileCELExpression(e celplugin.ExpressionAccessor, _ celplugin.OptionalVariableDeclarations, mode environment.Type) celplugin.CompilationResult {
	failed := func(kind apiservercel.ErrorType, text string) celplugin.CompilationResult {
		return celplugin.CompilationResult{Error: &apiservercel.Error{Type: kind, Detail: text}, ExpressionAccessor: e}
	}
	known, err := c.in.Env(mode)
	if err != nil {
		return failed(apiservercel.ErrorTypeInternal, fmt.Sprintf("fail to build env: %v", err))
	}
	ast, issues := known.Compile(e.GetExpression())
	if issues != nil {
		return failed(apiservercel.ErrorTypeInvalid, issues.String())
	}
	return celplugin.CompilationResult{OutputType: ast.OutputType()}
}
