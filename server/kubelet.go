package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/proxy"
)

// defaultKubeletPort is where a node agent listens unless its node says
// otherwise.
const defaultKubeletPort = 10250

// kubelet is the server's connection to node agents.
type kubelet struct {
	address func(*corev1.Node) (string, int32, error)
	// transport speaks HTTP/1.1 only: SPDY and websockets take over its
	// connections.
	transport *http.Transport
	// backends reaches pods and services, whose certificates nobody vouches for.
	backends *http.Transport
}

func newKubelet(cfg KubeletConfig) *kubelet {
	k := &kubelet{address: cfg.Address, transport: newTransport(cfg.TLS), backends: newTransport(nil)}
	if k.address == nil {
		k.address = nodeAddress
	}
	if cfg.Dial != nil {
		k.transport.DialContext = cfg.Dial
	}
	return k
}

func newTransport(cfg *tls.Config) *http.Transport {
	if cfg == nil {
		cfg = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // as upstream without --kubelet-certificate-authority
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		TLSClientConfig:     cfg,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		MaxIdleConnsPerHost: 25,
		DisableCompression:  true, // bytes pass as they are
	}
}

// nodeAddress is where a node says that its agent is.
func nodeAddress(node *corev1.Node) (string, int32, error) {
	port := node.Status.DaemonEndpoints.KubeletEndpoint.Port
	if port == 0 {
		port = defaultKubeletPort
	}
	for _, want := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP, corev1.NodeHostName} {
		for _, a := range node.Status.Addresses {
			if a.Type == want && a.Address != "" {
				return a.Address, port, nil
			}
		}
	}
	return "", 0, fmt.Errorf("no preferred addresses found; known addresses: %v", node.Status.Addresses)
}

// agentOf is the base URL of the agent of a pod's node. That the node is not there, upstream
// says of the pod.
func (s *Server) agentOf(ctx context.Context, pod *corev1.Pod) (*url.URL, error) {
	location, err := s.nodeURL(ctx, pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, pod.Spec.NodeName)
	}
	return location, err
}

// nodeURL is the base URL of the agent of a node.
func (s *Server) nodeURL(ctx context.Context, name string) (*url.URL, error) {
	col := s.Store.Collection(schema.GroupResource{Resource: "nodes"})
	if col == nil {
		return nil, errNoSuchResource()
	}
	item, err := col.Get(ctx, "", name, "0")
	if err != nil {
		return nil, err
	}
	host, port, err := s.kubelet.address(item.Object().(*corev1.Node))
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(int(port)))}, nil
}

// forward passes the request on to location and the reply back, upgrades (SPDY,
// websockets) untouched. wrap rewrites links in pages, as the proxy subresource
// does.
func (c *call) forward(location *url.URL, via *http.Transport, wrap, upgradeOnly bool) error {
	c.forwarder(location, via, wrap, upgradeOnly).ServeHTTP(c.w, c.r)
	return nil
}

func (c *call) forwarder(location *url.URL, via *http.Transport, wrap, upgradeOnly bool) http.Handler {
	return proxy.NewUpgradeAwareHandler(location, via, wrap, upgradeOnly, forwardErrors{c.s})
}

// forwardErrors writes what goes wrong on the way to a backend.
type forwardErrors struct{ s *Server }

// Error implements proxy.ErrorResponder.
func (f forwardErrors) Error(w http.ResponseWriter, r *http.Request, err error) {
	var carrier apierrors.APIStatus
	if !errors.As(err, &carrier) {
		err = apierrors.NewServiceUnavailable(fmt.Sprintf("error trying to reach service: %v", err))
	}
	f.s.writeError(w, r, err)
}
