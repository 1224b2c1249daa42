package stream

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/api"
)

// scope is what of a view its user may see: everything, or some namespaces.
type scope struct {
	all        bool
	namespaces []string // sorted
}

func (s scope) has(namespace string) bool {
	if s.all {
		return true
	}
	_, found := slices.BinarySearch(s.namespaces, namespace)
	return found
}

func (s scope) equal(o scope) bool {
	return s.all == o.all && slices.Equal(s.namespaces, o.namespaces)
}

// guard asks the authoriser about one view of one user.
type guard struct {
	source     Source
	authorizer Authorizer
	user       user.Info
	kind       *Kind
	view       api.View
}

// scope finds out what the user may see. A view of no particular namespaces is
// narrowed to those that the user may list, so that people with access to one
// namespace need no configuration. Kubernetes has no such list of its own.
func (g guard) scope(ctx context.Context) (scope, error) {
	switch {
	case g.view.Name != "":
		ns := ""
		if g.kind.Namespaced && len(g.view.Namespaces) > 0 {
			ns = g.view.Namespaces[0]
		}
		return scope{all: true}, g.check(ctx, "get", ns)
	case !g.kind.Namespaced:
		return scope{all: true}, g.check(ctx, "list", "")
	case len(g.view.Namespaces) > 0:
		return g.some(ctx, g.view.Namespaces)
	}
	everywhere := g.check(ctx, "list", "")
	if everywhere == nil || !apierrors.IsForbidden(everywhere) {
		return scope{all: true}, everywhere
	}
	names, err := g.source.Namespaces(ctx)
	if err != nil {
		return scope{}, err
	}
	some, err := g.some(ctx, names)
	if apierrors.IsForbidden(err) || err == nil && len(some.namespaces) == 0 {
		err = everywhere // names the permission that would have done
	}
	return some, err
}

// some keeps the namespaces that the user may list. It is an error if none is
// left.
func (g guard) some(ctx context.Context, namespaces []string) (scope, error) {
	var s scope
	var refused error
	for _, ns := range namespaces {
		switch err := g.check(ctx, "list", ns); {
		case err == nil:
			s.namespaces = append(s.namespaces, ns)
		case apierrors.IsForbidden(err):
			refused = err
		default:
			return scope{}, err
		}
	}
	slices.Sort(s.namespaces)
	s.namespaces = slices.Compact(s.namespaces)
	if len(s.namespaces) > 0 {
		refused = nil
	}
	return s, refused
}

// check asks for the reading verb and for watch, since a stream is both.
func (g guard) check(ctx context.Context, read, namespace string) error {
	for _, verb := range []string{read, "watch"} {
		decision, _, err := g.authorizer.Authorize(ctx, authorizer.AttributesRecord{
			User: g.user, Verb: verb, Namespace: namespace, Name: g.view.Name,
			APIGroup: g.kind.Group, APIVersion: g.kind.Version, Resource: g.kind.Resource,
			ResourceRequest: true,
		})
		if decision == authorizer.DecisionAllow {
			continue
		}
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		where := "at the cluster scope"
		if namespace != "" {
			where = fmt.Sprintf("in the namespace %q", namespace)
		}
		return apierrors.NewForbidden(g.kind.GroupVersionResource.GroupResource(), g.view.Name,
			fmt.Errorf("User %q cannot %s resource %q in API group %q %s", g.user.GetName(), verb, g.kind.Resource, g.kind.Group, where))
	}
	return nil
}
