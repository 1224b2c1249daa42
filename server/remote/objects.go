package remote

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	}
}
