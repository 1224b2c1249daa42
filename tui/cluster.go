package tui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"orrery.dev/client"
)

// cluster is how actions reach the API server; what tables show comes from the
// feed instead.
type cluster struct {
	config *rest.Config
	kube   kubernetes.Interface
	any    dynamic.Interface
	find   discovery.DiscoveryInterface
	// exec makes what streams to a pod: an executor.
	exec func(t target, sub string, options any) (remotecommand.Executor, error)
	// own are who may answer what only orrery's API server does, in turn.
	own []rest.Interface
}

// newCluster reaches the API server of a config; instead is as in Config.
func newCluster(cfg *rest.Config, instead http.Handler) (*cluster, error) {
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
	c := &cluster{config: own, kube: kube, any: objects, find: find, own: []rest.Interface{find.RESTClient()}}
	c.exec = c.executor
	if instead != nil {
		inside, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: "inside", Transport: client.Inside{Handler: instead}, Impersonate: cfg.Impersonate})
		if err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
		c.own = append(c.own, inside.RESTClient())
	}
	return c, nil
}

// ask gets one of the answers that only orrery's API server has, and consult one to a
// longer question.
func (c *cluster) ask(ctx context.Context, path string, query url.Values, answer any) error {
	return c.askOwn(ctx, answer, func(r rest.Interface) *rest.Request {
		request := r.Get().AbsPath(path)
		for name, values := range query {
			for _, v := range values {
				request.Param(name, v)
			}
		}
		return request
	})
}

func (c *cluster) consult(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	return c.askOwn(ctx, answer, func(r rest.Interface) *rest.Request {
		return r.Post().AbsPath(path).SetHeader("Content-Type", "application/json").Body(body)
	})
}

// askOwn asks another where the API server knows no such path, or lets nobody there.
func (c *cluster) askOwn(ctx context.Context, answer any, request func(rest.Interface) *rest.Request) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for _, who := range c.own {
		var data []byte
		if data, err = request(who).SetHeader("Accept", "application/json").DoRaw(ctx); err == nil {
			return json.Unmarshal(data, answer)
		}
		err = inItsWords(data, err)
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			break
		}
	}
	return err
}

// inItsWords is an error in the words of the server, if it has any.
func inItsWords(answer []byte, err error) error {
	var s metav1.Status
	if json.Unmarshal(answer, &s) != nil || s.Kind != "Status" || s.Message == "" {
		return err
	}
	return apierrors.FromObject(&s)
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
