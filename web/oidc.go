package web

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

const (
	oidcStart    = Prefix + "oidc/start"
	oidcCallback = Prefix + "oidc/callback"
	// oidcCookie carries an errand from its start to its end. It is Lax, since the
	// issuer's answer is a link from another site.
	oidcCookie = "__Host-orrery-oidc"
	errandLife = 10 * time.Minute
)

// OIDC is an OpenID Connect issuer whose tokens the API server takes. Users are sent
// there for a code (authorization code flow with PKCE), which becomes an ID token
// here; the page gets neither.
type OIDC struct {
	Issuer, ClientID string
	Client           *http.Client // nil: the default one

	mu        sync.Mutex // protects the fields below
	endpoints *oauth2.Endpoint
	scopes    []string
}

// errand is what has to come back with the issuer's answer.
type errand struct {
	State, Nonce, Verifier string
	Until                  time.Time
}

func (o *OIDC) context(ctx context.Context) context.Context {
	if o.Client == nil {
		return ctx
	}
	return oidc.ClientContext(ctx, o.Client)
}

// config asks the issuer where its endpoints are, once.
func (o *OIDC) config(ctx context.Context, r *http.Request) (*oauth2.Config, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.endpoints == nil {
		provider, err := oidc.NewProvider(o.context(ctx), o.Issuer)
		if err != nil {
			return nil, err
		}
		endpoints := provider.Endpoint()
		endpoints.AuthStyle = oauth2.AuthStyleInParams // a public client has nothing else
		o.endpoints, o.scopes = &endpoints, []string{oidc.ScopeOpenID, "profile", "email"}
		var offers struct {
			Scopes []string `json:"scopes_supported"`
		}
		if err := provider.Claims(&offers); err == nil && slices.Contains(offers.Scopes, "groups") {
			o.scopes = append(o.scopes, "groups") // where it isn't known, it may be refused
		}
	}
	return &oauth2.Config{ClientID: o.ClientID, Endpoint: *o.endpoints, Scopes: o.scopes, RedirectURL: "https://" + r.Host + oidcCallback}, nil
}

func (d *Dashboard) oidcStart(w http.ResponseWriter, r *http.Request) {
	config, err := d.config.OIDC.config(r.Context(), r)
	if err != nil {
		oidcFailed(w, http.StatusBadGateway, fmt.Errorf("the issuer can't be asked: %w", err))
		return
	}
	e := errand{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Until: d.now().Add(errandLife)}
	sealed, err := d.seal.close(forOIDC, e)
	if err != nil {
		oidcFailed(w, http.StatusInternalServerError, err)
		return
	}
	d.setErrand(w, sealed, errandLife)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, config.AuthCodeURL(e.State, oidc.Nonce(e.Nonce), oauth2.S256ChallengeOption(e.Verifier)), http.StatusFound)
}

func (d *Dashboard) setErrand(w http.ResponseWriter, value string, life time.Duration) {
	c := d.cookie(oidcCookie, value, life)
	c.SameSite = http.SameSiteLaxMode
	http.SetCookie(w, c)
}

func (d *Dashboard) oidcCallback(w http.ResponseWriter, r *http.Request) {
	d.setErrand(w, "", 0) // good once
	w.Header().Set("Cache-Control", "no-store")
	token, err := d.fetchToken(r)
	if err != nil {
		oidcFailed(w, http.StatusUnauthorized, err)
		return
	}
	_, s, err := d.byToken(r.Context(), token)
	if err == nil {
		_, err = d.begin(w, r, s)
	}
	if err != nil {
		oidcFailed(w, http.StatusUnauthorized, fmt.Errorf("the issuer's token is not valid here: %w", err))
		return
	}
	http.Redirect(w, r, Prefix, http.StatusSeeOther)
}

// fetchToken turns the issuer's answer into an ID token, if it is the answer to what
// this browser was sent to ask.
func (d *Dashboard) fetchToken(r *http.Request) (string, error) {
	var e errand
	c, err := r.Cookie(oidcCookie)
	if err != nil || d.seal.open(forOIDC, c.Value, &e) != nil || d.now().After(e.Until) || !d.live.once(e.State, e.Until) {
		return "", errors.New("this browser did not begin to sign in, or took too long")
	}
	q := r.URL.Query()
	if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(e.State)) != 1 {
		return "", errors.New("this is the answer to another question")
	}
	if problem := q.Get("error"); problem != "" {
		return "", fmt.Errorf("the issuer says: %s %s", problem, q.Get("error_description"))
	}
	config, err := d.config.OIDC.config(r.Context(), r)
	if err != nil {
		return "", err
	}
	answer, err := config.Exchange(d.config.OIDC.context(r.Context()), q.Get("code"), oauth2.VerifierOption(e.Verifier))
	if err != nil {
		return "", err
	}
	token, _ := answer.Extra("id_token").(string)
	var claims struct{ Nonce string }
	if parts := strings.Split(token, "."); len(parts) == 3 {
		if raw, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
			_ = json.Unmarshal(raw, &claims) // whether the token is good is the API server's to say
		}
	}
	if claims.Nonce != e.Nonce {
		return "", errors.New("the issuer's token was not made for this")
	}
	return token, nil
}

// oidcFailed is read by people, who come from another page than ours.
func oidcFailed(w http.ResponseWriter, code int, err error) {
	http.Error(w, "Signing in failed: "+err.Error()+"\n\nTry again at "+Prefix, code)
}
