package web

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// issuer is a small OpenID Connect provider, whose user always agrees.
type issuer struct {
	*httptest.Server
	asked url.Values // of the last authorization request
	nonce string     // "": the one asked for
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys", "scopes_supported": []string{"openid", "groups"}})
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		if r.FormValue("code") != "the-code" || r.FormValue("client_id") != "dashboard" || base64.RawURLEncoding.EncodeToString(challenge[:]) != i.asked.Get("code_challenge") {
			http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
			return
		}
		nonce := i.nonce
		if nonce == "" {
			nonce = i.asked.Get("nonce")
		}
		claims := fmt.Appendf(nil, `{"sub":"jane","nonce":%q,"exp":%d}`, nonce, time.Now().Add(time.Hour).Unix())
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"})
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

// errandOf begins to sign in, and returns the state and the browser's cookie.
func (i *issuer) errandOf(t *testing.T, d *Dashboard) (state, cookie string) {
	t.Helper()
	w := answer(d, request("GET", oidcStart, "", "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "navigate"))
	to, err := url.Parse(w.Header().Get("Location"))
	if err != nil || w.Code != 302 || len(w.Result().Cookies()) != 1 {
		t.Fatalf("start: %d %v %s", w.Code, err, w.Body)
	}
	i.asked = to.Query()
	if to.Path != "/authorize" || i.asked.Get("code_challenge_method") != "S256" || i.asked.Get("response_type") != "code" ||
		i.asked.Get("redirect_uri") != "https://cluster.example/ui/oidc/callback" || i.asked.Get("client_id") != "dashboard" || !strings.Contains(i.asked.Get("scope"), "groups") {
		t.Errorf("sent to %s", to)
	}
	c := w.Result().Cookies()[0]
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.MaxAge != 600 {
		t.Errorf("cookie %+v", c)
	}
	return i.asked.Get("state"), c.Name + "=" + c.Value
}

func TestSignInByOIDC(t *testing.T) {
	i := newIssuer(t)
	d, err := New(Config{
		API: http.HandlerFunc(echoAPI), Files: files, OIDC: &OIDC{Issuer: i.URL, ClientID: "dashboard", Client: i.Client()},
		Verify: func(_ context.Context, token string) (User, error) {
			if strings.HasPrefix(token, "e30.") {
				return User{Name: "jane"}, nil
			}
			return User{}, errors.New("bad token")
		}})
	if err != nil {
		t.Fatal(err)
	}
	if w := answer(d, request("GET", "/ui/ways", "")); !strings.Contains(w.Body.String(), `"oidc":true`) {
		t.Errorf("ways %s", w.Body)
	}
	back := func(cookie string, query url.Values) *httptest.ResponseRecorder {
		return answer(d, request("GET", oidcCallback+"?"+query.Encode(), "", "Cookie", cookie, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"))
	}
	state, cookie := i.errandOf(t, d)
	good := url.Values{"code": {"the-code"}, "state": {state}}
	w := back(cookie, good)
	if w.Code != 303 || w.Header().Get("Location") != "/ui/" || len(w.Result().Cookies()) != 2 {
		t.Fatalf("back: %d %s", w.Code, w.Body)
	}
	s := w.Result().Cookies()[1]
	if s.Name != cookieName || s.SameSite != http.SameSiteStrictMode || s.MaxAge > 3600 {
		t.Errorf("session %+v", s)
	}
	if who := answer(d, request("GET", "/ui/session", "", "Cookie", s.Name+"="+s.Value)); !strings.Contains(who.Body.String(), `"user":"jane"`) {
		t.Errorf("who am I: %s", who.Body)
	}
	if got := answer(d, request("GET", "/ui/k8s/api", "", "Cookie", s.Name+"="+s.Value)); !strings.Contains(got.Body.String(), `"auth":"Bearer e30.`) {
		t.Errorf("forwarded %s", got.Body)
	}
	for name, attempt := range map[string]func() *httptest.ResponseRecorder{
		"the same answer again": func() *httptest.ResponseRecorder { return back(cookie, good) },
		"somebody else's answer": func() *httptest.ResponseRecorder {
			_, mine := i.errandOf(t, d)
			return back(mine, url.Values{"code": {"the-code"}, "state": {"other"}})
		},
		"an answer to nothing": func() *httptest.ResponseRecorder { return back("x=y", good) },
		"a code of another browser": func() *httptest.ResponseRecorder {
			theirs, cookie := i.errandOf(t, d)
			i.asked.Set("code_challenge", "of another verifier")
			return back(cookie, url.Values{"code": {"the-code"}, "state": {theirs}})
		},
		"a token of before": func() *httptest.ResponseRecorder {
			state, cookie := i.errandOf(t, d)
			i.nonce = "old"
			defer func() { i.nonce = "" }()
			return back(cookie, url.Values{"code": {"the-code"}, "state": {state}})
		},
		"a refusal": func() *httptest.ResponseRecorder {
			state, cookie := i.errandOf(t, d)
			return back(cookie, url.Values{"error": {"access_denied"}, "error_description": {"<script>"}, "state": {state}})
		},
		"an old errand": func() *httptest.ResponseRecorder {
			state, cookie := i.errandOf(t, d)
			defer func() { d.now = time.Now }()
			d.now = func() time.Time { return time.Now().Add(errandLife + time.Minute) }
			return back(cookie, url.Values{"code": {"the-code"}, "state": {state}})
		},
	} {
		w := attempt()
		for _, c := range w.Result().Cookies() {
			if c.Name == cookieName {
				t.Errorf("%s: signed in", name)
			}
		}
		if w.Code != 401 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if w := answer(d, request("GET", oidcStart, "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors")); w.Code != 403 {
		t.Errorf("begun by another site's picture: %d", w.Code)
	}
}
