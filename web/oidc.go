package web

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
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
	oidcEnd      = Prefix + "oidc/end"
	// oidcCookie carries an errand from its start to its end. It is Lax, since the
	// issuer's answer is a link from another site.
	oidcCookie = "__Host-orrery-oidc"
	errandLife = 10 * time.Minute
)

// OIDC is an OpenID Connect issuer whose tokens the API server takes. Users are sent
// there for a code (authorization code flow with PKCE), which becomes an ID token
// here; the page gets neither. A session whose issuer gives a refresh token, too, goes
// on for as long as the issuer renews it (renewal.go).
type OIDC struct {
	Issuer, ClientID string
	// SecretFile holds what the client shows the issuer; "": it is a public one.
	SecretFile string
	Client     *http.Client // nil: the default one

	mu    sync.Mutex // protects known
	known *provider
}

// provider is what an issuer says of itself.
type provider struct {
	oauth2.Endpoint
	scopes []string
	logout string // where it ends its own session; "": nowhere
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

// provider asks the issuer about itself, once.
func (o *OIDC) provider(ctx context.Context) (*provider, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known != nil {
		return o.known, nil
	}
	found, err := oidc.NewProvider(o.context(ctx), o.Issuer)
	if err != nil {
		return nil, err
	}
	var offers struct {
		Scopes  []string `json:"scopes_supported"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
		Logout  string   `json:"end_session_endpoint"`
	}
	if err := found.Claims(&offers); err != nil {
		return nil, err
	}
	p := &provider{found.Endpoint(), []string{oidc.ScopeOpenID, "profile", "email"}, offers.Logout}
	p.AuthStyle = oauth2.AuthStyleInParams // a public client has nothing else
	if o.SecretFile != "" && (len(offers.Methods) == 0 || slices.Contains(offers.Methods, "client_secret_basic")) {
		p.AuthStyle = oauth2.AuthStyleInHeader
	}
	for _, scope := range []string{"groups", oidc.ScopeOfflineAccess} {
		if slices.Contains(offers.Scopes, scope) { // where one isn't known, it may be refused
			p.scopes = append(p.scopes, scope)
		}
	}
	o.known = p
	return p, nil
}

// config is this client at its issuer. The secret is read anew, since it may be
// replaced.
func (o *OIDC) config(ctx context.Context, r *http.Request) (*oauth2.Config, error) {
	p, err := o.provider(ctx)
	if err != nil {
		return nil, err
	}
	c := &oauth2.Config{ClientID: o.ClientID, Endpoint: p.Endpoint, Scopes: p.scopes, RedirectURL: "https://" + r.Host + oidcCallback}
	if o.SecretFile != "" {
		secret, err := os.ReadFile(o.SecretFile)
		if err != nil {
			return nil, err
		}
		c.ClientSecret = strings.TrimSpace(string(secret))
	}
	return c, nil
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
	http.Redirect(w, r, config.AuthCodeURL(e.State, oidc.Nonce(e.Nonce), oauth2.S256ChallengeOption(e.Verifier), oauth2.AccessTypeOffline), http.StatusFound)
}

func (d *Dashboard) setErrand(w http.ResponseWriter, value string, life time.Duration) {
	c := d.cookie(oidcCookie, value, life)
	c.SameSite = http.SameSiteLaxMode
	http.SetCookie(w, c)
}

func (d *Dashboard) oidcCallback(w http.ResponseWriter, r *http.Request) {
	d.setErrand(w, "", 0) // good once
	w.Header().Set("Cache-Control", "no-store")
	tokens, err := d.fetchTokens(r)
	if err != nil {
		oidcFailed(w, http.StatusUnauthorized, err)
		return
	}
	s, err := d.byIssuer(r.Context(), tokens)
	if err == nil {
		_, err = d.begin(w, r, s)
	}
	if err != nil {
		oidcFailed(w, http.StatusUnauthorized, fmt.Errorf("the issuer's token is not valid here: %w", err))
		return
	}
	http.Redirect(w, r, Prefix, http.StatusSeeOther)
}

// fetchTokens turns the issuer's answer into tokens, if it is the answer to what this
// browser was sent to ask.
func (d *Dashboard) fetchTokens(r *http.Request) (*oauth2.Token, error) {
	var e errand
	c, err := r.Cookie(oidcCookie)
	if err != nil || d.seal.open(forOIDC, c.Value, &e) != nil || d.now().After(e.Until) || !d.live.once(e.State, e.Until) {
		return nil, errors.New("this browser did not begin to sign in, or took too long")
	}
	q := r.URL.Query()
	if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(e.State)) != 1 {
		return nil, errors.New("this is the answer to another question")
	}
	if problem := q.Get("error"); problem != "" {
		return nil, fmt.Errorf("the issuer says: %s %s", problem, q.Get("error_description"))
	}
	config, err := d.config.OIDC.config(r.Context(), r)
	if err != nil {
		return nil, err
	}
	tokens, err := config.Exchange(d.config.OIDC.context(r.Context()), q.Get("code"), oauth2.VerifierOption(e.Verifier))
	if err != nil {
		return nil, err
	}
	if claimsOf(idToken(tokens)).Nonce != e.Nonce {
		return nil, errors.New("the issuer's token was not made for this")
	}
	return tokens, nil
}

func idToken(tokens *oauth2.Token) string {
	token, _ := tokens.Extra("id_token").(string)
	return token
}

// oidcEnd signs out, and sends the user on to do so at the issuer, which would else
// sign them in again unasked.
func (d *Dashboard) oidcEnd(w http.ResponseWriter, r *http.Request) {
	to := Prefix
	if s, err := d.session(r); err == nil && s.OIDC {
		d.live.end(s)
		to = d.config.OIDC.logout(r, s.Token)
	}
	d.forget(w)
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// logout is where the issuer ends the session that it made a token in; our own page,
// if it has no such place.
func (o *OIDC) logout(r *http.Request, token string) string {
	p, err := o.provider(r.Context())
	if err != nil || p.logout == "" {
		return Prefix
	}
	to, err := url.Parse(p.logout)
	if err != nil {
		return Prefix
	}
	q := to.Query()
	q.Set("id_token_hint", token)
	q.Set("client_id", o.ClientID)
	q.Set("post_logout_redirect_uri", "https://"+r.Host+Prefix)
	to.RawQuery = q.Encode()
	return to.String()
}

// oidcFailed is read by people, who come from another page than ours.
func oidcFailed(w http.ResponseWriter, code int, err error) {
	http.Error(w, "Signing in failed: "+err.Error()+"\n\nTry again at "+Prefix, code)
}
