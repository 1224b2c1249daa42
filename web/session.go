package web

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

const (
	// The prefix makes browsers insist on Secure, Path=/ and no Domain, so that
	// no neighbouring site can plant one.
	cookieName = "__Host-orrery-session"
	// lifetime is how long a session lives unused; it is renewed when an hour
	// of it is gone. maxLifetime is its end in any case, if what it stands on does
	// not end sooner.
	lifetime    = 12 * time.Hour
	renewBelow  = 11 * time.Hour
	maxLifetime = 7 * 24 * time.Hour
	// A browser keeps cookies up to 4096 bytes; sealing adds a third.
	maxToken = 2800
)

var (
	errNoSession = errors.New("not signed in, or the session has ended")
	errTooLong   = errors.New("the token is too long for a cookie; use one of a service account")
)

// session is what the cookie carries: a token, or else a user whom the server knew
// by other means.
type session struct {
	ID      string    `json:"i"`
	Token   string    `json:"t,omitempty"`
	User    *User     `json:"u,omitempty"`
	Expires time.Time `json:"e"`           // unless it is used
	Ends    time.Time `json:"x"`           // in any case
	OIDC    bool      `json:"o,omitempty"` // it was begun at the issuer
	Renew   time.Time `json:"n,omitzero"`  // when the token is to be renewed; zero: never
	refresh string    // with what; it has a cookie of its own
}

// until is how long the session can be relied upon: its token may end sooner.
func (s session) until() time.Time {
	if ends := tokenEnds(s.Token); !ends.IsZero() && ends.Before(s.Ends) {
		return ends
	}
	return s.Ends
}

// seal encrypts and authenticates sessions.
type seal struct{ aead cipher.AEAD }

// What a sealed text is for, so that none serves as another.
const (
	forSession = "orrery dashboard session 2"
	forCode    = "orrery dashboard code 1"
	forOIDC    = "orrery dashboard oidc 1"
	forRenewal = "orrery dashboard renewal 1"
)

func newSeal(key []byte) (*seal, error) {
	if len(key) != 32 {
		return nil, errors.New("it must have 32 bytes")
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &seal{aead}, err
}

func (s *seal) close(purpose string, v any) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, s.aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, plain, []byte(purpose))), nil
}

func (s *seal) open(purpose, text string, v any) error {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(sealed) < s.aead.NonceSize() {
		return errNoSession
	}
	n := s.aead.NonceSize()
	plain, err := s.aead.Open(nil, sealed[:n], sealed[n:], []byte(purpose))
	if err != nil || json.Unmarshal(plain, v) != nil {
		return errNoSession
	}
	return nil
}

// session reads the request's session, if it has a good one.
func (d *Dashboard) session(r *http.Request) (session, error) {
	var s session
	c, err := r.Cookie(d.cookieName())
	if err != nil {
		return s, errNoSession
	}
	if err := d.seal.open(forSession, c.Value, &s); err != nil {
		return s, err
	}
	if now := d.now(); now.After(s.Expires) || now.After(s.Ends) || d.live.over(s.ID) {
		return s, errNoSession
	}
	return s, nil
}

// renew sends a fresh cookie when the session has been used for a while.
func (d *Dashboard) renew(w http.ResponseWriter, s session) {
	if s.Expires.Sub(d.now()) < renewBelow && s.Expires.Before(s.Ends) {
		_, _ = d.give(w, s) // the old cookie is good for some hours yet
	}
}

// begin gives the browser a session that it did not have before: whatever cookie
// it came with is worth nothing afterwards.
func (d *Dashboard) begin(w http.ResponseWriter, r *http.Request, s session) (session, error) {
	if old, err := d.session(r); err == nil {
		d.live.end(old)
	}
	s.ID = rand.Text()
	if latest := d.now().Add(maxLifetime); s.Ends.IsZero() || s.Ends.After(latest) {
		s.Ends = latest
	}
	return d.give(w, s)
}

// give sends the session's cookie, which lives on as if nothing had been used yet.
func (d *Dashboard) give(w http.ResponseWriter, s session) (session, error) {
	now := d.now()
	if s.Expires = now.Add(lifetime); s.Expires.After(s.Ends) {
		s.Expires = s.Ends
	}
	value, err := d.seal.close(forSession, s)
	if err != nil {
		return s, err
	}
	http.SetCookie(w, d.cookie(d.cookieName(), value, s.Expires.Sub(now)))
	return s, d.giveRenewal(w, s)
}

// forget takes the session's cookies away.
func (d *Dashboard) forget(w http.ResponseWriter) {
	http.SetCookie(w, d.cookie(d.cookieName(), "", 0))
	if d.config.OIDC != nil {
		http.SetCookie(w, d.cookie(renewalCookie, "", 0))
	}
}

// cookieName depends on the port where there is no TLS, and so no prefix: cookies
// of a host are those of all its ports.
func (d *Dashboard) cookieName() string {
	if _, port, plain := strings.Cut(d.config.Loopback, ":"); plain {
		return "orrery-session-" + port
	}
	return cookieName
}

