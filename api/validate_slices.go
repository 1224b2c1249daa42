package api

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateResourceSlice names the faults of a ResourceSlice.
func ValidateResourceSlice(s, old *resourcev1.ResourceSlice) field.ErrorList {
	at, spec := specPath(), &s.Spec
	pool := at.Child("pool")
	errs := validDriverName(spec.Driver, at.Child("driver"))
	errs = append(errs, validPoolName(spec.Pool.Name, pool.Child("name"))...)
	errs = append(errs, refuse(spec.Pool.ResourceSliceCount <= 0, pool.Child("resourceSliceCount"), spec.Pool.ResourceSliceCount, "must be greater than zero")...)
	errs = append(errs, refuse(spec.Pool.Generation < 0, pool.Child("generation"), spec.Pool.Generation, "must be greater than or equal to zero")...)
	before := map[string]*resourcev1.Device{}
	if old != nil {
		errs = append(errs, unchanged(spec.Pool.Name, old.Spec.Pool.Name, pool.Child("name"))...)
		errs = append(errs, unchanged(spec.Driver, old.Spec.Driver, at.Child("driver"))...)
		errs = append(errs, unchanged(spec.NodeName, old.Spec.NodeName, at.Child("nodeName"))...)
		for i := range old.Spec.Devices {
			before[old.Spec.Devices[i].Name] = &old.Spec.Devices[i]
		}
	}
	errs = append(errs, sliceNodes(spec, at)...)
	errs = append(errs, refuse(spec.SharedCounters != nil && spec.Devices != nil, at, "", "only one of `sharedCounters` or `devices` is allowed")...)
	errs = append(errs, sliceDevices(spec, before, at.Child("devices"))...)
	const most = 8
	return append(errs, listByRule(spec.SharedCounters, most, at.Child("sharedCounters"), func(a, b *resourcev1.CounterSet) bool { return a.Name == b.Name },
		func(c *resourcev1.CounterSet, at *field.Path) field.ErrorList {
			return validCounters("name", c.Name, c.Counters, at)
		})...)
}

// whereOf is where devices are; one of the four says so.
type whereOf struct {
	node     *string
	selector *corev1.NodeSelector
	all      *bool
	each     *bool // device says for itself

	noNode string // why a node's name may not be empty
}

// faults names those of the fields, and which are set.
func (w whereOf) faults(at *field.Path) (errs field.ErrorList, set []string) {
	if w.node != nil && *w.node == "" {
		errs = append(errs, field.Invalid(at.Child("nodeName"), "", w.noNode))
	} else if w.node != nil {
		set = append(set, "`nodeName`")
		errs = append(errs, validNodeName(*w.node, at.Child("nodeName"))...)
	}
	if w.selector != nil {
		set = append(set, "`nodeSelector`")
		errs = append(errs, ValidateNodeSelector(w.selector, at.Child("nodeSelector"))...)
	}
	flag := func(name string, value *bool) {
		if value != nil && *value {
			set = append(set, "`"+name+"`")
		} else if value != nil {
			errs = append(errs, field.Invalid(at.Child(name), false, "must be either unset or set to true"))
		}
	}
	if one := w.selector; one != nil && w.noNode == mustBeSet && len(one.NodeSelectorTerms) != 1 {
		errs = append(errs, field.Invalid(at.Child("nodeSelector", "nodeSelectorTerms"), shown(one.NodeSelectorTerms), "must have exactly one node selector term"))
	}
	flag("allNodes", w.all)
	flag("perDeviceNodeSelection", w.each)
	return errs, set
}

const mustBeSet = "must be either unset or set to a non-empty string"

