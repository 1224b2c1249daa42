package web

import (
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
	// of it is gone. maxLifetime is its end in any case.
	lifetime    = 12 * time.Hour
	renewBelow  = 11 * time.Hour
	maxLifetime = 7 * 24 * time.Hour
	// A browser keeps cookies up to 4096 bytes; sealing adds a third.
	maxToken = 2800
)

var errNoSession = errors.New("not signed in, or the session has ended")

// session is what the cookie carries.
type session struct {
	Token   string    `json:"t"`
	Began   time.Time `json:"b"`
	Expires time.Time `json:"e"`
}

// seal encrypts and authenticates sessions.
type seal struct{ aead cipher.AEAD }

// sealContext ties a sealed text to its use, should the key have others.
var sealContext = []byte("orrery dashboard session 1")

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

func (s *seal) close(v session) (string, error) {
	plain, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, s.aead.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nonce, nonce, plain, sealContext)), nil
}

func (s *seal) open(text string) (session, error) {
	var v session
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(sealed) < s.aead.NonceSize() {
		return v, errNoSession
	}
	n := s.aead.NonceSize()
	plain, err := s.aead.Open(nil, sealed[:n], sealed[n:], sealContext)
	if err != nil || json.Unmarshal(plain, &v) != nil {
		return v, errNoSession
	}
	return v, nil
}

// session reads the request's session, if it has a good one.
func (d *Dashboard) session(r *http.Request) (session, error) {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return session{}, errNoSession
	}
	s, err := d.seal.open(c.Value)
	if err != nil {
		return s, err
	}
	if now := d.now(); now.After(s.Expires) || now.After(s.Began.Add(maxLifetime)) {
		return s, errNoSession
	}
	return s, nil
}

// renew sends a fresh cookie when the session has been used for a while.
func (d *Dashboard) renew(w http.ResponseWriter, s session) {
	if s.Expires.Sub(d.now()) < renewBelow {
		_ = d.give(w, s) // the old cookie is good for some hours yet
	}
}

func (d *Dashboard) give(w http.ResponseWriter, s session) error {
	s.Expires = d.now().Add(lifetime)
	value, err := d.seal.close(s)
	if err != nil {
		return err
	}
	http.SetCookie(w, cookie(value, int(lifetime/time.Second)))
	return nil
}

func cookie(value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: cookieName, Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode}
}

// signIn takes {"token": "..."}.
func (d *Dashboard) signIn(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Token string `json:"token"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&body); err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", `the body must be {"token": "..."}`)
		return
	}
	token := strings.TrimPrefix(strings.TrimSpace(body.Token), "Bearer ")
	switch {
	case token == "":
		refuse(w, http.StatusBadRequest, "BadRequest", "no token")
		return
	case len(token) > maxToken:
		refuse(w, http.StatusBadRequest, "BadRequest", "the token is too long for a cookie; use one of a service account")
		return
	}
	user, err := d.config.Verify(r.Context(), token)
	if err != nil {
		refuse(w, http.StatusUnauthorized, "Unauthorized", "the token is not valid here: "+err.Error())
		return
	}
	now := d.now()
	if err := d.give(w, session{Token: token, Began: now}); err != nil {
		refuse(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	d.tell(w, r, user, now.Add(lifetime))
}

// whoAmI asks the API server again, so that a revoked token ends here too.
func (d *Dashboard) whoAmI(w http.ResponseWriter, r *http.Request) {
	s, err := d.session(r)
	if err != nil {
		refuse(w, http.StatusUnauthorized, "Unauthorized", err.Error())
		return
	}
	user, err := d.config.Verify(r.Context(), s.Token)
	if err != nil {
		http.SetCookie(w, cookie("", -1))
		refuse(w, http.StatusUnauthorized, "Unauthorized", err.Error())
		return
	}
	d.renew(w, s)
	d.tell(w, r, user, s.Expires)
}

func (d *Dashboard) signOut(w http.ResponseWriter, _ *http.Request) {
	http.SetCookie(w, cookie("", -1))
	w.WriteHeader(http.StatusNoContent)
}

func (d *Dashboard) tell(w http.ResponseWriter, r *http.Request, user User, expires time.Time) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(struct {
		User
		Expires  time.Time `json:"expires"`
		Language string    `json:"language"`
	}{user, expires, language(r.Header.Get("Accept-Language"))})
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
