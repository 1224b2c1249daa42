package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

type schemaProps = apiextensions.JSONSchemaProps

// What rules may cost at worst, in CEL's units: one expression, and all those of
// a schema together.
const (
	ruleBudget   = 10_000_000
	schemaBudget = 10 * ruleBudget
)

var (
	schemaTypes = []string{"array", "boolean", "integer", "number", "object", "string"}
	ruleReasons = []apiextensions.FieldValueErrorReason{
		apiextensions.FieldValueDuplicate, apiextensions.FieldValueForbidden, apiextensions.FieldValueInvalid, apiextensions.FieldValueRequired,
	}
)

// validSchema names the faults of a schema: where it isn't structural, defaults
// that don't fit, words that nobody understands, and rules that don't compile or
// can't be afforded. known are the rules that there were before.
func validSchema(s *schemaProps, at *field.Path, known *knownRules) field.ErrorList {
	built, err := structural.NewStructural(s)
	var errs field.ErrorList
	if err == nil {
		errs = validStructure(built, at)
	}
	c := &schemaCheck{known: known}
	place := schemaPlace{path: at, root: true, times: new(uint64)}
	*place.times = 1
	if err == nil && len(errs) == 0 { // rules can only be understood in a sound schema
		place.built = built
	}
	faults, ruleFaults := c.walk(s, place)
	if known.unchanged {
		return append(ruleFaults, c.total(at)...)
	}
	errs = append(append(errs, faults...), ruleFaults...)
	if err != nil && len(errs) == 0 {
		errs = append(errs, field.Invalid(at, "", err.Error()))
	}
	return append(errs, c.total(at)...)
}

func validStructure(s *structural.Structural, at *field.Path) field.ErrorList {
	if errs := structural.ValidateStructural(at, s); len(errs) > 0 {
		return errs
	}
	errs, err := defaulting.ValidateDefaults(context.Background(), at, s.DeepCopy(), true, true)
	if err != nil {
		return field.ErrorList{field.Invalid(at, "", err.Error())}
	}
	return errs
}

// knownRules are the rules that a definition had before it was changed. They may use
// what this version of Kubernetes does not let new ones use yet.
type knownRules struct {
	texts map[string]bool
	// unchanged: the whole schema was there before. What it is may not be right any
	// more, but its rules have to compile, and may each cost too much.
	unchanged bool
}

// note adds the rules of a schema.
func (k *knownRules) note(s *schemaProps, _ schemaPlace) {
	if s == nil {
		return
	}
	for _, rule := range s.XValidations {
		k.texts[rule.Rule], k.texts[rule.MessageExpression] = true, true
	}
	(&schemaCheck{}).parts(s, schemaPlace{path: field.NewPath("")}, k.note)
}

// RuleEnv is what a rule may use.
func (k *knownRules) RuleEnv(all *environment.EnvSet, text string) *celgo.Env {
	if k.texts[text] {
		return all.StoredExpressionsEnv()
	}
	return all.NewExpressionsEnv()
}

// MessageExpressionEnv is what the message of a rule may use.
func (k *knownRules) MessageExpressionEnv(all *environment.EnvSet, text string) *celgo.Env {
	return k.RuleEnv(all, text)
}

// schemaCheck is one walk over a schema.
type schemaCheck struct {
	known *knownRules
	env   *environment.EnvSet
	costs []ruleCost
}

type ruleCost struct {
	path *field.Path
	cost uint64
}

// schemaPlace is where in a schema a walk is.
type schemaPlace struct {
	path  *field.Path
	built *structural.Structural // nil where no rules are compiled
	root  bool
	// times is how many of it an object can have; nil: there is no limit.
	times *uint64
	// apart is the outermost list or map around it whose elements can't be told
	// apart between two versions of an object, so that no element has an old self.
	apart *field.Path
	// inMeta: in the metadata of an object.
	inMeta bool
	// noDefault is why there may be no default.
	noDefault string
	// ruled: there are rules here or around it; typeless: and a type around it that
	// rules don't know.
	ruled, typeless bool
}

