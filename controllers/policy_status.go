package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	applyadmissionregistration "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// newPolicyStatus checks the expressions of validating policies against the types
// of the objects that they are for, and tells in their status what can't be right.
// A policy is in force whatever is found.
func newPolicyStatus(e *env) Controller {
	policies := e.factory.Admissionregistration().V1().ValidatingAdmissionPolicies().Informer()
	return Controller{
		Name:    "validatingadmissionpolicy-status-controller",
		Reads:   []Source{wakesSelf(policies)},
		Writes:  []string{"admissionregistration.k8s.io/validatingadmissionpolicies"},
		Workers: 5,
		Sync: func(ctx context.Context, name string) (time.Duration, error) {
			policy := cached[admissionregistrationv1.ValidatingAdmissionPolicy](policies, name)
			if policy == nil || policy.Generation <= policy.Status.ObservedGeneration {
				return 0, nil
			}
			warnings, err := checkPolicy(policy, servedTypes{e.clients.Discovery()})
			if err != nil {
				return 0, fmt.Errorf("check policy %s: %w", name, err)
			}
			checked := applyadmissionregistration.TypeChecking()
			for _, w := range warnings {
				checked.WithExpressionWarnings(applyadmissionregistration.ExpressionWarning().WithFieldRef(w.FieldRef).WithWarning(w.Warning))
			}
			status := applyadmissionregistration.ValidatingAdmissionPolicyStatus().WithObservedGeneration(policy.Generation).WithTypeChecking(checked)
			_, err = e.clients.AdmissionregistrationV1().ValidatingAdmissionPolicies().ApplyStatus(ctx,
				applyadmissionregistration.ValidatingAdmissionPolicy(name).WithStatus(status),
				metav1.ApplyOptions{FieldManager: "validatingadmissionpolicy-status", Force: true})
			return 0, ignoreNotFound(err)
		},
	}
}

// kindSchemas is where the check of a policy gets types from.
type kindSchemas interface {
	// kindOf is the kind of a resource, empty if nobody serves it.
	kindOf(schema.GroupVersionResource) (schema.GroupVersionKind, error)
	// schemaOf is a kind's schema without references, nil if there is none.
	schemaOf(schema.GroupVersionKind) (*spec.Schema, error)
}

// mostTypes is how many kinds of objects a policy is checked for.
const mostTypes = 10

// matchedKinds are the kinds that a policy names, in order. Rules with wildcards
// name none.
func matchedKinds(policy *admissionregistrationv1.ValidatingAdmissionPolicy, from kindSchemas) ([]schema.GroupVersionKind, error) {
	if policy.Spec.MatchConstraints == nil {
		return nil, nil
	}
	var found []schema.GroupVersionKind
	var errs []error
	for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
		for _, r := range namedResources(&rule.Rule) {
			kind, err := from.kindOf(r)
			errs = append(errs, err)
			if !kind.Empty() && !slices.Contains(found, kind) && len(found) < mostTypes {
				found = append(found, kind)
			}
		}
	}
	slices.SortFunc(found, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return found, errors.Join(errs...)
}

func namedResources(rule *admissionregistrationv1.Rule) []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, group := range rule.APIGroups {
		for _, version := range rule.APIVersions {
			for _, resource := range rule.Resources {
				if group == "*" || version == "*" {
					return nil
				}
				if !strings.ContainsAny(resource, "*/") {
					out = append(out, schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
				}
			}
		}
	}
	return out
}

// servedTypes are those that the API server publishes.
type servedTypes struct{ discovery.DiscoveryInterface }

func (s servedTypes) kindOf(r schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	list, err := s.ServerResourcesForGroupVersion(r.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return schema.GroupVersionKind{}, nil
	}
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	for _, served := range list.APIResources {
		if served.Name == r.Resource {
			return r.GroupVersion().WithKind(served.Kind), nil
		}
	}
	return schema.GroupVersionKind{}, nil
}

func (s servedTypes) schemaOf(kind schema.GroupVersionKind) (*spec.Schema, error) {
	paths, err := s.OpenAPIV3().Paths()
	if err != nil {
		return nil, err
	}
	path := "apis/" + kind.GroupVersion().String()
	if kind.Group == "" {
		path = "api/" + kind.Version
	}
	published, ok := paths[path]
	if !ok {
		return nil, nil
	}
	raw, err := published.Schema(runtime.ContentTypeJSON)
	if err != nil {
		return nil, err
	}
	return schemaIn(raw, kind)
}