// cookie makes one that lives for a while; none at all takes it away.
func (d *Dashboard) cookie(name, value string, life time.Duration) *http.Cookie {
	seconds := int(life / time.Second)
	if seconds <= 0 {
		seconds = -1
	}
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: seconds,
		HttpOnly: true, Secure: d.config.Loopback == "", SameSite: http.SameSiteStrictMode}
}

// signIn takes {"token": "..."} or {"code": "..."}.
func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request) {
	var body struct{ Token, Code string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", `the body must be {"token": "..."}`)
		return
	}
	if body.Code != "" {
		d.signInByCode(w, r, body.Code)
		return
	}
	token := strings.TrimPrefix(strings.TrimSpace(body.Token), "Bearer ")
	switch {
	case token == "":
		refuse(w, http.StatusBadRequest, "BadRequest", "no token")
		return
	case len(token) > maxToken:
		refuse(w, http.StatusBadRequest, "BadRequest", errTooLong.Error())
		return
	case d.config.Verify == nil:
		refuse(w, http.StatusForbidden, "Forbidden", "tokens are not taken here: open the address that `orrery dashboard` prints")
		return
	}
	user, s, err := d.byToken(r.Context(), token)
	if err != nil {
		refuse(w, http.StatusUnauthorized, "Unauthorized", "the token is not valid here: "+err.Error())
		return
	}
	d.enter(w, r, user, s)
}

// byToken is the session of a token's owner; it ends with the token.
func (d *Dashboard) byToken(ctx context.Context, token string) (User, session, error) {
	if len(token) > maxToken {
		return User{}, session{}, errTooLong
	}
	user, err := d.config.Verify(ctx, token)
	return user, session{Token: token, Ends: tokenEnds(token)}, err
}

// claims are what matters here of a token. Whether it is good is the API server's to
// say.
type claims struct {
	Issuer  string  `json:"iss"`
	Subject string  `json:"sub"`
	Nonce   string  `json:"nonce"`
	Expires float64 `json:"exp"`
}

// claimsOf reads a token, if it is one that can be read.
func claimsOf(token string) (c claims) {
	if parts := strings.Split(token, "."); len(parts) == 3 {
		if raw, err := base64.RawURLEncoding.DecodeString(parts[1]); err == nil {
			_ = json.Unmarshal(raw, &c)
		}
	}
	return c
}

// tokenEnds is the end of a token, if it tells one.
func tokenEnds(token string) time.Time {
	if c := claimsOf(token); c.Expires > 0 {
		return time.Unix(int64(c.Expires), 0)
	}
	return time.Time{}
}

// enter begins a session and tells the page of it.
func (d *Dashboard) enter(w http.ResponseWriter, r *http.Request, user User, s session) {
	s, err := d.begin(w, r, s)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	d.tell(w, r, user, s)
}

// whoAmI asks the API server again, so that a revoked token ends here too.
func (d *Dashboard) whoAmI(w http.ResponseWriter, r *http.Request) {
	s, err := d.current(w, r)
	user := User{}
	switch {
	case err == nil && s.User != nil:
		user = *s.User
	case err == nil:
		user, err = d.config.Verify(r.Context(), s.Token)
	}
	if err != nil {
		d.forget(w)
		refuse(w, http.StatusUnauthorized, "Unauthorized", err.Error())
		return
	}
	d.renew(w, s)
	d.tell(w, r, user, s)
}

// signOut ends the session, here at once: what is open in its name is closed.
func (d *Dashboard) signOut(w http.ResponseWriter, r *http.Request) {
	if s, err := d.session(r); err == nil {
		d.live.end(s)
	}
	d.forget(w)
	w.WriteHeader(http.StatusNoContent)
}

// tell says who is signed in, until when at most, by when to ask again for the session
// to go on, and whether the cluster's API server is another one than orrery's.
func (d *Dashboard) tell(w http.ResponseWriter, r *http.Request, user User, s session) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(struct {
		Name     string    `json:"user"`
		Groups   []string  `json:"groups,omitempty"`
		Ends     time.Time `json:"ends"`
		Renew    time.Time `json:"renew,omitzero"`
		OIDC     bool      `json:"oidc,omitempty"`
		Foreign  bool      `json:"foreign,omitempty"`
		Language string    `json:"language"`
	}{user.Name, user.Groups, s.Ends, s.Renew, s.OIDC, d.config.Loopback != "", language(r.Header.Get("Accept-Language"))})
}

// ways tells the page how one can sign in here.
func (d *Dashboard) ways(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(map[string]bool{"token": d.config.Verify != nil, "oidc": d.config.OIDC != nil})
}

// language is the one of our two that the browser would rather have. Readers of
// any Chinese are better served by ours than by English.
func language(accept string) string {
	for _, tag := range strings.Split(accept, ",") {
		switch tag = strings.ToLower(strings.TrimSpace(tag)); {
		case strings.HasPrefix(tag, "zh"):
			return "zh-TW"
		case strings.HasPrefix(tag, "en"):
			return "en"
		}
	}
	return "en"
}
