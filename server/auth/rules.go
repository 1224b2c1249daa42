package auth

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// allows reports whether one of the rules covers a request.
func allows(rules []rbacv1.PolicyRule, a authorizer.Attributes) bool {
	if !a.IsResourceRequest() {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return matchesOne(r.Verbs, a.GetVerb()) && slices.ContainsFunc(r.NonResourceURLs, func(url string) bool { return matchesURL(url, a.GetPath()) })
		})
	}
	resource := a.GetResource()
	if sub := a.GetSubresource(); sub != "" {
		resource += "/" + sub
	}
	for i := range rules {
		r := &rules[i]
		if matchesOne(r.Verbs, a.GetVerb()) && matchesOne(r.APIGroups, a.GetAPIGroup()) &&
			matchesResource(r.Resources, resource, a.GetSubresource()) &&
			(len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, a.GetName())) {
			return true
		}
	}
	return false
}

func matchesOne(list []string, s string) bool {
	for _, have := range list {
		if have == s || have == "*" {
			return true
		}
	}
	return false
}

// matchesResource knows "*", "pods", "pods/log" and "*/scale".
func matchesResource(list []string, resource, sub string) bool {
	for _, have := range list {
		if have == "*" || have == resource {
			return true
		}
		if rest, ok := strings.CutPrefix(have, "*/"); ok && sub != "" && rest == sub {
			return true
		}
	}
	return false
}

func matchesURL(rule, path string) bool {
	if rule == "*" || rule == path {
		return true
	}
	start, ok := strings.CutSuffix(rule, "*")
	return ok && strings.HasPrefix(path, start)
}

// describe is a rule as refusals show it.
func describe(r rbacv1.PolicyRule) string {
	var parts []string
	for _, p := range []struct {
		name   string
		values []string
	}{
		{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs},
		{"ResourceNames", r.ResourceNames}, {"Verbs", r.Verbs},
	} {
		if len(p.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", p.name, p.values))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// compact joins rules that differ in their verbs only.
func compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var joined []rbacv1.PolicyRule
	at := map[string]int{}
	for _, r := range rules {
		bare := r
		bare.Verbs = nil
		key := describe(bare)
		i, ok := at[key]
		if !ok {
			at[key] = len(joined)
			r.Verbs = slices.Clone(r.Verbs)
			joined = append(joined, r)
			continue
		}
		for _, v := range r.Verbs {
			if !slices.Contains(joined[i].Verbs, v) {
				joined[i].Verbs = append(joined[i].Verbs, v)
			}
		}
	}
	return joined
}
