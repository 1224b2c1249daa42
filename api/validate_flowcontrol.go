package api

import (
	"fmt"
	"slices"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/apiserver/pkg/util/shufflesharding"
)

// ValidateFlowSchema names the faults of a FlowSchema.
func ValidateFlowSchema(f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	at, spec := specPath(), &f.Spec
	precedence, level := at.Child("matchingPrecedence"), at.Child("priorityLevelConfiguration", "name")
	errs := refuse(spec.MatchingPrecedence <= 0, precedence, spec.MatchingPrecedence, "must be a positive value")
	errs = append(errs, refuse(spec.MatchingPrecedence > flowcontrolv1.FlowSchemaMaxMatchingPrecedence, precedence, spec.MatchingPrecedence, fmt.Sprintf("must not be greater than %v", flowcontrolv1.FlowSchemaMaxMatchingPrecedence))...)
	errs = append(errs, refuse(spec.MatchingPrecedence == 1 && f.Name != exempt, precedence, spec.MatchingPrecedence, "only the schema named 'exempt' may have matchingPrecedence 1")...)
	if m := spec.DistinguisherMethod; m != nil {
		allowed := []flowcontrolv1.FlowDistinguisherMethodType{flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType}
		if !slices.Contains(allowed, m.Type) {
			errs = append(errs, field.NotSupported(at.Child("distinguisherMethod", "type"), shown(m), allowed))
		}
	}
	if name := spec.PriorityLevelConfiguration.Name; name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	} else {
		errs = append(errs, invalid(level, name, subdomain(name))...)
	}
	errs = append(errs, elements(spec.Rules, at.Child("rules"), validFlowRule)...)
	for _, fixed := range bootstrap.MandatoryFlowSchemas {
		if fixed.Name == f.Name {
			errs = append(errs, refuse(!equality.Semantic.DeepEqual(*spec, fixed.Spec), at, *spec, fmt.Sprintf("spec of '%s' must equal the fixed value", f.Name))...)
		}
	}
	return append(errs, ValidateFlowSchemaStatus(f, nil)...)
}

// exempt is the name of the schema and of the level of what is never held up.
const exempt = flowcontrolv1.FlowSchemaNameExempt

// ValidateFlowSchemaStatus names the faults of a FlowSchema with a new status.
func ValidateFlowSchemaStatus(f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
	return distinctTypes(f.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) flowcontrolv1.FlowSchemaConditionType { return c.Type })
}

// distinctTypes wants conditions of a status to have types, each its own.
func distinctTypes[C any, T ~string](conditions []C, typeOf func(C) T) field.ErrorList {
	at := field.NewPath("status", "conditions")
	var errs field.ErrorList
	seen := map[T]bool{}
	for i, c := range conditions {
		here, t := at.Index(i).Child("type"), typeOf(c)
		if seen[t] {
			errs = append(errs, field.Duplicate(here, t))
		}
		seen[t] = true
		errs = append(errs, required(string(t), here)...)
	}
	return errs
}

func validFlowRule(r *flowcontrolv1.PolicyRulesWithSubjects, at *field.Path) field.ErrorList {
	errs := elements(r.Subjects, at.Child("subjects"), validFlowSubject)
	errs = append(errs, need(len(r.Subjects) == 0, at.Child("subjects"), "subjects must contain at least one value")...)
	errs = append(errs, need(len(r.ResourceRules)+len(r.NonResourceRules) == 0, at, "at least one of resourceRules and nonResourceRules has to be non-empty")...)
	errs = append(errs, elements(r.ResourceRules, at.Child("resourceRules"), validFlowResources)...)
	return append(errs, elements(r.NonResourceRules, at.Child("nonResourceRules"), validFlowPaths)...)
}

// validFlowSubject wants what the kind says, and nothing else.
func validFlowSubject(s *flowcontrolv1.Subject, at *field.Path) field.ErrorList {
	kinds := []struct {
		kind  flowcontrolv1.SubjectKind
		field string
		set   bool
		check func() field.ErrorList
	}{
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil, func() field.ErrorList {
			return validFlowAccount(s.ServiceAccount, at.Child("serviceAccount"))
		}},
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil, func() field.ErrorList { return required(s.User.Name, at.Child("user", "name")) }},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil, func() field.ErrorList { return required(s.Group.Name, at.Child("group", "name")) }},
	}
	var errs, others field.ErrorList
	known := false
	for _, k := range kinds {
		switch here := at.Child(k.field); {
		case k.kind != s.Kind:
			others = append(others, forbid(k.set, here, fmt.Sprintf("%s is forbidden when subject kind is not '%s'", k.field, k.kind))...)
			continue
		case k.set:
			errs = k.check()
		default:
			errs = field.ErrorList{field.Required(here, fmt.Sprintf("%s is required when subject kind is '%s'", k.field, k.kind))}
		}
		known = true
	}
	if !known {
		return among(s.Kind, at.Child("kind"), flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount, flowcontrolv1.SubjectKindUser)
	}
	return append(errs, others...)
}

