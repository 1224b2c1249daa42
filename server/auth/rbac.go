package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// RBAC decides by roles and bindings. It keeps the bindings indexed by subject,
// so that a request costs a few map look-ups, however many bindings there are.
type RBAC struct {
	mu           sync.RWMutex // protects the fields below
	clusterRoles map[string][]rbacv1.PolicyRule
	roles        map[string][]rbacv1.PolicyRule // by namespace/name
	cluster      *bindings
	namespaced   map[string]*bindings
}

// NewRBAC makes an authoriser without any roles: it allows nothing until
// followers have filled it.
func NewRBAC() *RBAC {
	return &RBAC{
		clusterRoles: map[string][]rbacv1.PolicyRule{},
		roles:        map[string][]rbacv1.PolicyRule{},
		cluster:      newBindings(),
		namespaced:   map[string]*bindings{},
	}
}

// bindings are those of one namespace, or of the cluster.
type bindings struct {
	byName    map[string]*binding
	bySubject map[string]map[string]*binding // subject key, then binding name
}

// binding is a RoleBinding, or with namespace "" a ClusterRoleBinding.
type binding struct {
	namespace, name string
	role            rbacv1.RoleRef
	subjects        map[string]rbacv1.Subject // by subject key
}

func newBindings() *bindings {
	return &bindings{byName: map[string]*binding{}, bySubject: map[string]map[string]*binding{}}
}

func (s *bindings) put(b *binding) {
	s.remove(b.name)
	s.byName[b.name] = b
	for key := range b.subjects {
		if s.bySubject[key] == nil {
			s.bySubject[key] = map[string]*binding{}
		}
		s.bySubject[key][b.name] = b
	}
}

func (s *bindings) remove(name string) {
	old := s.byName[name]
	if old == nil {
		return
	}
	delete(s.byName, name)
	for key := range old.subjects {
		delete(s.bySubject[key], name)
		if len(s.bySubject[key]) == 0 {
			delete(s.bySubject, key)
		}
	}
}

// Subject keys: a service account is the user of that name.
func userKey(name string) string  { return "user " + name }
func groupKey(name string) string { return "group " + name }

func newBinding(namespace, name string, role rbacv1.RoleRef, subjects []rbacv1.Subject) *binding {
	b := &binding{namespace: namespace, name: name, role: role, subjects: map[string]rbacv1.Subject{}}
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			b.subjects[userKey(s.Name)] = s
		case rbacv1.GroupKind:
			b.subjects[groupKey(s.Name)] = s
		case rbacv1.ServiceAccountKind:
			if s.Namespace == "" {
				s.Namespace = namespace
			}
			if s.Namespace != "" {
				b.subjects[userKey(serviceaccount.MakeUsername(s.Namespace, s.Name))] = s
			}
		}
	}
	return b
}

// describe is the binding as reasons show it.
func (b *binding) describe(s rbacv1.Subject) string {
	kind, name, subject := "ClusterRoleBinding", b.name, s.Name
	if b.namespace != "" {
		kind, name = "RoleBinding", b.name+"/"+b.namespace
	}
	if s.Kind == rbacv1.ServiceAccountKind {
		subject += "/" + s.Namespace
	}
	return fmt.Sprintf("%s %q of %s %q to %s %q", kind, name, b.role.Kind, b.role.Name, s.Kind, subject)
}

// apply takes in changes of one of the four kinds.
func (r *RBAC) apply(kind string, changes []Change, reset bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reset {
		r.forget(kind)
	}
	for _, c := range changes {
		r.applyOne(c.Object, c.Deleted)
	}
}

func (r *RBAC) forget(kind string) {
	switch kind {
	case "clusterroles":
		clear(r.clusterRoles)
	case "roles":
		clear(r.roles)
	case "clusterrolebindings":
		r.cluster = newBindings()
	case "rolebindings":
		clear(r.namespaced)
	}
}

func (r *RBAC) applyOne(obj runtime.Object, deleted bool) {
	switch o := obj.(type) {
	case *rbacv1.ClusterRole:
		delete(r.clusterRoles, o.Name)
		if !deleted {
			r.clusterRoles[o.Name] = o.Rules
		}
	case *rbacv1.Role:
		delete(r.roles, o.Namespace+"/"+o.Name)
		if !deleted {
			r.roles[o.Namespace+"/"+o.Name] = o.Rules
		}
	case *rbacv1.ClusterRoleBinding:
		if deleted {
			r.cluster.remove(o.Name)
			return
		}
		r.cluster.put(newBinding("", o.Name, o.RoleRef, o.Subjects))
	case *rbacv1.RoleBinding:
		set := r.namespaced[o.Namespace]
		if set == nil {
			set = newBindings()
			r.namespaced[o.Namespace] = set
		}
		if deleted {
			set.remove(o.Name)
			if len(set.byName) == 0 {
				delete(r.namespaced, o.Namespace)
			}
			return
		}
		set.put(newBinding(o.Namespace, o.Name, o.RoleRef, o.Subjects))
	}
}

