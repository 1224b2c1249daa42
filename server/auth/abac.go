package auth

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// policies are the lines of a file that say who may do what, each for itself:
// access by attributes, which is older than roles.
type policies []policy

// policy is a line: user and group must both match, if they are there, and so must
// what is asked for.
type policy struct {
	User            string `json:"user"`
	Group           string `json:"group"`
	Readonly        bool   `json:"readonly"`
	APIGroup        string `json:"apiGroup"`
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace"`
	NonResourcePath string `json:"nonResourcePath"`
}

// readPolicies reads a file with a JSON object per line. Empty lines and those that
// begin with # say nothing.
func readPolicies(file string) (policies, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all policies
	lines := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		p, err := parsePolicy(text)
		if err != nil {
			return nil, fmt.Errorf("error reading policy file %s, line %d: %s: %w", file, n, lines.Text(), err)
		}
		all = append(all, p)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("error reading policy file %s: %w", file, err)
	}
	return all, nil
}

// parsePolicy reads both forms of a line. The older one has no version, and its
// empty fields mean everything.
func parsePolicy(line string) (policy, error) {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       policy `json:"spec"`
		policy
	}
	const group = "abac.authorization.kubernetes.io/"
	if err := json.Unmarshal([]byte(line), &head); err != nil {
		return policy{}, err
	}
	p := head.Spec
	switch {
	case head.APIVersion == group+"v1beta1" && head.Kind == "Policy":
	case head.APIVersion == "" && head.Kind == "", head.APIVersion == group+"v0" && head.Kind == "Policy":
		p = head.policy
		p.APIGroup, p.NonResourcePath = "*", ""
		if p.Namespace == "" && p.Resource == "" {
			p.NonResourcePath = "*"
		}
		if p.Namespace == "" {
			p.Namespace = "*"
		}
		if p.Resource == "" {
			p.Resource = "*"
		}
		if p.User == "" && p.Group == "" {
			p.Group = user.AllAuthenticated
		}
	default:
		return policy{}, fmt.Errorf("no kind %q is registered for version %q", head.Kind, head.APIVersion)
	}
	if p.User == "*" || p.Group == "*" { // everybody whom we know
		p.User, p.Group = "", user.AllAuthenticated
	}
	return p, nil
}

func (p policy) isAbout(who user.Info) bool {
	if who == nil || p.User == "" && p.Group == "" {
		return false
	}
	return (p.User == "" || p.User == who.GetName()) && (p.Group == "" || slices.Contains(who.GetGroups(), p.Group))
}

func (p policy) allows(a authorizer.Attributes) bool {
	if !p.isAbout(a.GetUser()) || p.Readonly && !a.IsReadOnly() {
		return false
	}
	is := func(rule, value string) bool { return rule == "*" || rule == value }
	if a.IsResourceRequest() {
		return is(p.Namespace, a.GetNamespace()) && is(p.Resource, a.GetResource()) && is(p.APIGroup, a.GetAPIGroup())
	}
	below, wild := strings.CutSuffix(p.NonResourcePath, "*")
	return is(p.NonResourcePath, a.GetPath()) || wild && strings.HasPrefix(a.GetPath(), strings.TrimRight(below, "*"))
}

// Authorize implements authorizer.Authorizer.
func (all policies) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if slices.ContainsFunc(all, func(p policy) bool { return p.allows(a) }) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "No policy matched.", nil
}

// RulesFor implements authorizer.RuleResolver.
func (all policies) RulesFor(_ context.Context, who user.Info, namespace string) (resources []authorizer.ResourceRuleInfo, paths []authorizer.NonResourceRuleInfo, incomplete bool, err error) {
	for _, p := range all {
		if !p.isAbout(who) || p.Namespace != "*" && p.Namespace != namespace {
			continue
		}
		verbs := []string{"*"}
		if p.Readonly {
			verbs = []string{"get", "list", "watch"}
		}
		if p.Resource != "" {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{Verbs: verbs, APIGroups: []string{p.APIGroup}, Resources: []string{p.Resource}})
		}
		if p.NonResourcePath != "" {
			paths = append(paths, &authorizer.DefaultNonResourceRuleInfo{Verbs: verbs, NonResourceURLs: []string{p.NonResourcePath}})
		}
	}
	return resources, paths, false, nil
}