func validFlowAccount(s *flowcontrolv1.ServiceAccountSubject, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name != flowcontrolv1.NameAll {
		errs = requiredValid(s.Name, at.Child("name"), subdomain)
	}
	if s.Namespace == "" {
		return append(errs, field.Required(at.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, invalid(at.Child("namespace"), s.Namespace, label(s.Namespace))...)
}

var flowVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}

func validFlowVerbs(verbs []string, at *field.Path) field.ErrorList {
	known := !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(flowVerbs, v) })
	if len(verbs) > 0 && !slices.Contains(verbs, "*") && !known {
		return field.ErrorList{field.NotSupported(at, verbs, flowVerbs)}
	}
	return allAlone(verbs, at, "verbs must contain at least one value", "verbs")
}

// allAlone wants something in a list, and nothing else beside *.
func allAlone(list []string, at *field.Path, missing, what string) field.ErrorList {
	if len(list) == 0 {
		return field.ErrorList{field.Required(at, missing)}
	}
	return refuse(len(list) > 1 && slices.Contains(list, "*"), at, list, "if '*' is present, must not specify other "+what)
}

func validFlowResources(r *flowcontrolv1.ResourcePolicyRule, at *field.Path) field.ErrorList {
	errs := validFlowVerbs(r.Verbs, at.Child("verbs"))
	errs = append(errs, allAlone(r.APIGroups, at.Child("apiGroups"), "resource rules must supply at least one api group", "api groups")...)
	errs = append(errs, allAlone(r.Resources, at.Child("resources"), "resource rules must supply at least one resource", "resources")...)
	at = at.Child("namespaces")
	if len(r.Namespaces) == 0 {
		return append(errs, need(!r.ClusterScope, at, "resource rules that are not cluster scoped must supply at least one namespace")...)
	}
	errs = append(errs, allAlone(r.Namespaces, at, "", "namespaces")...)
	if slices.Contains(r.Namespaces, "*") {
		return errs
	}
	for i, ns := range r.Namespaces {
		for _, complaint := range label(ns) {
			errs = append(errs, field.Invalid(at.Index(i), ns, "each member of this list must be '*' or a DNS-1123 label; "+complaint))
		}
	}
	return errs
}

func validFlowPaths(r *flowcontrolv1.NonResourcePolicyRule, at *field.Path) field.ErrorList {
	errs := validFlowVerbs(r.Verbs, at.Child("verbs"))
	at = at.Child("nonResourceURLs")
	errs = append(errs, allAlone(r.NonResourceURLs, at, "nonResourceURLs must contain at least one value", "non-resource URLs")...)
	if slices.Contains(r.NonResourceURLs, "*") {
		return errs
	}
	for i, path := range r.NonResourceURLs {
		why := badFlowPath(path)
		errs = append(errs, refuse(why != "", at.Index(i), path, why)...)
	}
	return errs
}

// badFlowPath is why a path is none that a rule can name.
func badFlowPath(path string) string {
	switch stars := strings.Count(path, "*"); {
	case path == "":
		return "must not be empty"
	case path == "/":
		return ""
	case !strings.HasPrefix(path, "/"):
		return "must start with slash"
	case strings.Contains(path, " "):
		return "must not contain white-space"
	case strings.Contains(path, "//"):
		return "must not contain double slash"
	case stars > 1, stars == 1 && !strings.HasSuffix(path, "/*"):
		return "wildcard can only do suffix matching"
	}
	return ""
}

