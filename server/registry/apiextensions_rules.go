package registry

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
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

// What rules may cost at worst, in CEL's units: one expression, and all those of
// a schema together.
const (
	ruleBudget   = 10_000_000
	schemaBudget = 10 * ruleBudget
)

// validDefaults wants defaults that are valid by the schema themselves.
func validDefaults(s *structural.Structural, path *field.Path) field.ErrorList {
	errs, err := defaulting.ValidateDefaults(context.Background(), path, s.DeepCopy(), true, true)
	if err != nil {
		errs = append(errs, field.Invalid(path, "", err.Error()))
	}
	return errs
}

// ruleChecks is one walk over the rules of a schema.
type ruleChecks struct {
	env   *environment.EnvSet
	errs  field.ErrorList
	costs []ruleCost
}

type ruleCost struct {
	path *field.Path
	cost uint64
}

// rulePlace is where in a schema a walk is.
type rulePlace struct {
	path *field.Path
	root bool
	// times is how many of it an object can have, 0 if there is no limit.
	times uint64
	// apart is the outermost list or map around it whose elements can't be told
	// apart between two versions of an object, so that no element has an old self.
	apart *field.Path
}

// validRules wants rules that compile and that can be afforded.
func validRules(s *structural.Structural, path *field.Path) field.ErrorList {
	c := &ruleChecks{}
	c.walk(s, rulePlace{path: path, root: true, times: 1})
	var total uint64
	for _, r := range c.costs {
		total = plus(total, r.cost)
	}
	if total <= schemaBudget {
		return c.errs
	}
	slices.SortStableFunc(c.costs, func(a, b ruleCost) int { return cmp.Compare(b.cost, a.cost) })
	for _, r := range c.costs[:min(len(c.costs), 4)] {
		if r.cost < schemaBudget/100 {
			break
		}
		c.errs = append(c.errs, field.Forbidden(r.path, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"))
	}
	return append(c.errs, field.Forbidden(path, tooDear("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema", total, schemaBudget)))
}

func (c *ruleChecks) walk(s *structural.Structural, at rulePlace) {
	if s == nil {
		return
	}
	if len(s.XValidations) > 0 {
		c.rules(s, at)
	}
	inner := at
	if !cel.MapIsCorrelatable(s.XMapType) && at.apart == nil {
		inner.apart = at.path
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		inner.path, inner.root = at.path.Child("properties").Key(name), property.XEmbeddedResource
		c.walk(&property, inner)
	}
	if more := s.AdditionalProperties; more != nil && more.Structural != nil {
		inner.path, inner.root, inner.times = at.path.Child("additionalProperties"), false, limited(at.times, s.ValueValidation, maxProperties)
		c.walk(more.Structural, inner)
	}
	if s.Items != nil {
		inner = at
		inner.path, inner.root, inner.times = at.path.Child("items"), s.Items.XEmbeddedResource, limited(at.times, s.ValueValidation, maxItems)
		if at.apart == nil && (s.XListType == nil || *s.XListType != "map") {
			inner.apart = at.path
		}
		c.walk(s.Items, inner)
	}
}

func maxItems(v *structural.ValueValidation) *int64      { return v.MaxItems }
func maxProperties(v *structural.ValueValidation) *int64 { return v.MaxProperties }

// limited is how often something inside a list or a map is there that is itself
// there so many times.
func limited(times uint64, v *structural.ValueValidation, most func(*structural.ValueValidation) *int64) uint64 {
	if v == nil || most(v) == nil {
		return 0
	}
	return by(times, uint64(max(*most(v), 1)))
}

func (c *ruleChecks) rules(s *structural.Structural, at rulePlace) {
	path := at.path.Child("x-kubernetes-validations")
	if c.env == nil {
		c.env = environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	}
	results, err := cel.Compile(s, model.SchemaDeclType(s, at.root), celconfig.PerCallLimit, c.env, cel.NewExpressionsEnvLoader())
	if err != nil {
		c.errs = append(c.errs, field.InternalError(path, err))
		return
	}
	for i, r := range results {
		here, rule := path.Index(i), s.XValidations[i]
		times := at.times
		if times == 0 {
			times = r.MaxCardinality
		}
		c.cost("estimated rule cost", here.Child("rule"), by(r.MaxCost, times))
		switch {
		case r.Error == nil:
		case r.Error.Type == apiservercel.ErrorTypeRequired:
			c.errs = append(c.errs, field.Required(here.Child("rule"), r.Error.Detail))
		default:
			c.errs = append(c.errs, field.Invalid(here.Child("rule"), rule, r.Error.Detail))
		}
		switch {
		case r.MessageExpressionError != nil:
			c.errs = append(c.errs, field.Invalid(here.Child("messageExpression"), rule, r.MessageExpressionError.Detail))
		case r.MessageExpression != nil:
			c.cost("estimated messageExpression cost", here.Child("messageExpression"), r.MessageExpressionMaxCost)
		}
		if rule.FieldPath != "" {
			if _, _, err := cel.ValidFieldPath(rule.FieldPath, s); err != nil {
				c.errs = append(c.errs, field.Invalid(here.Child("fieldPath"), rule.FieldPath, "must be a valid path"))
			}
		}
		switch {
		case r.UsesOldSelf && at.apart != nil:
			c.errs = append(c.errs, field.Invalid(here.Child("rule"), rule.Rule, fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", at.apart)))
		case r.Error == nil && !r.UsesOldSelf && rule.OptionalOldSelf != nil:
			c.errs = append(c.errs, field.Invalid(here.Child("optionalOldSelf"), *rule.OptionalOldSelf, "may not be set if oldSelf is not used in rule"))
		}
	}
}

func (c *ruleChecks) cost(what string, path *field.Path, cost uint64) {
	if cost > ruleBudget {
		c.errs = append(c.errs, field.Forbidden(path, tooDear(what, cost, ruleBudget)))
	}
	c.costs = append(c.costs, ruleCost{path, cost})
}

func tooDear(what string, cost, budget uint64) string {
	factor := "more than 100x"
	switch over := float64(cost) / float64(budget); {
	case over < 1.5:
		factor = fmt.Sprintf("%fx", over) // which would else read as 1.0x
	case over <= 100:
		factor = fmt.Sprintf("%.1fx", over)
	}
	return what + " exceeds budget by factor of " + factor + " (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
}

// by multiplies and plus adds, and neither goes over the top.
func by(a, b uint64) uint64 {
	if a != 0 && math.MaxUint64/a < b {
		return math.MaxUint64
	}
	return a * b
}

func plus(a, b uint64) uint64 {
	if math.MaxUint64-a < b {
		return math.MaxUint64
	}
	return a + b
}