// child is a place in it.
func (p schemaPlace) child(path *field.Path) schemaPlace {
	p.path, p.built, p.root = path, nil, false
	return p
}

// walk names the faults of a schema and of all it has inside, and those of rules
// apart: they are looked for only where there are no others.
func (c *schemaCheck) walk(s *schemaProps, at schemaPlace) (errs, ruleErrs field.ErrorList) {
	if s == nil {
		return nil, nil
	}
	errs = unsupportedWords(s, at)
	inside := func(s *schemaProps, p schemaPlace) {
		faults, ruleFaults := c.walk(s, p)
		errs, ruleErrs = append(errs, faults...), append(ruleErrs, ruleFaults...)
	}
	c.parts(s, at, inside)
	errs = append(errs, validListsAndMaps(s, at.path)...)
	errs = append(errs, validRuleTexts(s, at.path.Child("x-kubernetes-validations"))...)
	if len(s.XValidations) > 0 && len(errs) == 0 && at.built != nil {
		ruleErrs = append(ruleErrs, c.rules(s, at)...)
	}
	return errs, ruleErrs
}

// parts goes through the schemas inside.
func (c *schemaCheck) parts(s *schemaProps, at schemaPlace, inside func(*schemaProps, schemaPlace)) {
	inner := at
	inner.ruled = at.ruled || len(s.XValidations) > 0
	inner.typeless = at.typeless || inner.ruled && s.Type != "" && !slices.Contains(schemaTypes, s.Type)
	inner.times = limited(at.times, s)
	if more := s.AdditionalProperties; more != nil {
		p := inner.child(at.path.Child("additionalProperties"))
		if at.built != nil && at.built.AdditionalProperties != nil {
			p.built = at.built.AdditionalProperties.Structural
		}
		if at.inMeta {
			p.noDefault = "inside additionalProperties applying to object metadata"
		}
		inside(more.Schema, p)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		inside(&property, c.property(s, name, at, inner))
	}
	combined := at.child(nil)
	combine := func(word string, list []schemaProps) {
		for i := range list {
			combined.path = at.path.Child(word).Index(i)
			inside(&list[i], combined)
		}
	}
	combined.path = at.path.Child("not")
	inside(s.Not, combined)
	combine("allOf", s.AllOf)
	combine("oneOf", s.OneOf)
	combine("anyOf", s.AnyOf)
	for _, name := range slices.Sorted(maps.Keys(s.Definitions)) {
		d := s.Definitions[name]
		combined.path = at.path.Child("definitions").Key(name)
		inside(&d, combined)
	}
	if s.Items != nil {
		p := inner.child(at.path.Child("items"))
		if at.built != nil {
			p.built = at.built.Items
		}
		if p.apart == nil && (s.XListType == nil || *s.XListType != "map") {
			p.apart = at.path
		}
		inside(s.Items.Schema, p)
		for i := range s.Items.JSONSchemas {
			p.path, p.built = at.path.Child("items").Index(i), nil
			inside(&s.Items.JSONSchemas[i], p)
		}
	}
}

func (c *schemaCheck) property(s *schemaProps, name string, at, inner schemaPlace) schemaPlace {
	p := inner.child(at.path.Child("properties").Key(name))
	if at.built != nil {
		built := at.built.Properties[name]
		p.built = &built
	}
	if p.apart == nil && !cel.MapIsCorrelatable(s.XMapType) {
		p.apart = at.path
	}
	if (at.root || s.XEmbeddedResource) && slices.Contains([]string{"metadata", "kind", "apiVersion"}, name) {
		p.inMeta = true
		if at.root {
			p.noDefault = "in top-level " + name
		}
	}
	return p
}

// limited is how often something inside a list or a map is there that is itself
// there so many times.
func limited(times *uint64, s *schemaProps) *uint64 {
	most := new(int64)
	switch *most = 1; {
	case s.Type == "array":
		most = s.MaxItems
	case s.Type == "object" && s.AdditionalProperties != nil:
		most = s.MaxProperties
	}
	if times == nil || most == nil {
		return nil
	}
	n := by(*times, uint64(max(*most, 0)))
	return &n
}

