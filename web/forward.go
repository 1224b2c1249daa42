package web

import (
	"crypto/tls"
	"net/http"
	"strings"
)

// forwardPrefix is what a page puts before a path of the API.
const forwardPrefix = "/ui/k8s"

// forward gives a request to the API server as its user's.
func (d *Dashboard) forward(w http.ResponseWriter, r *http.Request) {
	s, err := d.current(w, r)
	if err != nil {
		refuse(w, http.StatusUnauthorized, "Unauthorized", err.Error())
		return
	}
	d.renew(w, s)
	ctx, done := d.live.request(r.Context(), s)
	defer done()
	asUser := r.Clone(ctx)
	asUser.URL.Path = strings.TrimPrefix(r.URL.Path, forwardPrefix)
	asUser.URL.RawPath = strings.TrimPrefix(r.URL.RawPath, forwardPrefix)
	impersonate(asUser)
	asUser.RequestURI = asUser.URL.RequestURI()
	switch {
	case strings.HasPrefix(asUser.URL.Path, "/ui"):
		refuse(w, http.StatusNotFound, "NotFound", "the dashboard is not part of the API")
		return
	case proxies(asUser.URL.Path):
		// A page from inside a pod would run as ours, with its cookie.
		refuse(w, http.StatusForbidden, "Forbidden", "pages of pods, services and nodes are not shown through the dashboard: use kubectl proxy or port-forward")
		return
	}
	asUser.Header.Del("Cookie")
	asUser.Header.Del("Authorization")
	if s.User != nil {
		asUser = asUser.WithContext(d.config.As(ctx, *s.User))
	} else {
		asUser.Header.Set("Authorization", "Bearer "+s.Token)
	}
	if r.TLS != nil {
		asUser.TLS = withoutCertificates(r.TLS)
	}
	d.config.API.ServeHTTP(newGuard(ctx, w), asUser)
}

// impersonate makes headers of what a page says in the query, since websockets
// of browsers have no headers of their own. Whether the user may is the API
// server's to say.
func impersonate(r *http.Request) {
	query := r.URL.Query()
	for _, name := range []string{"Impersonate-User", "Impersonate-Group"} {
		key := strings.ToLower(name)
		for _, value := range query[key] {
			r.Header.Add(name, value)
		}
		query.Del(key)
	}
	if len(query) != len(r.URL.Query()) {
		r.URL.RawQuery = query.Encode()
	}
}

// withoutCertificates keeps a browser's client certificate, which it sends
// unasked, from outranking the session.
func withoutCertificates(state *tls.ConnectionState) *tls.ConnectionState {
	bare := *state
	bare.PeerCertificates, bare.VerifiedChains = nil, nil
	return &bare
}

// proxies recognises the proxy subresource of pods, services and nodes, and its
// old form with "proxy" before the namespace.
func proxies(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) < 3 || parts[0] != "api" {
		return false
	}
	switch rest := parts[2:]; {
	case rest[0] == "proxy":
		return true
	case rest[0] == "nodes":
		return len(rest) > 2 && rest[2] == "proxy"
	case rest[0] == "namespaces":
		return len(rest) > 4 && rest[4] == "proxy"
	}
	return false
}
