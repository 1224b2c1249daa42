package web

import (
	"context"
	"crypto/rand"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"time"
)

// Prefix is the path that a Dashboard serves; mount it there.
const Prefix = "/ui/"

//go:embed all:dist
var embedded embed.FS

// User is who is signed in.
type User struct {
	Name   string              `json:"n"`
	UID    string              `json:"u,omitempty"`
	Groups []string            `json:"g,omitempty"`
	Extra  map[string][]string `json:"x,omitempty"`
}

// Config is what a Dashboard needs of the server that it is part of.
type Config struct {
	// API is the API server's own handler, authentication included.
	API http.Handler
	// Verify says whose a bearer token is, or why it is nobody's. Nil: tokens are
	// not taken.
	Verify func(ctx context.Context, token string) (User, error)
	// As has API see a request as a user's who has no token, but came by a Link.
	As func(context.Context, User) context.Context
	// OIDC is whom users may be sent to; nil: nobody.
	OIDC *OIDC
	// Loopback is set for a page beside the user rather than in an API server: the
	// address, 127.0.0.1 and a port, of which it is served without TLS.
	Loopback string
	// Key seals sessions: 32 bytes that all API servers of a cluster share, so
	// that a session is good at each of them. Nil: a random one, and sessions
	// end with the process.
	Key []byte
	// Files is the built page; nil: the embedded one.
	Files fs.FS
}

// Dashboard serves the page and its requests.
type Dashboard struct {
	config   Config
	page     *page
	seal     *seal
	live     *live
	renewals renewals
	mux      *http.ServeMux
	now      func() time.Time
}

// New makes a Dashboard. It fails on a key of the wrong length only.
func New(c Config) (*Dashboard, error) {
	if c.Key == nil {
		c.Key = make([]byte, 32)
		if _, err := rand.Read(c.Key); err != nil {
			return nil, fmt.Errorf("dashboard key: %w", err)
		}
	}
	if c.Files == nil {
		c.Files, _ = fs.Sub(embedded, "dist") // fails on an invalid path only
	}
	s, err := newSeal(c.Key)
	if err != nil {
		return nil, fmt.Errorf("dashboard key: %w", err)
	}
	d := &Dashboard{config: c, page: newPage(c.Files), seal: s, live: newLive(), mux: http.NewServeMux(), now: time.Now}
	d.mux.HandleFunc("GET "+Prefix+"session", d.whoAmI)
	d.mux.HandleFunc("POST "+Prefix+"session", d.signIn)
	d.mux.HandleFunc("DELETE "+Prefix+"session", d.signOut)
	d.mux.HandleFunc("GET "+Prefix+"ways", d.ways)
	if c.OIDC != nil {
		d.mux.HandleFunc("GET "+oidcStart, d.oidcStart)
		d.mux.HandleFunc("GET "+oidcCallback, d.oidcCallback)
		d.mux.HandleFunc("GET "+oidcEnd, d.oidcEnd)
	}
	d.mux.HandleFunc(forwardPrefix+"/", d.forward)
	d.mux.Handle(Prefix, d.page)
	d.mux.Handle("/ui", http.RedirectHandler(Prefix, http.StatusFound))
	return d, nil
}

// ServeHTTP serves everything below Prefix.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if err := d.fromOurPage(r); err != nil {
		refuse(w, http.StatusForbidden, "Forbidden", err.Error())
		return
	}
	d.mux.ServeHTTP(w, r)
}