func unsupportedWords(s *schemaProps, at schemaPlace) field.ErrorList {
	var errs field.ErrorList
	path := at.path
	forbid := func(is bool, name, words string) {
		if is {
			errs = append(errs, field.Forbidden(path.Child(name), words))
		}
	}
	if s.Type != "" && !slices.Contains(schemaTypes, s.Type) {
		errs = append(errs, field.NotSupported(path.Child("type"), s.Type, schemaTypes))
	}
	forbid(s.Default != nil && at.noDefault != "", "default", "must not be set "+at.noDefault)
	forbid(s.ID != "", "id", "id is not supported")
	forbid(s.AdditionalItems != nil, "additionalItems", "additionalItems is not supported")
	forbid(len(s.PatternProperties) > 0, "patternProperties", "patternProperties is not supported")
	forbid(len(s.Definitions) > 0, "definitions", "definitions is not supported")
	forbid(s.Dependencies != nil, "dependencies", "dependencies is not supported")
	forbid(s.Ref != nil, "$ref", "$ref is not supported")
	forbid(s.Type == "null", "type", "type cannot be set to null, use nullable as an alternative")
	forbid(s.Items != nil && len(s.Items.JSONSchemas) > 0, "items", "items must be a schema object and not an array")
	forbid(at.inMeta && s.XEmbeddedResource, "x-kubernetes-embedded-resource", "must not be used inside of resource meta")
	forbid(s.UniqueItems, "uniqueItems", "uniqueItems cannot be set to true since the runtime complexity becomes quadratic")
	if more := s.AdditionalProperties; more != nil && len(s.Properties) > 0 {
		forbid(!more.Allows || more.Schema != nil, "additionalProperties", "additionalProperties and properties are mutual exclusive")
	}
	return errs
}

// typed wants the type that a word is for.
func typed(s *schemaProps, typ, word string, at *field.Path) field.ErrorList {
	switch words := fmt.Sprintf("must be %s if %s is specified", typ, word); s.Type {
	case typ:
		return nil
	case "":
		return field.ErrorList{field.Required(at.Child("type"), words)}
	default:
		return field.ErrorList{field.Invalid(at.Child("type"), s.Type, words)}
	}
}

func validListsAndMaps(s *schemaProps, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if keep := s.XPreserveUnknownFields; keep != nil && !*keep {
		errs = append(errs, field.Invalid(path.Child("x-kubernetes-preserve-unknown-fields"), false, "must be true or undefined"))
	}
	if m := s.XMapType; m != nil {
		errs = append(errs, typed(s, "object", "x-kubernetes-map-type", path)...)
		if known := []string{"atomic", "granular"}; !slices.Contains(known, *m) {
			errs = append(errs, field.NotSupported(path.Child("x-kubernetes-map-type"), *m, known))
		}
	}
	list, keys, items := path.Child("x-kubernetes-list-type"), path.Child("x-kubernetes-list-map-keys"), path.Child("items")
	if s.XListType == nil {
		if len(s.XListMapKeys) > 0 {
			errs = append(errs, field.Required(list, "must be map if x-kubernetes-list-map-keys is non-empty"))
		}
		return errs
	}
	typ := *s.XListType
	if wrong := typed(s, "array", "x-kubernetes-list-type", path); len(wrong) > 0 {
		errs = append(errs, wrong...)
	} else if typ == "set" {
		errs = append(errs, validSetItems(s, items)...)
	}
	if known := []string{"atomic", "set", "map"}; !slices.Contains(known, typ) {
		errs = append(errs, field.NotSupported(list, typ, known))
	}
	if typ != "map" && len(s.XListMapKeys) > 0 {
		errs = append(errs, field.Invalid(list, typ, "must be map if x-kubernetes-list-map-keys is non-empty"))
	}
	if typ == "map" {
		if len(s.XListMapKeys) == 0 {
			errs = append(errs, field.Required(keys, "must not be empty if x-kubernetes-list-type is map"))
		}
		errs = append(errs, validMapItems(s, items, keys)...)
	}
	if s.Items == nil || s.Items.Schema == nil || typ != "set" && typ != "map" {
		return errs
	}
	if s.Items.Schema.Nullable {
		errs = append(errs, field.Forbidden(items.Child("nullable"), "cannot be nullable when x-kubernetes-list-type is "+typ))
	}
	if typ == "map" {
		errs = append(errs, validMapKeys(s, items)...)
	}
	return errs
}

