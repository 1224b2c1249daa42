package remote

import (
	"cmp"
	"context"
	"encoding/json"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"orrery.dev/why"
)

// reads is how why's evidence is read here: typed, and at one go.
func (s *Source) reads(ctx context.Context) why.Reader {
	of := func(k schema.GroupVersionResource) reader { return reader{client: s.typed, gvr: k} }
	return why.Reader{
		Get: func(k schema.GroupVersionResource, namespace, name string) (runtime.Object, error) {
			return of(k).request(namespace, nil).Name(name).Do(ctx).Get()
		},
		List: func(k schema.GroupVersionResource, namespace string) ([]runtime.Object, error) {
			list, err := of(k).list(ctx, namespace, nil)
			if err != nil {
				return nil, err
			}
			return meta.ExtractList(list)
		},
		Namespaces: func() ([]string, error) { return s.Namespaces(ctx) },
		Kinds:      s.kinds,
		Metadata: func(k schema.GroupVersionResource, namespace string) ([]metav1.Object, error) {
			list, err := s.metadata(ctx, k, namespace, nil)
			if err != nil {
				return nil, err
			}
			objects := make([]metav1.Object, len(list.Items))
			for i := range list.Items {
				objects[i] = &list.Items[i]
			}
			return objects, nil
		},
		Count: func(k schema.GroupVersionResource, namespace string) (int, error) {
			list, err := s.metadata(ctx, k, namespace, map[string]string{"limit": "1"})
			if err != nil {
				return 0, err
			}
			return len(list.Items) + int(ptr.Deref(list.RemainingItemCount, 0)), nil
		},
		Self: func(namespace string) (user.Info, why.Own, error) { return s.self(ctx, cmp.Or(namespace, s.home)) },
	}
}

// self is the user, and what the server says that they may do in a namespace: of what
// holds everywhere it says nothing by itself.
func (s *Source) self(ctx context.Context, namespace string) (user.Info, why.Own, error) {
	who, err := s.user(ctx)
	if err != nil {
		return nil, why.Own{}, err
	}
	ask := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	said, err := s.clients.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, ask, metav1.CreateOptions{})
	if err != nil {
		return nil, why.Own{}, err
	}
	return who, why.OwnOf(said.Status, namespace), nil
}

// metadata lists objects of any kind without the rest of them.
func (s *Source) metadata(ctx context.Context, k schema.GroupVersionResource, namespace string, params map[string]string) (*metav1.PartialObjectMetadataList, error) {
	r := reader{client: s.plain, gvr: k, accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
	data, err := r.request(namespace, params).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	return list, json.Unmarshal(data, list)
}
