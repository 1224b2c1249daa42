package client

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Objects reads objects of built-in kinds as their types, by resource: for those
// who learn at run time what they want to read.
type Objects struct{ rest rest.Interface }

// NewObjects makes one for a cluster.
func NewObjects(cfg *rest.Config) (*Objects, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	cfg.GroupVersion = &schema.GroupVersion{} // paths are given whole
	c, err := rest.UnversionedRESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of objects: %w", err)
	}
	return &Objects{c}, nil
}

func (o *Objects) request(k schema.GroupVersionResource, namespace string) *rest.Request {
	root := []string{"/apis", k.Group, k.Version}
	if k.Group == "" {
		root = []string{"/api", k.Version}
	}
	return o.rest.Get().AbsPath(root...).NamespaceIfScoped(namespace, namespace != "").Resource(k.Resource)
}

// Get reads one object.
func (o *Objects) Get(ctx context.Context, k schema.GroupVersionResource, namespace, name string) (runtime.Object, error) {
	return o.request(k, namespace).Name(name).Do(ctx).Get()
}

// List reads all of a kind, in a namespace or, if that is empty, everywhere. Any
// state that the server has will do.
func (o *Objects) List(ctx context.Context, k schema.GroupVersionResource, namespace string) ([]runtime.Object, error) {
	list, err := o.request(k, namespace).VersionedParams(&metav1.ListOptions{ResourceVersion: "0"}, scheme.ParameterCodec).Do(ctx).Get()
	if err != nil {
		return nil, err
	}
	return meta.ExtractList(list)
}
