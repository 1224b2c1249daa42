package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/api"
	"orrery.dev/server/openapi"
	"orrery.dev/server/storage"
)

// remote is an API server behind a Service, which answers for a group version.
type remote struct {
	from      *api.APIService
	via       *http.Transport
	address   string // of the Service
	available bool
	condition api.APIServiceCondition
	told      openapi.Remote // by the server, of its kinds
	asked     time.Time      // when it told
	etag      string         // of its /openapi/v2
}

// remotes are the remote group versions by now.
type remotes struct {
	mu      sync.RWMutex // protects known
	known   map[schema.GroupVersion]*remote
	publish func(map[schema.GroupVersion]openapi.Remote) // to discovery; may be nil
}

func (r *remotes) find(gv schema.GroupVersion) *remote {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.known[gv]
}

// set takes what was found out, and tells discovery.
func (r *remotes) set(now map[schema.GroupVersion]*remote) {
	r.mu.Lock()
	before := r.known
	r.known = now
	r.mu.Unlock()
	news := len(now) != len(before)
	for gv, have := range now {
		news = news || before[gv] == nil || have.asked != before[gv].asked
	}
	for gv, old := range before {
		if have := now[gv]; have == nil || have.via != old.via {
			old.via.CloseIdleConnections()
		}
	}
	if r.publish == nil || !news {
		return
	}
	told := map[schema.GroupVersion]openapi.Remote{}
	for gv, have := range now {
		told[gv] = have.told
	}
	r.publish(told)
}

// remoteFresh is how long what a server told of itself is not asked again.
const remoteFresh = time.Minute

// askRemote finds out whether the server of an APIService answers, and what it
// serves.
func (s *Server) askRemote(ctx context.Context, a *api.APIService) *remote {
	gv := schema.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version}
	r := &remote{from: a, condition: api.APIServiceCondition{Status: "True", Reason: "Passed", Message: "all checks passed"}}
	old := s.remotes.find(gv)
	if old != nil && old.from.UID == a.UID && old.from.Generation == a.Generation {
		r.via, r.told, r.asked, r.etag = old.via, old.told, old.asked, old.etag
	} else {
		old, r.via = nil, s.remoteTransport(a)
	}
	err := s.checkRemote(ctx, r, gv)
	var reason *unavailable
	if errors.As(err, &reason) {
		r.condition = api.APIServiceCondition{Status: reason.status, Reason: reason.reason, Message: reason.message}
	}
	r.available = err == nil
	if old == nil || old.available != r.available || r.available && time.Since(r.asked) > remoteFresh {
		s.learn(ctx, r, gv)
	}
	return r
}

// unavailable is why a server can not be asked, as its APIService says it.
type unavailable struct{ status, reason, message string }

func (u *unavailable) Error() string { return u.message }

func missing(reason, format string, args ...any) error {
	return &unavailable{"False", reason, fmt.Sprintf(format, args...)}
}

// checkRemote looks for what may be missing, from the Service to the answer.
func (s *Server) checkRemote(ctx context.Context, r *remote, gv schema.GroupVersion) error {
	ref := r.from.Spec.Service
	item, err := s.Store.Collection(schema.GroupResource{Resource: "services"}).Get(ctx, ref.Namespace, ref.Name, "0")
	if apierrors.IsNotFound(err) {
		return missing("ServiceNotFound", "service/%s in %q is not present", ref.Name, ref.Namespace)
	}
	if err != nil {
		return &unavailable{"Unknown", "ServiceAccessError", fmt.Sprintf("service/%s in %q cannot be checked due to: %v", ref.Name, ref.Namespace, err)}
	}
	service := item.Object().(*corev1.Service)
	r.address = remoteAddress(r.from, service)
	if service.Spec.Type == corev1.ServiceTypeClusterIP {
		if err := s.checkEndpoints(ctx, ref, service, remotePort(r.from)); err != nil {
			return err
		}
	}
	url := "https://" + r.address + "/apis/" + gv.String()
	if _, err := s.fetch(ctx, r, url, mediaOf("application/json"), aggregatorUser); err != nil {
		return missing("FailedDiscoveryCheck", "failing or missing response from %s: %v", url, err)
	}
	return nil
}