// validSetItems wants items that are compared as a whole.
func validSetItems(s *schemaProps, path *field.Path) field.ErrorList {
	if s.Items == nil || s.Items.Schema == nil {
		return nil
	}
	const why = "must be atomic as item of a list with x-kubernetes-list-type=set"
	switch item := s.Items.Schema; {
	case item.Type == "array" && item.XListType != nil && *item.XListType != "atomic":
		return field.ErrorList{field.Invalid(path.Child("x-kubernetes-list-type"), item.XListType, why)}
	case item.Type == "object" && (item.XMapType == nil || *item.XMapType != "atomic"):
		return field.ErrorList{field.Invalid(path.Child("x-kubernetes-map-type"), item.XListType, why)} // upstream shows the other field
	}
	return nil
}

// validMapItems wants items that have the keys, as scalars.
func validMapItems(s *schemaProps, path, keys *field.Path) field.ErrorList {
	switch {
	case s.Items == nil:
		return field.ErrorList{field.Required(path, "must have a schema if x-kubernetes-list-type is map")}
	case s.Items.Schema == nil:
		return field.ErrorList{field.Invalid(path, s.Items, "must only have a single schema if x-kubernetes-list-type is map")}
	case s.Items.Schema.Type != "object":
		return field.ErrorList{field.Invalid(path.Child("type"), s.Items.Schema.Type, "must be object if parent array's x-kubernetes-list-type is map")}
	}
	var errs field.ErrorList
	item, seen := s.Items.Schema, map[string]bool{}
	for _, key := range s.XListMapKeys {
		if property, ok := item.Properties[key]; !ok {
			errs = append(errs, field.Invalid(keys, s.XListMapKeys, "entries must all be names of item properties"))
		} else if property.Type == "array" || property.Type == "object" {
			errs = append(errs, field.Invalid(path.Child("properties").Key(key).Child("type"), item.Type, "must be a scalar type if parent array's x-kubernetes-list-type is map"))
		}
		if seen[key] {
			errs = append(errs, field.Invalid(keys, s.XListMapKeys, "must not contain duplicate entries"))
		}
		seen[key] = true
	}
	return errs
}

// validMapKeys wants keys that are always there.
func validMapKeys(s *schemaProps, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range s.XListMapKeys {
		property, ok := s.Items.Schema.Properties[key]
		if !ok {
			continue // told already
		}
		at := path.Child("properties").Key(key)
		if property.Default == nil && !slices.Contains(s.Items.Schema.Required, key) {
			errs = append(errs, field.Required(at.Child("default"), "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"))
		}
		if property.Nullable {
			errs = append(errs, field.Forbidden(at.Child("nullable"), "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"))
		}
	}
	return errs
}

func validRuleTexts(s *schemaProps, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	lines := func(s string) bool { return strings.ContainsAny(s, "\n\r") }
	for i, r := range s.XValidations {
		at, rule, message := path.Index(i), strings.TrimSpace(r.Rule), strings.TrimSpace(r.Message)
		switch {
		case rule == "":
			errs = append(errs, field.Required(at.Child("rule"), "rule is not specified"))
		case r.Message != "" && message == "":
			errs = append(errs, field.Invalid(at.Child("message"), r.Message, "must be non-empty if specified"))
		case lines(message):
			errs = append(errs, field.Invalid(at.Child("message"), r.Message, "must not contain line breaks"))
		case lines(rule) && message == "":
			errs = append(errs, field.Required(at.Child("message"), "message must be specified if rule contains line breaks"))
		}
		if r.MessageExpression != "" && strings.TrimSpace(r.MessageExpression) == "" {
			errs = append(errs, field.Required(at.Child("messageExpression"), "messageExpression must be non-empty if specified"))
		}
		if r.Reason != nil && !slices.Contains(ruleReasons, *r.Reason) {
			errs = append(errs, field.NotSupported(at.Child("reason"), *r.Reason, ruleReasons))
		}
		errs = append(errs, validFieldPath(s, r.FieldPath, at.Child("fieldPath"))...)
	}
	return errs
}

