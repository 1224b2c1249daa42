package registry

import (
	"context"
	"maps"
	"slices"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// validDefaults wants defaults that are valid by the schema themselves.
func validDefaults(s *structural.Structural, path *field.Path) field.ErrorList {
	errs, err := defaulting.ValidateDefaults(context.Background(), path, s.DeepCopy(), true, true)
	if err != nil {
		errs = append(errs, field.Invalid(path, "", err.Error()))
	}
	return errs
}

// validRules wants rules that compile, here and below. env is made by the first
// schema that has rules.
func validRules(s *structural.Structural, path *field.Path, root bool, env *environment.EnvSet) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if len(s.XValidations) > 0 {
		if env == nil {
			env = environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
		}
		errs = rulesCompile(s, path.Child("x-kubernetes-validations"), root, env)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		errs = append(errs, validRules(&property, path.Child("properties").Key(name), property.XEmbeddedResource, env)...)
	}
	if s.Items != nil {
		errs = append(errs, validRules(s.Items, path.Child("items"), s.Items.XEmbeddedResource, env)...)
	}
	if s.AdditionalProperties != nil {
		errs = append(errs, validRules(s.AdditionalProperties.Structural, path.Child("additionalProperties"), false, env)...)
	}
	return errs
}

func rulesCompile(s *structural.Structural, path *field.Path, root bool, env *environment.EnvSet) field.ErrorList {
	results, err := cel.Compile(s, model.SchemaDeclType(s, root), celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	var errs field.ErrorList
	for i, r := range results {
		at, rule := path.Index(i), s.XValidations[i]
		switch {
		case r.Error == nil:
		case r.Error.Type == apiservercel.ErrorTypeRequired:
			errs = append(errs, field.Required(at.Child("rule"), r.Error.Detail))
		default:
			errs = append(errs, field.Invalid(at.Child("rule"), rule, r.Error.Detail))
		}
		if r.MessageExpressionError != nil {
			errs = append(errs, field.Invalid(at.Child("messageExpression"), rule, r.MessageExpressionError.Detail))
		}
		if r.Error == nil && !r.UsesOldSelf && rule.OptionalOldSelf != nil {
			errs = append(errs, field.Invalid(at.Child("optionalOldSelf"), *rule.OptionalOldSelf, "may not be set if oldSelf is not used in rule"))
		}
	}
	return errs
}
