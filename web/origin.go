package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
)

// fromOurPage refuses what another site could make a browser send. The cookie
// is SameSite=Strict already; this holds where that is not enough: sister
// subdomains are the same site, and a websocket is not bound by the same-origin
// policy at all.
func (d *Dashboard) fromOurPage(r *http.Request) error {
	upgrade := r.Header.Get("Upgrade") != ""
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	origin, site := r.Header.Get("Origin"), r.Header.Get("Sec-Fetch-Site")
	visit := safe && r.Header.Get("Sec-Fetch-Mode") == "navigate" && !strings.HasPrefix(r.URL.Path, forwardPrefix) && r.URL.Path != oidcEnd
	switch {
	case d.config.Loopback != "" && !d.isUs(r.Host):
		// Another name that leads here: somebody has it in their hands where names lead.
		return fmt.Errorf("this is not %s", r.Host)
	case origin != "":
		if !sameOrigin(origin, r) {
			return fmt.Errorf("request from another origin: %s", origin)
		}
	case upgrade || !safe:
		// Every browser sends Origin with these, or says where they are from.
		if site != "same-origin" {
			return errors.New("request without an Origin header")
		}
	case site != "" && site != "same-origin" && site != "none" && !visit:
		// A link from elsewhere leads to the page, and to nothing else.
		return errors.New("request from another site")
	}
	if !safe && r.ContentLength != 0 {
		return allowedBody(r.Header.Get("Content-Type"))
	}
	return nil
}

// sameOrigin compares schemes, too, but cannot see TLS that ended before us.
func sameOrigin(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host) && (u.Scheme == "https" || u.Scheme == "http" && r.TLS == nil)
}

// isUs knows a loopback page's own names.
func (d *Dashboard) isUs(host string) bool {
	_, port, _ := strings.Cut(d.config.Loopback, ":")
	return host == d.config.Loopback || host == "localhost:"+port
}

// allowedBody takes the types that a form cannot send.
func allowedBody(contentType string) error {
	media, _, err := mime.ParseMediaType(contentType)
	if err == nil && strings.HasPrefix(media, "application/") && media != "application/x-www-form-urlencoded" {
		return nil
	}
	return fmt.Errorf("content type %q is not accepted here: send application/json", contentType)
}

// refuse answers with a Status, as the API server does, so that the page has
// one way to show errors.
func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure",
		"message": message, "reason": reason, "code": code,
	})
}
