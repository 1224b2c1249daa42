package auth

import (
	_ "embed" // bootstrap_roles.txt
	"fmt"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed bootstrap_roles.txt
var bootstrapRoles string

// Roles are the RBAC objects of a new cluster.
type Roles struct {
	ClusterRoles        []*rbacv1.ClusterRole
	ClusterRoleBindings []*rbacv1.ClusterRoleBinding
	Roles               []*rbacv1.Role
	RoleBindings        []*rbacv1.RoleBinding
}

// BootstrapRoles reads bootstrap_roles.txt, which describes its own form.
func BootstrapRoles() (*Roles, error) {
	roles := &Roles{}
	rules := (*[]rbacv1.PolicyRule)(nil) // of the role that was begun last
	for n, line := range strings.Split(bootstrapRoles, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var err error
		if strings.HasPrefix(line, "\t") {
			err = addRule(rules, line)
		} else {
			rules, err = roles.begin(strings.Fields(line))
		}
		if err != nil {
			return nil, fmt.Errorf("bootstrap_roles.txt:%d: %w", n+1, err)
		}
	}
	return roles, nil
}

// begin adds the object that a line begins, and returns where its rules go.
func (r *Roles) begin(words []string) (*[]rbacv1.PolicyRule, error) {
	if len(words) < 2 {
		return nil, fmt.Errorf("want a kind and a name")
	}
	namespace, name, namespaced := strings.Cut(words[1], "/")
	if !namespaced {
		namespace, name = "", words[1]
	}
	about := metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels:      map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"},
	}
	switch words[0] {
	case "clusterrole":
		role := &rbacv1.ClusterRole{ObjectMeta: about}
		r.ClusterRoles = append(r.ClusterRoles, role)
		return &role.Rules, addAggregation(role, words[2:])
	case "role":
		role := &rbacv1.Role{ObjectMeta: about}
		r.Roles = append(r.Roles, role)
		return &role.Rules, nil
	}
	if len(words) < 3 {
		return nil, fmt.Errorf("want a role")
	}
	subjects, err := parseSubjects(words[3:])
	if err != nil {
		return nil, err
	}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Name: words[2]}
	switch words[0] {
	case "clusterrolebinding":
		ref.Kind = "ClusterRole"
		r.ClusterRoleBindings = append(r.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: about, RoleRef: ref, Subjects: subjects})
	case "rolebinding":
		ref.Kind = "Role"
		r.RoleBindings = append(r.RoleBindings, &rbacv1.RoleBinding{ObjectMeta: about, RoleRef: ref, Subjects: subjects})
	default:
		return nil, fmt.Errorf("unknown kind %q", words[0])
	}
	return nil, nil
}

func addAggregation(role *rbacv1.ClusterRole, words []string) error {
	for ; len(words) >= 2; words = words[2:] {
		switch words[0] {
		case "aggregates":
			role.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{words[1]: "true"}}}}
		case "joins":
			role.Labels[words[1]] = "true"
		default:
			return fmt.Errorf("unknown word %q", words[0])
		}
	}
	return nil
}

func addRule(rules *[]rbacv1.PolicyRule, line string) error {
	if rules == nil {
		return fmt.Errorf("a rule without a role")
	}
	var parts [][]string
	for _, part := range strings.Split(line, "|") {
		parts = append(parts, strings.Fields(part))
	}
	if len(parts) < 2 || len(parts) > 4 || len(parts[0]) != 1 {
		return fmt.Errorf("want verbs | groups | resources [| names], or verbs | urls")
	}
	rule := rbacv1.PolicyRule{Verbs: strings.Split(parts[0][0], ",")}
	if len(parts) == 2 {
		rule.NonResourceURLs = parts[1]
		*rules = append(*rules, rule)
		return nil
	}
	for _, group := range parts[1] {
		if group == "core" {
			group = ""
		}
		rule.APIGroups = append(rule.APIGroups, group)
	}
	rule.Resources = parts[2]
	if len(parts) == 4 {
		rule.ResourceNames = parts[3]
	}
	*rules = append(*rules, rule)
	return nil
}

func parseSubjects(words []string) ([]rbacv1.Subject, error) {
	var subjects []rbacv1.Subject
	for _, word := range words {
		kind, name, _ := strings.Cut(word, ":")
		s := rbacv1.Subject{Kind: kind, APIGroup: rbacv1.GroupName, Name: name}
		switch kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
		case rbacv1.ServiceAccountKind:
			s.APIGroup = ""
			s.Namespace, s.Name, _ = strings.Cut(name, "/")
		default:
			return nil, fmt.Errorf("unknown kind of subject %q", kind)
		}
		subjects = append(subjects, s)
	}
	return subjects, nil
}
