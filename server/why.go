package server

import (
	"context"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
	"orrery.dev/why"
)

// NewWhy answers api.WhyPath, api.BlastPath and api.RightsPath out of the cache. Mount it
// behind authentication but not behind authorisation: it asks for each object and list
// itself.
func NewWhy(store *storage.Store, kinds *registry.Table, authz authorizer.UnconditionalAuthorizer, rules authorizer.RuleResolver) http.Handler {
	return why.Handler(func(r *http.Request) why.Reader {
		ctx, who := r.Context(), registry.UserFrom(r.Context())
		reader := whyReader(ctx, store, kinds, authz, who)
		reader.Self = func(namespace string) (user.Info, why.Own, error) {
			return who, why.OwnOf(rulesFor(ctx, rules, who, namespace), namespace), nil
		}
		return reader
	})
}

// whyReader reads with the rights of a user.
func whyReader(ctx context.Context, store *storage.Store, kinds *registry.Table, authz authorizer.UnconditionalAuthorizer, who user.Info) why.Reader {
	may := func(verb string, k schema.GroupVersionResource, namespace, name string) error {
		a := &authorizer.AttributesRecord{User: who, Verb: verb, APIGroup: k.Group, APIVersion: k.Version, Resource: k.Resource,
			Namespace: namespace, Name: name, ResourceRequest: true}
		decision, reason, err := authz.Authorize(ctx, a)
		switch {
		case decision == authorizer.DecisionAllow:
			return nil
		case err != nil:
			return apierrors.NewInternalError(err)
		}
		return errForbidden(a, reason)
	}
	items := func(k schema.GroupVersionResource, namespace string) ([]*storage.Item, error) {
		collection := store.Collection(k.GroupResource())
		if collection == nil {
			return nil, apierrors.NewNotFound(k.GroupResource(), "")
		}
		page, err := collection.List(ctx, storage.ListOptions{Selection: storage.Selection{Namespace: namespace}, ResourceVersion: "0"})
		if err != nil {
			return nil, err
		}
		return page.Items, nil
	}
	list := func(k schema.GroupVersionResource, namespace string) ([]*storage.Item, error) {
		if err := may("list", k, namespace, ""); err != nil {
			return nil, err
		}
		return items(k, namespace)
	}
	return why.Reader{
		Get: func(k schema.GroupVersionResource, namespace, name string) (runtime.Object, error) {
			if err := may("get", k, namespace, name); err != nil {
				return nil, err
			}
			collection := store.Collection(k.GroupResource())
			if collection == nil {
				return nil, apierrors.NewNotFound(k.GroupResource(), name)
			}
			item, err := collection.Get(ctx, namespace, name, "0")
			if err != nil {
				return nil, err
			}
			return item.Object(), nil
		},
		List: func(k schema.GroupVersionResource, namespace string) ([]runtime.Object, error) {
			items, err := list(k, namespace)
			objects := make([]runtime.Object, len(items))
			for i, item := range items {
				objects[i] = item.Object()
			}
			return objects, err
		},
		// Their names alone are no secret from those who may see something in them.
		Namespaces: func() ([]string, error) {
			items, err := items(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "")
			names := make([]string, len(items))
			for i, item := range items {
				names[i] = item.Name
			}
			return names, err
		},
		Kinds: func() ([]why.Kind, error) { return listable(kinds), nil },
		Metadata: func(k schema.GroupVersionResource, namespace string) ([]metav1.Object, error) {
			items, err := list(k, namespace)
			objects := make([]metav1.Object, 0, len(items))
			for _, item := range items {
				if m, err := meta.Accessor(item.Object()); err == nil {
					objects = append(objects, m)
				}
			}
			return objects, err
		},
		Count: func(k schema.GroupVersionResource, namespace string) (int, error) {
			items, err := list(k, namespace)
			return len(items), err
		},
	}
}

// listable are the kinds that are stored.
func listable(table *registry.Table) []why.Kind {
	var all []why.Kind
	for _, k := range table.Kinds() {
		kind := why.Kind{GroupVersionResource: k.Stored().GroupVersionResource(), Name: k.Kind, Namespaced: k.Namespaced}
		if k.Can("list") && !slices.Contains(all, kind) {
			all = append(all, kind)
		}
	}
	return all
}
