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
func fromOurPage(r *http.Request) error {
	upgrade := r.Header.Get("Upgrade") != ""
	safe := r.Method == http.MethodGet || r.Method == http.MethodHead
	origin := r.Header.Get("Origin")
	switch {
	case origin != "":
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return fmt.Errorf("request from another origin: %s", origin)
		}
	case upgrade || !safe:
		// Every browser sends Origin with these, or says where they are from.
		if r.Header.Get("Sec-Fetch-Site") != "same-origin" {
			return errors.New("request without an Origin header")
		}
	case strings.HasPrefix(r.URL.Path, forwardPrefix):
		// A link from elsewhere into the API has no business here.
		if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
			return errors.New("request from another site")
		}
	}
	if !safe && r.ContentLength != 0 {
		return allowedBody(r.Header.Get("Content-Type"))
	}
	return nil
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