func sliceNodes(spec *resourcev1.ResourceSliceSpec, at *field.Path) field.ErrorList {
	const either = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	errs, set := whereOf{spec.NodeName, spec.NodeSelector, spec.AllNodes, spec.PerDeviceNodeSelection, mustBeSet}.faults(at)
	switch len(set) {
	case 0:
		return append(errs, field.Required(at, either))
	case 1:
		return errs
	}
	return append(errs, field.Invalid(at, "{"+strings.Join(set, ", ")+"}", either+", but multiple fields are set"))
}

func deviceNodes(d *resourcev1.Device, each bool, at *field.Path) field.ErrorList {
	if !each {
		return refuse(d.NodeName != nil || d.NodeSelector != nil || d.AllNodes != nil, at, nil, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec")
	}
	const one = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
	errs, set := whereOf{d.NodeName, d.NodeSelector, d.AllNodes, nil, "must not be empty"}.faults(at)
	switch len(set) {
	case 0:
		return append(errs, field.Required(at, one))
	case 1:
		return errs
	}
	return append(errs, field.Invalid(at, "{"+strings.Join(set, ", ")+"}", one))
}

func sliceDevices(spec *resourcev1.ResourceSliceSpec, before map[string]*resourcev1.Device, at *field.Path) field.ErrorList {
	most := 128
	if slices.ContainsFunc(spec.Devices, func(d resourcev1.Device) bool { return len(d.Taints)+len(d.ConsumesCounters) > 0 }) {
		most = 64
	}
	if n := len(spec.Devices); n > most {
		return field.ErrorList{field.TooMany(at, n, most)}
	}
	each := spec.PerDeviceNodeSelection != nil && *spec.PerDeviceNodeSelection
	errs := elements(spec.Devices, at, func(d *resourcev1.Device, at *field.Path) field.ErrorList {
		return validDevice(d, before[d.Name], each, at)
	})
	return append(errs, distinct(spec.Devices, at, func(d resourcev1.Device) string { return d.Name })...)
}

// distinct refuses elements that have the key of one before them.
func distinct[T any, K comparable](list []T, at *field.Path, key func(T) K) field.ErrorList {
	var errs field.ErrorList
	seen := map[K]bool{}
	for i, element := range list {
		k := key(element)
		if seen[k] {
			errs = append(errs, field.Duplicate(at.Index(i), k))
		}
		seen[k] = true
	}
	return errs
}

func validDevice(d, old *resourcev1.Device, each bool, at *field.Path) field.ErrorList {
	const mostNames, mostValues, mostTaints, mostConsumed = 32, 48, 16, 2
	errs := invalid(at.Child("name"), d.Name, label(d.Name))
	names := len(d.Attributes) + len(d.Capacity)
	errs = append(errs, refuse(names > mostNames, at, names, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", mostNames))...)
	errs = append(errs, refuse(len(d.Attributes) > mostValues, at, len(d.Attributes), fmt.Sprintf("the total number of attribute values must not exceed %d", mostValues))...)
	for _, name := range sortedKeys(d.Attributes) {
		a, here := d.Attributes[name], at.Child("attributes")
		errs = append(errs, validDeviceName(string(name), here)...)
		errs = append(errs, validAttribute(&a, here.Key(shortened(string(name))))...)
	}
	if old == nil || !equality.Semantic.DeepEqual(d.Capacity, old.Capacity) {
		errs = append(errs, validCapacities(d, at.Child("capacity"))...)
	}
	if old == nil || !equality.Semantic.DeepEqual(d.Taints, old.Taints) {
		here := at.Child("taints")
		if n := len(d.Taints); n > mostTaints {
			errs = append(errs, field.TooMany(here, n, mostTaints))
		} else {
			errs = append(errs, elements(d.Taints, here, func(t *resourcev1.DeviceTaint, at *field.Path) field.ErrorList { return validDeviceTaint(t, at, false) })...)
		}
	}
	errs = append(errs, listByRule(d.ConsumesCounters, mostConsumed, at.Child("consumesCounters"), func(a, b *resourcev1.DeviceCounterConsumption) bool { return a.CounterSet == b.CounterSet },
		func(c *resourcev1.DeviceCounterConsumption, at *field.Path) field.ErrorList {
			return validCounters("counterSet", c.CounterSet, c.Counters, at)
		})...)
	errs = append(errs, deviceNodes(d, each, at)...)
	return append(errs, validBinding(d.BindingConditions, d.BindingFailureConditions, at)...)
}

// validBinding wants conditions of both kinds, or of none.
func validBinding(conditions, failures []string, at *field.Path) field.ErrorList {
	const most = 4
	name := func(c *string, at *field.Path) field.ErrorList { return metavalidation.ValidateLabelName(*c, at) }
	itself := func(c string) string { return c }
	good, bad := at.Child("bindingConditions"), at.Child("bindingFailureConditions")
	errs := listByRule(conditions, most, good, nil, name)
	errs = append(errs, listByRule(failures, most, bad, nil, name)...)
	errs = append(errs, distinct(conditions, good, itself)...)
	errs = append(errs, distinct(failures, bad, itself)...)
	for i, c := range failures {
		errs = append(errs, refuse(slices.Contains(conditions, c), bad.Index(i), c, "bindingFailureConditions must not overlap with bindingConditions")...)
	}
	errs = append(errs, refuse(len(conditions) == 0 && len(failures) > 0, good, conditions, "bindingConditions are required to use bindingFailureConditions")...)
	return append(errs, refuse(len(failures) == 0 && len(conditions) > 0, bad, failures, "bindingFailureConditions are required to use bindingConditions")...)
}

// validCounters checks a set of counters, under the name of the field that has
// the set's name.
func validCounters(nameField, name string, counters map[string]resourcev1.Counter, at *field.Path) field.ErrorList {
	const most = 32
	errs := requiredByRule(name, at.Child(nameField), validate.ShortName)
	at = at.Child("counters")
	switch n := len(counters); {
	case n == 0:
		return append(errs, declared(field.Required(at, ""))...)
	case n > most:
		return append(errs, field.TooMany(at, n, most))
	}
	for _, key := range sortedKeys(counters) {
		errs = append(errs, byRule(key, at, validate.ShortName)...)
	}
	return errs
}

// longestDeviceID is that of what attributes and capacities are called.
const longestDeviceID = 32

// validDeviceName checks what an attribute or a capacity is called: an identifier,
// which may have the domain of a driver before it.
func validDeviceName(name string, at *field.Path) field.ErrorList {
	identifier := func(id string) field.ErrorList {
		var errs field.ErrorList
		if len(id) > longestDeviceID {
			errs = append(errs, field.TooLong(at, "", longestDeviceID))
		}
		return append(errs, invalid(at, id, content.IsCIdentifier(id))...)
	}
	domain, id, both := strings.Cut(name, "/")
	switch {
	case !both:
		return identifier(name)
	case strings.Contains(id, "/"): // accepted by oversight, but accepted
		return nil
	}
	errs := refuse(domain == "", at, "", "the domain must not be empty")
	if domain != "" {
		errs = validDriverName(domain, at)
	}
	if id == "" {
		return append(errs, field.Invalid(at, "", "the name must not be empty"))
	}
	return append(errs, identifier(id)...)
}

// shortened is a name as paths have it: without the middle of an overlong one.
func shortened(name string) string {
	const most = validation.DNS1123LabelMaxLength + 1 + longestDeviceID
	if len(name) <= most {
		return name
	}
	rest := most - len("...")
	return name[:(rest+1)/2] + "..." + name[len(name)-rest/2:]
}

// semanticVersion is the form of semver.org.
var semanticVersion = func() *regexp.Regexp {
	const number, label, build = `(0|[1-9]\d*)`, `(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)`, `[0-9a-zA-Z-]+`
	return regexp.MustCompile(`^` + number + `\.` + number + `\.` + number + `(-` + label + `(\.` + label + `)*)?(\+` + build + `(\.` + build + `)*)?$`)
}()

func validAttribute(a *resourcev1.DeviceAttribute, at *field.Path) field.ErrorList {
	const most = 64
	var errs field.ErrorList
	long := func(name string, value *string) {
		if value != nil && len(*value) > most {
			errs = append(errs, field.TooLong(at.Child(name), "", most))
		}
	}
	long("string", a.StringValue)
	if v := a.VersionValue; v != nil {
		errs = append(errs, refuse(!semanticVersion.MatchString(*v), at.Child("version"), *v, "must be a string compatible with semver.org spec 2.0.0")...)
		long("version", v)
	}
	var set []string
	for _, value := range []struct {
		name string
		set  bool
	}{{"int", a.IntValue != nil}, {"bool", a.BoolValue != nil}, {"string", a.StringValue != nil}, {"version", a.VersionValue != nil}} {
		if value.set {
			set = append(set, value.name)
		}
	}
	const all = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"
	switch len(set) {
	case 0:
		return append(errs, declared(field.Invalid(at, "", "must specify one of: "+all))...)
	case 1:
		return errs
	}
	return append(errs, declared(field.Invalid(at, "{"+strings.Join(set, ", ")+"}", "must specify exactly one of: "+all))...)
}

func validCapacities(d *resourcev1.Device, at *field.Path) field.ErrorList {
	shared := d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	var errs field.ErrorList
	for _, name := range sortedKeys(d.Capacity) {
		c := d.Capacity[name]
		errs = append(errs, validDeviceName(string(name), at)...)
		if c.RequestPolicy == nil {
			continue
		}
		here := at.Key(shortened(string(name))).Child("requestPolicy")
		if !shared {
			errs = append(errs, field.Forbidden(here, "allowMultipleAllocations must be true"))
			continue
		}
		errs = append(errs, validRequestPolicy(c.Value, c.RequestPolicy, here)...)
	}
	return errs
}

func validRequestPolicy(capacity resource.Quantity, p *resourcev1.CapacityRequestPolicy, at *field.Path) field.ErrorList {
	needsDefault := func(name string) field.ErrorList {
		return need(p.Default == nil, at.Child("default"), "required when "+name+" is defined")
	}
	switch {
	case len(p.ValidValues) > 0 && p.ValidRange != nil:
		return field.ErrorList{field.Forbidden(at, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(p.ValidValues) > 0:
		if errs := needsDefault("validValues"); errs != nil {
			return errs
		}
		return validOptions(*p.Default, capacity, p.ValidValues, at.Child("validValues"))
	case p.ValidRange != nil:
		if errs := needsDefault("validRange"); errs != nil {
			return errs
		}
		return validRange(*p.Default, capacity, p.ValidRange, at.Child("validRange"))
	}
	return nil
}

// validOptions wants quantities in order, none above the capacity, and the default
// among them.
func validOptions(standard, capacity resource.Quantity, options []resource.Quantity, at *field.Path) field.ErrorList {
	const most = 10
	var errs field.ErrorList
	for i := 1; i < len(options); i++ {
		errs = append(errs, refuse(options[i-1].Cmp(options[i]) > 0, at.Index(i), options[i].String(), "values must be sorted in ascending order")...)
	}
	found := false
	if n := len(options); n > most {
		errs = append(errs, field.TooMany(at, n, most))
	} else {
		for i, o := range options {
			errs = append(errs, refuse(o.Cmp(capacity) > 0, at.Index(i), o.String(), "option is larger than capacity value: "+capacity.String())...)
			found = found || o.Cmp(standard) == 0
		}
		errs = append(errs, distinct(options, at, func(q resource.Quantity) string { return q.AsDec().String() })...)
	}
	return append(errs, refuse(!found, at, standard.String(), "default value is not valid according to the requestPolicy")...)
}

// namedQuantity is a part of a range.
type namedQuantity struct {
	name  string
	value *resource.Quantity
}

func validRange(standard, capacity resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, at *field.Path) field.ErrorList {
	if r.Min == nil {
		return field.ErrorList{field.Required(at.Child("min"), "required when validRange is defined")}
	}
	low := *r.Min
	errs := refuse(low.Cmp(capacity) > 0, at.Child("min"), low.String(), "min is larger than capacity value: "+capacity.String())
	errs = append(errs, refuse(standard.Cmp(low) < 0, at.Child("default"), standard.String(), "default is less than min: "+low.String())...)
	if high := r.Max; high != nil {
		errs = append(errs, refuse(low.Cmp(*high) > 0, at.Child("max"), low.String(), "min is larger than max: "+high.String())...)
		errs = append(errs, refuse(high.Cmp(capacity) > 0, at.Child("max"), high.String(), "max is larger than capacity value: "+capacity.String())...)
		errs = append(errs, refuse(standard.Cmp(*high) > 0, at.Child("default"), standard.String(), "default is more than max: "+high.String())...)
	}
	parts := []namedQuantity{{"default", &standard}, {"min", r.Min}, {"max", r.Max}, {"step", r.Step}}
	parts = slices.DeleteFunc(parts, func(p namedQuantity) bool { return p.value == nil })
	number, unfit := (*resource.Quantity).Value, unfitWhole
	if slices.ContainsFunc(parts, func(p namedQuantity) bool { return isFraction(p.value) }) {
		number, unfit = (*resource.Quantity).MilliValue, unfitMilli
		if more := unfit(parts, at); len(more) > 0 {
			return append(errs, more...)
		}
	}
	if r.Step == nil {
		return errs
	}
	return append(errs, validStep(parts, r, capacity, number, unfit, at)...)
}

// validStep wants the ends of a range to be whole steps apart.
func validStep(parts []namedQuantity, r *resourcev1.CapacityRequestPolicyRange, capacity resource.Quantity, number func(*resource.Quantity) int64, unfit func([]namedQuantity, *field.Path) field.ErrorList, at *field.Path) field.ErrorList {
	here := at.Child("step")
	if r.Step.Sign() <= 0 {
		return field.ErrorList{field.Invalid(here, r.Step.String(), "must be greater than zero")}
	}
	one := r.Min.DeepCopy()
	one.Add(*r.Step)
	errs := refuse(one.Cmp(capacity) > 0, here, r.Step.String(), fmt.Sprintf("one step %s is larger than capacity value: %s", one.String(), capacity.String()))
	if more := unfit(parts, at); len(more) > 0 {
		return append(errs, more...)
	}
	for _, p := range parts {
		if p.name == "default" || p.name == "max" {
			errs = append(errs, refuse((number(p.value)-number(r.Min))%number(r.Step) != 0, here, p.value.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String()))...)
		}
	}
	return errs
}

// unfitWhole names the quantities that are no int64 of at least 0.
func unfitWhole(parts []namedQuantity, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, p := range parts {
		switch here := at.Child(p.name); {
		case p.value.Sign() < 0:
			errs = append(errs, field.Invalid(here, p.value.String(), notNegative))
		case p.value.CmpInt64(math.MaxInt64) > 0:
			errs = append(errs, field.Invalid(here, p.value.String(), "must not be larger than 9223372036854775807"))
		}
	}
	return errs
}

// unfitMilli names the quantities that are no whole thousandths.
func unfitMilli(parts []namedQuantity, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, p := range parts {
		milli := resource.NewMilliQuantity(p.value.MilliValue(), p.value.Format)
		errs = append(errs, refuse(p.value.Cmp(*milli) != 0, at.Child(p.name), p.value.String(), "value cannot be represented as a milli value")...)
	}
	return errs
}

func isFraction(q *resource.Quantity) bool {
	whole := q.DeepCopy()
	return !whole.RoundUp(0)
}