func validFieldPath(s *schemaProps, p string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	bad := func(is bool, why string) {
		if is {
			errs = append(errs, field.Invalid(at, p, why))
		}
	}
	if p == "" {
		return nil
	}
	bad(strings.TrimSpace(p) == "", "must be non-empty if specified")
	bad(strings.ContainsAny(p, "\n\r"), "must not contain line breaks")
	if built, err := structural.NewStructural(s); err == nil {
		_, _, err := cel.ValidFieldPath(p, built)
		bad(err != nil, "must be a valid path")
	}
	return errs
}

// rules compiles the rules of a schema, and notes what they cost.
func (c *schemaCheck) rules(s *schemaProps, at schemaPlace) field.ErrorList {
	path := at.path.Child("x-kubernetes-validations")
	if at.typeless {
		return field.ErrorList{field.InternalError(path, errors.New("internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations"))}
	}
	if c.env == nil {
		c.env = environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	}
	results, err := cel.Compile(at.built, model.SchemaDeclType(at.built, at.root || s.XEmbeddedResource), celconfig.PerCallLimit, c.env, c.known)
	if err != nil {
		return field.ErrorList{field.InternalError(path, err)}
	}
	var errs field.ErrorList
	for i, r := range results {
		here, rule := path.Index(i), s.XValidations[i]
		times := r.MaxCardinality
		if at.times != nil {
			times = *at.times
		}
		errs = append(errs, c.cost("estimated rule cost", here.Child("rule"), by(r.MaxCost, times))...)
		switch {
		case r.Error == nil:
		case r.Error.Type == apiservercel.ErrorTypeRequired:
			errs = append(errs, field.Required(here.Child("rule"), r.Error.Detail))
		default:
			errs = append(errs, field.Invalid(here.Child("rule"), rule, r.Error.Detail))
		}
		switch {
		case r.MessageExpressionError != nil:
			errs = append(errs, field.Invalid(here.Child("messageExpression"), rule, r.MessageExpressionError.Detail))
		case r.MessageExpression != nil:
			errs = append(errs, c.cost("estimated messageExpression cost", here.Child("messageExpression"), r.MessageExpressionMaxCost)...)
		}
		switch {
		case r.UsesOldSelf && at.apart != nil:
			errs = append(errs, field.Invalid(here.Child("rule"), rule.Rule, fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", at.apart)))
		case !r.UsesOldSelf && rule.OptionalOldSelf != nil:
			errs = append(errs, field.Invalid(here.Child("optionalOldSelf"), *rule.OptionalOldSelf, "may not be set if oldSelf is not used in rule"))
		}
	}
	return errs
}

func (c *schemaCheck) cost(what string, path *field.Path, cost uint64) field.ErrorList {
	c.costs = append(c.costs, ruleCost{path, cost})
	if cost <= ruleBudget || c.known.unchanged {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, tooDear(what, cost, ruleBudget))}
}

// total names the rules that cost most if all together cost too much.
func (c *schemaCheck) total(path *field.Path) field.ErrorList {
	var total uint64
	for _, r := range c.costs {
		total = plus(total, r.cost)
	}
	if total <= schemaBudget {
		return nil
	}
	var errs field.ErrorList
	slices.SortStableFunc(c.costs, func(a, b ruleCost) int { return cmp.Compare(b.cost, a.cost) })
	for _, r := range c.costs[:min(len(c.costs), 4)] {
		if r.cost < schemaBudget/100 {
			break
		}
		errs = append(errs, field.Forbidden(r.path, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"))
	}
	return append(errs, field.Forbidden(path, tooDear("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema", total, schemaBudget)))
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
