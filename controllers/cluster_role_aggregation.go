package controllers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// newClusterRoleAggregation fills ClusterRoles such as admin, edit and view with
// the rules of those that their selectors name.
func newClusterRoleAggregation(e *env) Controller {
	roles := e.factory.Rbac().V1().ClusterRoles().Informer()
	return Controller{
		Name: "clusterrole-aggregation-controller",
		Reads: []Source{wakes(roles, func(*rbacv1.ClusterRole) []string {
			var keys []string // any role may be part of any aggregate
			for _, role := range everything[rbacv1.ClusterRole](roles) {
				if role.AggregationRule != nil {
					keys = append(keys, role.Name)
				}
			}
			return keys
		})},
		Writes:  []string{"rbac.authorization.k8s.io/clusterroles"},
		Workers: 2,
		Sync: func(ctx context.Context, name string) (time.Duration, error) {
			role := cached[rbacv1.ClusterRole](roles, name)
			if role == nil || role.AggregationRule == nil {
				return 0, nil
			}
			rules, err := aggregate(role, everything[rbacv1.ClusterRole](roles))
			if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
				return 0, err
			}
			changed := role.DeepCopy()
			changed.Rules = rules
			if _, err := e.clients.RbacV1().ClusterRoles().Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
				return 0, fmt.Errorf("aggregate cluster role: %w", err)
			}
			return 0, nil
		},
	}
}

// aggregate joins the rules of the selected roles, in the order of the selectors
// and names, each rule once.
func aggregate(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *rbacv1.ClusterRole) int { return strings.Compare(a.Name, b.Name) })
	var rules []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := selectorOf(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.Name == role.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			for _, rule := range other.Rules {
				if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(r, rule) }) {
					rules = append(rules, rule)
				}
			}
		}
	}
	return rules, nil
}