// ValidatePriorityLevel names the faults of a PriorityLevelConfiguration.
func ValidatePriorityLevel(l, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	at, spec := specPath(), &l.Spec
	isExempt := spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	errs := forbid(l.Annotations[flowZeroShares] != "", field.NewPath("metadata", "annotations"), "annotation '"+flowZeroShares+"' is forbidden")
	errs = append(errs, refuse((l.Name == exempt) != isExempt, at.Child("type"), spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'")...)
	switch spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if e := spec.Exempt; e != nil {
			here := at.Child("exempt")
			errs = append(errs, validShares(e.NominalConcurrencyShares, here)...)
			errs = append(errs, validLendable(e.LendablePercent, here)...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if spec.Limited != nil {
			errs = append(errs, validLimits(spec.Limited, at.Child("limited"))...)
		}
	case "":
	default:
		errs = append(errs, among(spec.Type, at.Child("type"), flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)...)
	}
	errs = append(errs, forbid(!isExempt && spec.Exempt != nil, at.Child("exempt"), "").MarkBeta()...)
	errs = append(errs, onlyFor(spec.Type, flowcontrolv1.PriorityLevelEnablementLimited, spec.Limited != nil, at.Child("limited"))...)
	errs = append(errs, requiredByRule(spec.Type, at.Child("type"))...)
	errs = append(errs, unlikeFixedLevel(l, at)...)
	return append(errs, ValidatePriorityLevelStatus(l, nil)...)
}

// unlikeFixedLevel keeps the levels that the server can't do without as they are;
// of the exempt one the shares may be other than at first.
func unlikeFixedLevel(l *flowcontrolv1.PriorityLevelConfiguration, at *field.Path) field.ErrorList {
	for _, fixed := range bootstrap.MandatoryPriorityLevelConfigurations {
		if fixed.Name != l.Name {
			continue
		}
		now, but := l.Spec, ""
		if l.Name == exempt {
			now.Exempt, but = fixed.Spec.Exempt, " except the 'spec.exempt' field"
		}
		return refuse(!equality.Semantic.DeepEqual(now, fixed.Spec), at, l.Spec, fmt.Sprintf("spec of '%s'%s must equal the fixed value", l.Name, but))
	}
	return nil
}

// flowZeroShares is an annotation of old versions, in which 0 meant a default.
const flowZeroShares = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"

// onlyFor wants a field with one type, and forbids it with others.
func onlyFor[T ~string](value, wanted T, set bool, at *field.Path) field.ErrorList {
	if value == wanted {
		return need(!set, at, "").MarkBeta()
	}
	return forbid(set, at, "").MarkBeta()
}

// ValidatePriorityLevelStatus names the faults of a PriorityLevelConfiguration
// with a new status.
func ValidatePriorityLevelStatus(l, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	return distinctTypes(l.Status.Conditions, func(c flowcontrolv1.PriorityLevelConfigurationCondition) flowcontrolv1.PriorityLevelConfigurationConditionType {
		return c.Type
	})
}

func validShares(shares *int32, at *field.Path) field.ErrorList {
	if shares == nil {
		return nil
	}
	return refuse(*shares < 0, at.Child("nominalConcurrencyShares"), *shares, "must be a non-negative integer")
}

func validLendable(percent *int32, at *field.Path) field.ErrorList {
	if percent == nil {
		return nil
	}
	return refuse(*percent < 0 || *percent > 100, at.Child("lendablePercent"), *percent, "must be between 0 and 100, inclusive")
}

func validLimits(l *flowcontrolv1.LimitedPriorityLevelConfiguration, at *field.Path) field.ErrorList {
	errs := validShares(l.NominalConcurrencyShares, at)
	response, queuing := &l.LimitResponse, l.LimitResponse.Queuing
	here := at.Child("limitResponse")
	switch response.Type {
	case flowcontrolv1.LimitResponseTypeReject, "":
	case flowcontrolv1.LimitResponseTypeQueue:
		if queuing != nil {
			errs = append(errs, validQueues(queuing, here.Child("queuing"))...)
		}
	default:
		errs = append(errs, among(response.Type, here.Child("type"), flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)...)
	}
	errs = append(errs, onlyFor(response.Type, flowcontrolv1.LimitResponseTypeQueue, queuing != nil, here.Child("queuing"))...)
	errs = append(errs, requiredByRule(response.Type, here.Child("type"))...)
	errs = append(errs, validLendable(l.LendablePercent, at)...)
	if b := l.BorrowingLimitPercent; b != nil {
		errs = append(errs, refuse(*b < 0, at.Child("borrowingLimitPercent"), *b, "if specified, must be a non-negative integer")...)
	}
	return errs
}

// validQueues wants hands that can be dealt from one hash.
func validQueues(q *flowcontrolv1.QueuingConfiguration, at *field.Path) field.ErrorList {
	const most = 10_000_000
	errs := refuse(q.QueueLengthLimit <= 0, at.Child("queueLengthLimit"), q.QueueLengthLimit, "must be positive")
	errs = append(errs, refuse(q.Queues <= 0, at.Child("queues"), q.Queues, "must be positive")...)
	errs = append(errs, refuse(q.Queues > most, at.Child("queues"), q.Queues, fmt.Sprintf("must not be greater than %d", most))...)
	hand := at.Child("handSize")
	switch {
	case q.HandSize <= 0:
		return append(errs, field.Invalid(hand, q.HandSize, "must be positive"))
	case q.HandSize > q.Queues:
		return append(errs, field.Invalid(hand, q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues)))
	}
	bits := shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize))
	return append(errs, refuse(bits > shufflesharding.MaxHashBits, hand, q.HandSize, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d", q.Queues, q.HandSize, shufflesharding.MaxHashBits))...)
}
