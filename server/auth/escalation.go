package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// CheckGrant refuses a write of a role or binding by which a user would hand
// out rights that it does not hold. Who may "escalate" roles, or "bind" the role
// in question, may do so all the same. old is nil on create; other kinds pass.
func (a *Authorizer) CheckGrant(ctx context.Context, who user.Info, obj, old runtime.Object) error {
	if who == nil || slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup) {
		return nil
	}
	switch o := obj.(type) {
	case *rbacv1.ClusterRole:
		before, _ := old.(*rbacv1.ClusterRole)
		return a.checkClusterRole(ctx, who, o, before)
	case *rbacv1.Role:
		if before, ok := old.(*rbacv1.Role); ok && equality.Semantic.DeepEqual(before.Rules, o.Rules) {
			return nil
		}
		return a.checkRules(ctx, who, "roles", o.Namespace, o.Name, o.Rules)
	case *rbacv1.ClusterRoleBinding:
		if before, ok := old.(*rbacv1.ClusterRoleBinding); ok && before.RoleRef == o.RoleRef && equality.Semantic.DeepEqual(before.Subjects, o.Subjects) {
			return nil
		}
		return a.checkBinding(ctx, who, "clusterrolebindings", "", o.Name, o.RoleRef)
	case *rbacv1.RoleBinding:
		if before, ok := old.(*rbacv1.RoleBinding); ok && before.RoleRef == o.RoleRef && equality.Semantic.DeepEqual(before.Subjects, o.Subjects) {
			return nil
		}
		return a.checkBinding(ctx, who, "rolebindings", o.Namespace, o.Name, o.RoleRef)
	}
	return nil
}

// checkClusterRole treats aggregation as handing out everything: what the role
// will hold is not known.
func (a *Authorizer) checkClusterRole(ctx context.Context, who user.Info, role, before *rbacv1.ClusterRole) error {
	if before != nil && equality.Semantic.DeepEqual(before.Rules, role.Rules) && equality.Semantic.DeepEqual(before.AggregationRule, role.AggregationRule) {
		return nil
	}
	if err := a.checkRules(ctx, who, "clusterroles", "", role.Name, role.Rules); err != nil {
		return err
	}
	aggregates := role.AggregationRule != nil || before != nil && before.AggregationRule != nil
	if !aggregates || a.may(ctx, who, "escalate", "clusterroles", "", role.Name) {
		return nil
	}
	everything := []rbacv1.PolicyRule{
		{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}},
	}
	if ok, _, _ := a.rbac.covers(who, "", everything); !ok {
		return apierrors.NewForbidden(rbac("clusterroles"), role.Name, errors.New("must have cluster-admin privileges to use the aggregationRule"))
	}
	return nil
}

func (a *Authorizer) checkRules(ctx context.Context, who user.Info, resource, namespace, name string, rules []rbacv1.PolicyRule) error {
	if a.may(ctx, who, "escalate", resource, namespace, name) {
		return nil
	}
	if err := a.confirmHeld(who, namespace, rules); err != nil {
		return apierrors.NewForbidden(rbac(resource), name, err)
	}
	return nil
}

func (a *Authorizer) checkBinding(ctx context.Context, who user.Info, resource, namespace, name string, ref rbacv1.RoleRef) error {
	roles, roleNamespace := "clusterroles", ""
	if ref.Kind == "Role" {
		roles, roleNamespace = "roles", namespace
	}
	// A binding gives the role's rights in its own namespace only, so "bind"
	// is asked for there, whichever kind of role it is.
	if a.may(ctx, who, "bind", roles, namespace, ref.Name) {
		return nil
	}
	a.rbac.mu.RLock()
	rules, err := a.rbac.rules(ref, roleNamespace)
	a.rbac.mu.RUnlock()
	if err != nil {
		return err
	}
	if err := a.confirmHeld(who, namespace, rules); err != nil {
		return apierrors.NewForbidden(rbac(resource), name, err)
	}
	return nil
}

func (a *Authorizer) may(ctx context.Context, who user.Info, verb, resource, namespace, name string) bool {
	decision, _, err := a.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: verb, Namespace: namespace, Name: name, ResourceRequest: true,
		APIGroup: rbacv1.GroupName, APIVersion: "*", Resource: resource,
	})
	return err == nil && decision == authorizer.DecisionAllow
}

func (a *Authorizer) confirmHeld(who user.Info, namespace string, rules []rbacv1.PolicyRule) error {
	ok, missing, errs := a.rbac.covers(who, namespace, rules)
	if ok {
		return nil
	}
	var lines []string
	for _, r := range compact(missing) {
		lines = append(lines, describe(r))
	}
	slices.Sort(lines)
	text := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s", who.GetName(), who.GetGroups(), strings.Join(lines, "\n"))
	if len(errs) > 0 {
		text += "; resolution errors: " + joinErrors(errs)
	}
	return errors.New(text)
}