// checkEndpoints looks whether there is anything behind the port of a Service.
func (s *Server) checkEndpoints(ctx context.Context, ref *api.ServiceReference, service *corev1.Service, port int) error {
	at := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return int(p.Port) == port })
	if at < 0 {
		return missing("ServicePortError", "service/%s in %q is not listening on port %d", ref.Name, ref.Namespace, port)
	}
	name := service.Spec.Ports[at].Name
	page, err := s.Store.Collection(schema.GroupResource{Group: discoveryv1.GroupName, Resource: "endpointslices"}).List(ctx, storage.ListOptions{Selection: storage.Selection{
		Namespace: ref.Namespace, Labels: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: ref.Name}),
	}})
	switch {
	case err != nil:
		return &unavailable{"Unknown", "EndpointsAccessError", fmt.Sprintf("service/%s in %q cannot be checked due to: %v", ref.Name, ref.Namespace, err)}
	case len(page.Items) == 0:
		return missing("EndpointsNotFound", "cannot find endpointslices for service/%s in %q", ref.Name, ref.Namespace)
	case !slices.ContainsFunc(page.Items, func(item *storage.Item) bool { return listensAt(item.Object().(*discoveryv1.EndpointSlice), name) }):
		return missing("MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", ref.Name, ref.Namespace, name)
	}
	return nil
}

// listensAt reports whether a slice has an endpoint that is ready, at a port.
func listensAt(slice *discoveryv1.EndpointSlice, port string) bool {
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }) &&
		slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return p.Name != nil && *p.Name == port && p.Port != nil })
}

func remotePort(a *api.APIService) int {
	if p := a.Spec.Service.Port; p != nil {
		return int(*p)
	}
	return 443
}

// remoteHost is the name in the server's certificate.
func remoteHost(a *api.APIService) string {
	return a.Spec.Service.Name + "." + a.Spec.Service.Namespace + ".svc"
}

// remoteAddress is where the Service of a server is.
func remoteAddress(a *api.APIService, service *corev1.Service) string {
	host := service.Spec.ClusterIP
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		host = service.Spec.ExternalName
	case host == "" || host == corev1.ClusterIPNone:
		host = remoteHost(a)
	}
	return net.JoinHostPort(host, strconv.Itoa(remotePort(a)))
}

// remoteTransport reaches the server at the endpoints of its Service, by the
// front proxy's certificate.
func (s *Server) remoteTransport(a *api.APIService) *http.Transport {
	security := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: remoteHost(a), InsecureSkipVerify: a.Spec.InsecureSkipTLSVerify}
	if len(a.Spec.CABundle) > 0 {
		security.RootCAs = x509.NewCertPool()
		security.RootCAs.AppendCertsFromPEM(a.Spec.CABundle)
	}
	if s.ProxyCertificate != nil {
		security.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return s.ProxyCertificate() }
	}
	ref, port := *a.Spec.Service, remotePort(a)
	return &http.Transport{
		TLSClientConfig: security, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			address, err := s.webhooks.Resolve(ctx, ref.Namespace, ref.Name, port)
			if err != nil {
				return nil, err
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		},
	}
}

// remoteFor is the server that answers for a path below /apis, or nil: this one.
func (s *Server) remoteFor(path string) *remote {
	parts := splitPath(path)
	if len(parts) < 3 || parts[0] != "apis" {
		return nil
	}
	return s.remotes.find(schema.GroupVersion{Group: parts[1], Version: parts[2]})
}

// aggregateTo passes a request on to the server of a group version.
func (s *Server) aggregateTo(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	if to := s.remotes.find(gv); to != nil {
		s.aggregate(w, r, to)
		return
	}
	http.Error(w, "service unavailable", http.StatusServiceUnavailable)
}

// aggregate passes a request on. That this server knows the user is vouched for
// by its certificate.
func (s *Server) aggregate(w http.ResponseWriter, r *http.Request, to *remote) {
	if !to.available {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	who := userFrom(r.Context())
	target := &url.URL{Scheme: "https", Host: to.address}
	proxy := &httputil.ReverseProxy{
		Transport: to.via, FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.SetXForwarded()
			introduce(p.Out.Header, who)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			http.Error(w, "error trying to reach service: "+err.Error(), http.StatusServiceUnavailable)
		},
	}
	proxy.ServeHTTP(w, r)
}

// introduce says who is asking, in the place of what the client said of itself.
func introduce(h http.Header, u user.Info) {
	for name := range h {
		if lower := strings.ToLower(name); lower == "authorization" || strings.HasPrefix(lower, "impersonate-") || strings.HasPrefix(lower, "x-remote-") {
			h.Del(name)
		}
	}
	if u == nil {
		return
	}
	h.Set("X-Remote-User", u.GetName())
	if uid := u.GetUID(); uid != "" {
		h.Set("X-Remote-Uid", uid)
	}
	for _, group := range u.GetGroups() {
		h.Add("X-Remote-Group", group)
	}
	for key, values := range u.GetExtra() {
		name := textproto.CanonicalMIMEHeaderKey("X-Remote-Extra-" + url.PathEscape(key))
		h[name] = append(h[name], values...)
	}
}