// Authorize allows what a rule of the user covers, and has no opinion on the rest.
func (r *RBAC) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	reason, errs := "", []error(nil)
	r.visit(a.GetUser(), a.GetNamespace(), func(b *binding, s rbacv1.Subject, rules []rbacv1.PolicyRule, err error) bool {
		if err != nil {
			errs = append(errs, err)
			return true
		}
		if allows(rules, a) {
			reason = "RBAC: allowed by " + b.describe(s)
			return false
		}
		return true
	})
	if reason != "" {
		return authorizer.DecisionAllow, reason, nil
	}
	if len(errs) > 0 {
		return authorizer.DecisionNoOpinion, "RBAC: " + singular.Replace(joinErrors(errs)), nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// visit shows f the rules that bindings give a user, cluster-wide ones first,
// until f returns false. f gets an error for a binding to a role that is not there.
func (r *RBAC) visit(who user.Info, namespace string, f func(*binding, rbacv1.Subject, []rbacv1.PolicyRule, error) bool) {
	if who == nil {
		return
	}
	keys := make([]string, 0, 1+len(who.GetGroups()))
	keys = append(keys, userKey(who.GetName()))
	for _, g := range who.GetGroups() {
		keys = append(keys, groupKey(g))
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, set := range []*bindings{r.cluster, r.namespaced[namespace]} {
		if set == nil {
			continue
		}
		for _, key := range keys {
			for _, b := range set.bySubject[key] {
				rules, err := r.rules(b.role, b.namespace)
				if !f(b, b.subjects[key], rules, err) {
					return
				}
			}
		}
	}
}

// singular has errors about roles that are gone name the kind, as upstream's authoriser
// does, where others name the resource.
var singular = strings.NewReplacer("clusterroles.rbac.", "clusterrole.rbac.", "roles.rbac.", "role.rbac.")

// rules returns those of a role; the caller holds the lock.
func (r *RBAC) rules(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	switch ref.Kind {
	case "Role":
		if rules, ok := r.roles[namespace+"/"+ref.Name]; ok {
			return rules, nil
		}
		return nil, apierrors.NewNotFound(rbac("roles"), ref.Name)
	case "ClusterRole":
		if rules, ok := r.clusterRoles[ref.Name]; ok {
			return rules, nil
		}
		return nil, apierrors.NewNotFound(rbac("clusterroles"), ref.Name)
	}
	return nil, fmt.Errorf("unsupported role reference kind: %q", ref.Kind)
}

// policyRules is everything that a user may do in a namespace ("": cluster-wide).
func (r *RBAC) policyRules(who user.Info, namespace string) (rules []rbacv1.PolicyRule, errs []error) {
	r.visit(who, namespace, func(_ *binding, _ rbacv1.Subject, more []rbacv1.PolicyRule, err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		rules = append(rules, more...)
		return true
	})
	return rules, errs
}

// RulesFor implements authorizer.RuleResolver, for SelfSubjectRulesReview.
func (r *RBAC) RulesFor(_ context.Context, who user.Info, namespace string) ([]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error) {
	rules, errs := r.policyRules(who, namespace)
	var resources []authorizer.ResourceRuleInfo
	var urls []authorizer.NonResourceRuleInfo
	for _, rule := range rules {
		if len(rule.Resources) > 0 {
			resources = append(resources, &authorizer.DefaultResourceRuleInfo{Verbs: rule.Verbs, APIGroups: rule.APIGroups, Resources: rule.Resources, ResourceNames: rule.ResourceNames})
		}
		if len(rule.NonResourceURLs) > 0 {
			urls = append(urls, &authorizer.DefaultNonResourceRuleInfo{Verbs: rule.Verbs, NonResourceURLs: rule.NonResourceURLs})
		}
	}
	return resources, urls, false, errors.Join(errs...)
}

// covers reports whether a user holds all of the rules, and which it does not.
func (r *RBAC) covers(who user.Info, namespace string, wanted []rbacv1.PolicyRule) (bool, []rbacv1.PolicyRule, []error) {
	held, errs := r.policyRules(who, namespace)
	ok, missing := validation.Covers(held, wanted)
	return ok, missing, errs
}

func joinErrors(errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	if len(texts) == 1 {
		return texts[0]
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
