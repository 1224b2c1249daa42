package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/api"
)

// remote is an API server behind a Service, which answers for a group version.
type remote struct {
	from      *api.APIService
	via       *http.Transport
	available bool
	condition api.APIServiceCondition
	resources *metav1.APIResourceList // as it last told; nil: never
}

// remotes are the remote group versions by now.
type remotes struct {
	mu      sync.RWMutex // protects the fields below
	known   map[schema.GroupVersion]*remote
	publish func(map[schema.GroupVersion]*metav1.APIResourceList) // to discovery; may be nil
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
	for gv, old := range before {
		if have := now[gv]; have == nil || have.via != old.via {
			old.via.CloseIdleConnections()
		}
	}
	if r.publish == nil || len(now) == 0 && len(before) == 0 {
		return
	}
	lists := map[schema.GroupVersion]*metav1.APIResourceList{}
	for gv, have := range now {
		lists[gv] = have.resources
	}
	r.publish(lists)
}

// RemoteDiscovery is what Documents implements to show the kinds of other
// servers beside the table's. A nil list is of a server that hasn't answered.
type RemoteDiscovery interface {
	SetRemote(map[schema.GroupVersion]*metav1.APIResourceList)
}

// askRemote finds out whether the server of an APIService answers.
func (s *Server) askRemote(ctx context.Context, a *api.APIService) *remote {
	gv := schema.GroupVersion{Group: a.Spec.Group, Version: a.Spec.Version}
	r := &remote{from: a}
	if old := s.remotes.find(gv); old != nil {
		r.resources = old.resources
		if old.from.UID == a.UID && old.from.Generation == a.Generation {
			r.via = old.via
		}
	}
	if r.via == nil {
		r.via = s.remoteTransport(a)
	}
	reason, err := s.checkRemote(ctx, r, gv)
	r.available = err == nil
	r.condition = api.APIServiceCondition{Status: "True", Reason: "Passed", Message: "all checks passed"}
	if err != nil {
		r.condition = api.APIServiceCondition{Status: "False", Reason: reason, Message: err.Error()}
	}
	return r
}

// checkRemote looks for what may be missing, from the Service to the answer.
func (s *Server) checkRemote(ctx context.Context, r *remote, gv schema.GroupVersion) (reason string, err error) {
	ref := r.from.Spec.Service
	item, err := s.Store.Collection(schema.GroupResource{Resource: "services"}).Get(ctx, ref.Namespace, ref.Name, "0")
	if apierrors.IsNotFound(err) {
		return "ServiceNotFound", fmt.Errorf("service/%s in %q is not present", ref.Name, ref.Namespace)
	}
	if err != nil {
		return "ServiceAccessError", fmt.Errorf("service/%s in %q cannot be checked due to: %w", ref.Name, ref.Namespace, err)
	}
	service := item.Object().(*corev1.Service)
	if service.Spec.Type == corev1.ServiceTypeClusterIP && !hasPort(service, remotePort(r.from)) {
		return "ServicePortError", fmt.Errorf("service/%s in %q is not listening on port %d", ref.Name, ref.Namespace, remotePort(r.from))
	}
	ctx, cancel := context.WithTimeout(ctx, 6*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, remoteURL(r.from)+"/apis/"+gv.String(), nil)
	if err != nil {
		return "FailedDiscoveryCheck", err
	}
	req.Header.Set("Accept", "application/json")
	introduce(req.Header, &user.DefaultInfo{Name: "system:kube-aggregator", Groups: []string{user.SystemPrivilegedGroup}})
	reply, err := (&http.Client{Transport: r.via}).Do(req)
	if err != nil {
		return "FailedDiscoveryCheck", fmt.Errorf("failing or missing response from %s: %w", req.URL, err)
	}
	defer reply.Body.Close()
	if reply.StatusCode < 200 || reply.StatusCode >= 300 {
		return "FailedDiscoveryCheck", fmt.Errorf("failing or missing response from %s: bad status from %s: %d", req.URL, req.URL, reply.StatusCode)
	}
	list := &metav1.APIResourceList{}
	if err := json.NewDecoder(io.LimitReader(reply.Body, 10<<20)).Decode(list); err == nil && list.GroupVersion == gv.String() {
		r.resources = list
	}
	return "", nil
}

func hasPort(service *corev1.Service, port int) bool {
	for _, p := range service.Spec.Ports {
		if int(p.Port) == port {
			return true
		}
	}
	return false
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

func remoteURL(a *api.APIService) string {
	return "https://" + net.JoinHostPort(remoteHost(a), strconv.Itoa(remotePort(a)))
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

// aggregate passes a request on. That this server knows the user is vouched for
// by its certificate.
func (s *Server) aggregate(w http.ResponseWriter, r *http.Request, to *remote) {
	if !to.available {
		http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	who := userFrom(r.Context())
	target, err := url.Parse(remoteURL(to.from))
	if err != nil {
		s.writeError(w, r, err)
		return
	}
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
