package api

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// RightsPath is where the API server tells who may do what, as far as the asking user
// may read roles and bindings. A GET with verb and resource ("pods", "pods/log",
// "/metrics"), and group, name and namespace where they matter, answers a WhoCan; one
// with of (a subject as ParseSubject reads it, or "me") and namespace answers Rights;
// one with neither answers Subjects. Without a namespace it is about all of them.
const RightsPath = OwnPrefix + "v1/rights"

// Subject is whom bindings name.
type Subject struct {
	Kind      string `json:"kind"` // User, Group or ServiceAccount
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// accountPrefix is what the user names of service accounts begin with.
const accountPrefix = "system:serviceaccount:"

// ParseSubject reads "u:jane", "g:dev", "s:shop:builder", or the same with user, group
// and sa. A service account may also be named as the user that it is.
func ParseSubject(text string) (s Subject, ok bool) {
	if strings.HasPrefix(text, accountPrefix) {
		text = "u:" + text
	}
	sort, name, _ := strings.Cut(text, ":")
	switch sort {
	case "u", "user":
		if account, is := strings.CutPrefix(name, accountPrefix); is {
			return ParseSubject("s:" + account)
		}
		s.Kind, s.Name = rbacv1.UserKind, name
	case "g", "group":
		s.Kind, s.Name = rbacv1.GroupKind, name
	case "s", "sa":
		s.Kind = rbacv1.ServiceAccountKind
		s.Namespace, s.Name, _ = strings.Cut(name, ":")
	}
	return s, s.Name != "" && (s.Namespace != "" || s.Kind != rbacv1.ServiceAccountKind)
}

// String is the subject as ParseSubject reads it.
func (s Subject) String() string {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		return "sa:" + s.Namespace + ":" + s.Name
	case rbacv1.GroupKind:
		return "group:" + s.Name
	}
	return "user:" + s.Name
}

// WhoCan is who may do something.
type WhoCan struct {
	Holders []Holder  `json:"holders"`           // those of the whole cluster first
	Remarks []Finding `json:"remarks,omitempty"` // who may by something else than bindings
}

// Holder is a subject to whom a binding gives a right.
type Holder struct {
	Subject   Subject   `json:"subject"`
	Binding   ObjectRef `json:"binding"`
	Role      ObjectRef `json:"role"`
	Namespace string    `json:"namespace,omitempty"` // where it holds; none: everywhere
	Names     []string  `json:"names,omitempty"`     // it holds for objects of these names only
}

// Rights are what a subject may do.
type Rights struct {
	Subject Subject      `json:"subject"`
	Groups  []string     `json:"groups,omitempty"` // whose rights are counted in
	Rules   []RightsRule `json:"rules"`
	Kinds   []KindRights `json:"kinds"`
	Remarks []Finding    `json:"remarks,omitempty"`
}

// RightsRule is a rule, and where it comes from.
type RightsRule struct {
	rbacv1.PolicyRule
	Namespace string `json:"namespace,omitempty"` // where it holds; none: everywhere
	// Binding gives the Role to Through: the subject, or a group that it is in. There
	// are none of a rule that is not RBAC's.
	Through *Subject   `json:"through,omitempty"`
	Binding *ObjectRef `json:"binding,omitempty"`
	Role    *ObjectRef `json:"role,omitempty"`
	Limited bool       `json:"limited,omitempty"` // it holds for some objects only
}

// KindRights is what the rules come to for a kind, a subresource, or a path of the API
// server, which begins with a slash.
type KindRights struct {
	Group      string   `json:"group,omitempty"`
	Resource   string   `json:"resource"`
	Namespaced bool     `json:"namespaced,omitempty"`
	All        []string `json:"all,omitempty"`   // verbs
	Some       []string `json:"some,omitempty"`  // verbs in some namespaces, or on some objects, only
	Rules      []int    `json:"rules,omitempty"` // those of Rights.Rules that say it
}

// Subjects are all that bindings name.
type Subjects struct {
	Items []BoundSubject `json:"items"`
}

// BoundSubject is a subject, and how many bindings name it.
type BoundSubject struct {
	Subject  Subject `json:"subject"`
	Bindings int     `json:"bindings"`
}
