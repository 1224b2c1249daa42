package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"orrery.dev/server/storage"
)

// proxy serves every method on {nodes,pods,services}/{name}/proxy/{path}: the
// request goes to the object's own HTTP server. A name may carry a scheme and a
// port, "https:name:8443".
func (c *call) proxy() error {
	ctx := c.r.Context()
	if err := c.admitConnect(c.proxyOptions()); err != nil {
		return err
	}
	scheme, name, port, ok := utilnet.SplitSchemeNamePort(c.Name)
	if !ok {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid %s request %q", c.kind.Singular, c.Name))
	}
	location, via, err := c.backend(ctx, scheme, name, port)
	if err != nil {
		return err
	}
	location.Path = c.Rest
	location.RawQuery = c.r.URL.RawQuery
	return c.forward(location, via, true, false)
}

func (c *call) proxyOptions() runtime.Object {
	switch c.GVR.Resource {
	case "nodes":
		return &corev1.NodeProxyOptions{Path: c.Rest}
	case "services":
		return &corev1.ServiceProxyOptions{Path: c.Rest}
	}
	return &corev1.PodProxyOptions{Path: c.Rest}
}

// backend is where a proxied request goes, and by which transport.
func (c *call) backend(ctx context.Context, scheme, name, port string) (*url.URL, *http.Transport, error) {
	switch c.GVR.Resource {
	case "nodes":
		return c.nodeBackend(ctx, scheme, name, port)
	case "services":
		location, err := c.serviceBackend(ctx, scheme, name, port)
		return location, c.s.kubelet.backends, err
	}
	location, err := c.podBackend(ctx, scheme, name, port)
	return location, c.s.kubelet.backends, err
}

// nodeBackend is the node's agent, or another port of the node.
func (c *call) nodeBackend(ctx context.Context, scheme, name, port string) (*url.URL, *http.Transport, error) {
	agent, err := c.s.nodeURL(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if port == "" || port == agent.Port() {
		return agent, c.s.kubelet.transport, nil
	}
	if err := proxyable(agent.Hostname()); err != nil {
		return nil, nil, err
	}
	return &url.URL{Scheme: orHTTP(scheme), Host: net.JoinHostPort(agent.Hostname(), port)}, c.s.kubelet.backends, nil
}

// podBackend is the pod's address and the port asked for, or its first one.
func (c *call) podBackend(ctx context.Context, scheme, name, port string) (*url.URL, error) {
	item, err := c.s.Store.Collection(schema.GroupResource{Resource: "pods"}).Get(ctx, c.Namespace, name, "")
	if err != nil {
		return nil, err
	}
	pod := item.Object().(*corev1.Pod)
	if port == "" {
		port = firstPort(pod)
	}
	if err := proxyable(pod.Status.PodIP); err != nil {
		return nil, err
	}
	if port == "" {
		return &url.URL{Scheme: orHTTP(scheme), Host: pod.Status.PodIP}, nil
	}
	return &url.URL{Scheme: orHTTP(scheme), Host: net.JoinHostPort(pod.Status.PodIP, port)}, nil
}

func firstPort(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		if len(container.Ports) > 0 {
			return strconv.Itoa(int(container.Ports[0].ContainerPort))
		}
	}
	return ""
}

// serviceBackend is one of the service's ready endpoints, by lot. The port may
// be given by number or by name.
func (c *call) serviceBackend(ctx context.Context, scheme, name, port string) (*url.URL, error) {
	if number, err := strconv.ParseInt(port, 10, 32); err == nil {
		item, err := c.s.Store.Collection(schema.GroupResource{Resource: "services"}).Get(ctx, c.Namespace, name, "")
		if err != nil {
			return nil, err
		}
		found := false
		for _, p := range item.Object().(*corev1.Service).Spec.Ports {
			if p.Port == int32(number) {
				port, found = p.Name, true
				break
			}
		}
		if !found {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, name))
		}
	}
	slices := c.s.Store.Collection(schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"})
	if slices == nil {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	page, err := slices.List(ctx, storage.ListOptions{
		Selection: storage.Selection{Namespace: c.Namespace, Labels: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: name})},
	})
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, item := range page.Items {
		hosts = append(hosts, readyHosts(item.Object().(*discoveryv1.EndpointSlice), port)...)
	}
	if len(hosts) == 0 {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", name))
	}
	return &url.URL{Scheme: orHTTP(scheme), Host: hosts[rand.IntN(len(hosts))]}, nil
}

// readyHosts are the slice's endpoints that answer on the named port.
func readyHosts(slice *discoveryv1.EndpointSlice, port string) []string {
	number := ""
	for _, p := range slice.Ports {
		if p.Port != nil && (p.Name == nil && port == "" || p.Name != nil && *p.Name == port) {
			number = strconv.Itoa(int(*p.Port))
			break
		}
	}
	if number == "" {
		return nil
	}
	var hosts []string
	for _, e := range slice.Endpoints {
		if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 || proxyable(e.Addresses[0]) != nil {
			continue
		}
		hosts = append(hosts, net.JoinHostPort(e.Addresses[0], number))
	}
	return hosts
}

// proxyable keeps the proxy from reaching what only this machine should.
func proxyable(host string) error {
	ip := net.ParseIP(host)
	if ip == nil && host != "" {
		return nil // a host name of a node
	}
	if ip == nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() || ip.IsInterfaceLocalMulticast() {
		return apierrors.NewBadRequest("address not allowed")
	}
	return nil
}

func orHTTP(scheme string) string {
	if scheme == "" {
		return "http"
	}
	return scheme
}
