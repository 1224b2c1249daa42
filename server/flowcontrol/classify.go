package flowcontrol

import (
	"net/url"
	"slices"
	"strings"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Request is what flow control knows of a request.
type Request struct {
	User user.Info
	// Resource requests are about objects, all others about paths.
	Resource        bool
	Verb            string
	GVR             schema.GroupVersionResource
	Subresource     string
	Namespace, Name string
	URL             *url.URL
	Received        time.Time
}

// matches reports whether a schema is for a request.
func matches(s *flowcontrolv1.FlowSchema, r *Request) bool {
	for i := range s.Spec.Rules {
		rule := &s.Spec.Rules[i]
		if matchesSubject(rule.Subjects, r.User) && (r.Resource && matchesResource(rule.ResourceRules, r) || !r.Resource && matchesPath(rule.NonResourceRules, r)) {
			return true
		}
	}
	return false
}

func matchesSubject(subjects []flowcontrolv1.Subject, who user.Info) bool {
	for i := range subjects {
		s := &subjects[i]
		switch {
		case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
			if s.User.Name == flowcontrolv1.NameAll || s.User.Name == who.GetName() {
				return true
			}
		case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
			if s.Group.Name == flowcontrolv1.NameAll || slices.Contains(who.GetGroups(), s.Group.Name) {
				return true
			}
		case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
			if isServiceAccount(who.GetName(), s.ServiceAccount) {
				return true
			}
		}
	}
	return false
}

// isServiceAccount compares without making a string: it is asked at every
// request.
func isServiceAccount(name string, s *flowcontrolv1.ServiceAccountSubject) bool {
	name, ok := strings.CutPrefix(name, "system:serviceaccount:")
	if !ok {
		return false
	}
	namespace, name, ok := strings.Cut(name, ":")
	return ok && namespace == s.Namespace && (s.Name == flowcontrolv1.NameAll || s.Name == name)
}

func matchesResource(rules []flowcontrolv1.ResourcePolicyRule, r *Request) bool {
	for i := range rules {
		rule := &rules[i]
		if !has(rule.Verbs, r.Verb) || !hasResource(rule.Resources, r) || !has(rule.APIGroups, r.GVR.Group) {
			continue
		}
		if r.Namespace == "" && rule.ClusterScope || r.Namespace != "" && has(rule.Namespaces, r.Namespace) {
			return true
		}
	}
	return false
}

// has: the wildcard, if it is there, is the only one.
func has(list []string, x string) bool {
	return len(list) == 1 && list[0] == "*" || slices.Contains(list, x)
}

func hasResource(list []string, r *Request) bool {
	if r.Subresource == "" {
		return has(list, r.GVR.Resource)
	}
	return len(list) == 1 && list[0] == flowcontrolv1.ResourceAll || slices.ContainsFunc(list, func(rule string) bool {
		resource, sub, _ := strings.Cut(rule, "/")
		return resource == r.GVR.Resource && sub == r.Subresource
	})
}

func matchesPath(rules []flowcontrolv1.NonResourcePolicyRule, r *Request) bool {
	return slices.ContainsFunc(rules, func(rule flowcontrolv1.NonResourcePolicyRule) bool {
		return has(rule.Verbs, r.Verb) && slices.ContainsFunc(rule.NonResourceURLs, func(path string) bool {
			if path == flowcontrolv1.NonResourceAll || path == r.URL.Path {
				return true
			}
			below := strings.TrimSuffix(strings.TrimSuffix(path, "*"), "/") + "/"
			return strings.HasPrefix(r.URL.Path, below)
		})
	})
}

// distinguisher is what tells a schema's flows apart.
func distinguisher(s *flowcontrolv1.FlowSchema, r *Request) string {
	if s.Spec.DistinguisherMethod == nil {
		return ""
	}
	if s.Spec.DistinguisherMethod.Type == flowcontrolv1.FlowDistinguisherMethodByNamespaceType {
		return r.Namespace
	}
	return r.User.GetName()
}

// usable reports whether a level's parts fit together; validation sees to it that
// they do in what clients write.
func usable(p *flowcontrolv1.PriorityLevelConfiguration) bool {
	limited, exempt := p.Spec.Limited, p.Spec.Exempt
	isExempt := p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	if isExempt != (exempt != nil) || isExempt == (limited != nil) || isExempt != (p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) {
		return false
	}
	if limited == nil {
		return true
	}
	q := limited.LimitResponse.Queuing
	rejects := limited.LimitResponse.Type == flowcontrolv1.LimitResponseTypeReject
	return rejects == (q == nil) && (q == nil || q.Queues > 0 && q.HandSize > 0 && q.HandSize <= q.Queues)
}
