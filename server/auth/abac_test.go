package auth

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func policyFile(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestPolicies(t *testing.T) {
	v1beta1 := func(spec string) string {
		return `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{` + spec + `}}`
	}
	for _, c := range []struct {
		line, ask string // user[,group...] verb namespace/group/resource, or a path
		want      bool
	}{
		{v1beta1(`"user":"ann","namespace":"*","resource":"pods","apiGroup":""`), "ann create ns//pods", true},
		{v1beta1(`"user":"ann","namespace":"*","resource":"pods","apiGroup":""`), "bob create ns//pods", false},
		{v1beta1(`"user":"ann","namespace":"*","resource":"pods","apiGroup":"apps"`), "ann create ns//pods", false},
		{v1beta1(`"user":"ann","namespace":"ns","resource":"*","apiGroup":"*"`), "ann create other//pods", false},
		{v1beta1(`"user":"ann","namespace":"ns","resource":"*","apiGroup":"*"`), "ann create ns/apps/deployments", true},
		{v1beta1(`"user":"ann","readonly":true,"namespace":"*","resource":"*","apiGroup":"*"`), "ann create ns//pods", false},
		{v1beta1(`"user":"ann","readonly":true,"namespace":"*","resource":"*","apiGroup":"*"`), "ann watch ns//pods", true},
		{v1beta1(`"group":"dev","namespace":"*","resource":"*","apiGroup":"*"`), "ann,dev get ns//pods", true},
		{v1beta1(`"user":"ann","group":"dev","namespace":"*","resource":"*","apiGroup":"*"`), "ann get ns//pods", false},
		{v1beta1(`"user":"*","namespace":"*","resource":"*","apiGroup":"*"`), "ann get ns//pods", false},
		{v1beta1(`"user":"*","namespace":"*","resource":"*","apiGroup":"*"`), "ann,system:authenticated get ns//pods", true},
		{v1beta1(`"namespace":"*","resource":"*","apiGroup":"*"`), "ann,system:authenticated get ns//pods", false},
		{v1beta1(`"user":"ann","nonResourcePath":"/version"`), "ann get /version", true},
		{v1beta1(`"user":"ann","nonResourcePath":"/api*"`), "ann get /apis/apps", true},
		{v1beta1(`"user":"ann","nonResourcePath":"*"`), "ann get ns//pods", false},
		{v1beta1(`"user":"ann"`), "ann get /version", false},
		{`{"user":"ann"}`, "ann create ns/apps/deployments", true},
		{`{"user":"ann"}`, "ann get /version", true},
		{`{"user":"ann","resource":"pods"}`, "ann get /version", false},
		{`{"readonly":true}`, "ann,system:authenticated list ns//pods", true},
		{`{"readonly":true}`, "ann list ns//pods", false},
	} {
		all, err := readPolicies(policyFile(t, "# a comment", "", c.line))
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(c.ask)
		names := strings.Split(words[0], ",")
		a := authorizer.AttributesRecord{User: who(names[0], names[1:]...), Verb: words[1], Path: words[2]}
		if parts := strings.Split(words[2], "/"); parts[0] != "" {
			a.ResourceRequest, a.Namespace, a.APIGroup, a.Resource = true, parts[0], parts[1], parts[2]
		}
		if decision, _, _ := all.Authorize(t.Context(), a); (decision == authorizer.DecisionAllow) != c.want {
			t.Errorf("%s\n%s: %v", c.line, c.ask, decision)
		}
	}
}

func TestPolicyRulesAndErrors(t *testing.T) {
	all, err := readPolicies(policyFile(t, `{"user":"ann","readonly":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resources, paths, _, _ := all.RulesFor(t.Context(), who("ann"), "ns")
	if got := fmt.Sprint(resources[0].GetVerbs(), resources[0].GetResources(), paths[0].GetNonResourceURLs()); got != "[get list watch] [*] [*]" {
		t.Errorf("rules %s", got)
	}
	for line, want := range map[string]string{
		`{"user`:                           "line 2: {\"user: unexpected end of JSON input",
		`{"apiVersion":"v1","kind":"Pod"}`: `no kind "Pod" is registered for version "v1"`,
	} {
		if _, err := readPolicies(policyFile(t, "# first", line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for want, f := range map[string]AuthorizationFlags{
		"authorization-mode ABAC's authorization policy file not passed": {Modes: []string{"ABAC"}},
		"cannot specify --authorization-policy-file without mode ABAC":   {Modes: []string{"RBAC"}, PolicyFile: "x"},
	} {
		if _, err := f.Configuration(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	file := policyFile(t, `{"user":"ann","resource":"pods"}`)
	config, err := AuthorizationFlags{Modes: []string{"ABAC"}, PolicyFile: file}.Configuration()
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewAuthorizer(AuthorizerConfig{Source: newFakeStore(), Configuration: config, PolicyFile: file})
	if err != nil {
		t.Fatal(err)
	}
	if decision, _, _ := a.Authorize(t.Context(), authorizer.AttributesRecord{User: who("ann"), Verb: "create", Namespace: "ns", Resource: "pods", ResourceRequest: true}); decision != authorizer.DecisionAllow {
		t.Errorf("decision %v", decision)
	}
}
