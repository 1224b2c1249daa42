package tui

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// cluster is how actions reach the API server; what tables show comes from the
// feed instead.
type cluster struct {
	config *rest.Config
	kube   kubernetes.Interface
	any    dynamic.Interface
	find   discovery.DiscoveryInterface
}

func newCluster(cfg *rest.Config) (*cluster, error) {
	own := rest.CopyConfig(cfg)
	own.QPS, own.Burst = -1, -1
	kube, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	// Whole objects of any kind travel as JSON.
	plain := rest.CopyConfig(own)
	plain.ContentType, plain.AcceptContentTypes = "", ""
	objects, err := dynamic.NewForConfig(plain)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	// Discovery takes no context, and leaving must not wait for a server that
	// is away.
	plain.Timeout = 5 * time.Second
	find, err := discovery.NewDiscoveryClientForConfig(plain)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &cluster{config: own, kube: kube, any: objects, find: find}, nil
}

// of is the client for one kind in one namespace.
func (c *cluster) of(k kind, namespace string) dynamic.ResourceInterface {
	client := c.any.Resource(k.gvr())
	if k.namespaced {
		return client.Namespace(namespace)
	}
	return client
}

func (k kind) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: k.version, Resource: k.plural}
}

func unstructuredOf(o map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: o}
}
