package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// issuer is a small OpenID Connect provider, whose user always agrees. It is asked
// without a network, so that time can be the test's.
type issuer struct {
	*http.ServeMux
	URL    string
	asked  url.Values     // of the last authorization request
	nonce  string         // "": the one asked for
	offers map[string]any // further ones
	life   time.Duration  // of its tokens; 0: an hour
	secret string         // of its client

	mu      sync.Mutex // protects the fields below
	refresh string     // what renews; "": nothing
	renewed int
	refuses int    // by this status
	subject string // "": jane
}

func newIssuer() *issuer {
	i := &issuer{ServeMux: http.NewServeMux(), URL: "https://issuer.example"}
	i.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		about := map[string]any{"issuer": i.URL, "authorization_endpoint": i.URL + "/authorize", "token_endpoint": i.URL + "/token", "jwks_uri": i.URL + "/keys", "scopes_supported": []string{"openid", "groups"}}
		maps.Copy(about, i.offers)
		_ = json.NewEncoder(w).Encode(about)
	})
	i.HandleFunc("/token", i.token)
	return i
}

// RoundTrip implements http.RoundTripper.
func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	i.ServeHTTP(w, r)
	return w.Result(), nil
}

func (i *issuer) token(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	challenge := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	renews := r.FormValue("grant_type") == "refresh_token"
	switch {
	case i.refuses != 0:
		http.Error(w, `{"error":"invalid_grant"}`, i.refuses)
		return
	case id != "dashboard" || secret != i.secret,
		renews && (i.refresh == "" || r.FormValue("refresh_token") != i.refresh),
		!renews && (r.FormValue("code") != "the-code" || base64.RawURLEncoding.EncodeToString(challenge[:]) != i.asked.Get("code_challenge")):
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	}
	if renews {
		i.renewed++
		i.refresh += "+" // each is good once
	}
	claims := fmt.Appendf(nil, `{"iss":%q,"sub":%q,"nonce":%q,"exp":%d,"n":%d}`, i.URL, cmp.Or(i.subject, "jane"), cmp.Or(i.nonce, i.asked.Get("nonce")), time.Now().Add(cmp.Or(i.life, time.Hour)).Unix(), i.renewed)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "a", "token_type": "Bearer", "refresh_token": i.refresh,
		"id_token": "e30." + base64.RawURLEncoding.EncodeToString(claims) + ".c2ln"})
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

// dashboard has the issuer's users.
func (i *issuer) dashboard(t *testing.T, o *OIDC) *Dashboard {
	t.Helper()
	o.Issuer, o.ClientID, o.Client = i.URL, "dashboard", &http.Client{Transport: i}
	d, err := New(Config{
		API: http.HandlerFunc(echoAPI), Files: files, OIDC: o,
		Verify: func(_ context.Context, token string) (User, error) {
			if strings.HasPrefix(token, "e30.") {
				return User{Name: "jane"}, nil
			}
			return User{}, errors.New("bad token")
		}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// signIn returns the browser's cookies.
func (i *issuer) signIn(t *testing.T, d *Dashboard) string {
	t.Helper()
	state, cookie := i.errandOf(t, d)
	w := answer(d, request("GET", oidcCallback+"?"+url.Values{"code": {"the-code"}, "state": {state}}.Encode(), "", "Cookie", cookie, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"))
	if w.Code != http.StatusSeeOther {
		t.Fatalf("back: %d %s", w.Code, w.Body)
	}
	return cookiesOf(w)
}

// cookiesOf are the cookies that an answer leaves a browser with.
func cookiesOf(w *httptest.ResponseRecorder) string {
	var all []string
	for _, c := range w.Result().Cookies() {
		if c.MaxAge > 0 {
			all = append(all, c.Name+"="+c.Value)
		}
	}
	return strings.Join(all, "; ")
}

func TestSignInByOIDC(t *testing.T) {
	i := newIssuer()
	d := i.dashboard(t, &OIDC{})
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

func TestClientShowsItsSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for name, offers := range map[string]map[string]any{
		"said nothing about": nil,
		"in the header":      {"token_endpoint_auth_methods_supported": []string{"client_secret_post", "client_secret_basic"}},
		"in the form":        {"token_endpoint_auth_methods_supported": []string{"client_secret_post"}},
	} {
		i := newIssuer()
		i.offers = offers
		d := i.dashboard(t, &OIDC{SecretFile: file})
		for _, secret := range []string{"first", "replaced"} {
			if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			i.secret = secret
			if i.signIn(t, d) == "" {
				t.Errorf("%s: not signed in by the %s secret", name, secret)
			}
		}
	}
}

// A session, and what is open in its name, goes on for as long as the issuer renews its
// token.
func TestIssuerRenewsSessions(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*issuer)
		after  time.Duration
		want   int           // of a request
		asked  int           // how often the issuer has renewed
		open   time.Duration // how long a watch went on
	}{
		"young":                          {nil, 5 * time.Minute, 200, 0, 10 * time.Minute},
		"before the token ends":          {nil, 8 * time.Minute, 200, 1, 18 * time.Minute},
		"after the token has ended":      {nil, 3 * time.Hour, 200, 1, 10 * time.Minute},
		"refused though the token lasts": {func(i *issuer) { i.refuses = 400 }, 8 * time.Minute, 401, 0, 8 * time.Minute},
		"broken while the token lasts":   {func(i *issuer) { i.refuses = 503 }, 8 * time.Minute, 200, 0, 10 * time.Minute},
		"broken for too long":            {func(i *issuer) { i.refuses = 503 }, 11 * time.Minute, 401, 0, 10 * time.Minute},
		"used elsewhere":                 {func(i *issuer) { i.refresh = "other" }, 8 * time.Minute, 401, 0, 8 * time.Minute},
		"of somebody else":               {func(i *issuer) { i.subject = "joe" }, 11 * time.Minute, 401, 1, 10 * time.Minute},
		"unused for too long":            {nil, 13 * time.Hour, 401, 0, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := newIssuer()
				i.life, i.refresh = 10*time.Minute, "again"
				i.offers = map[string]any{"scopes_supported": []string{"groups", "offline_access"}}
				d := i.dashboard(t, &OIDC{})
				cookies := i.signIn(t, d)
				if !strings.Contains(i.asked.Get("scope"), "offline_access") {
					t.Errorf("asked for %s", i.asked.Get("scope"))
				}
				d.config.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/watch" {
						<-r.Context().Done()
					}
					echoAPI(w, r)
				})
				start, open := time.Now(), time.Duration(0)
				var watch, all sync.WaitGroup
				watch.Go(func() {
					answer(d, request("GET", "/ui/k8s/watch", "", "Cookie", cookies))
					open = time.Since(start)
				})
				if test.change != nil {
					test.change(i)
				}
				time.Sleep(test.after)
				for range 4 { // a page asks for several things
					all.Go(func() {
						w := answer(d, request("GET", "/ui/k8s/api", "", "Cookie", cookies))
						if fresh := strings.Count(cookiesOf(w), "="); w.Code != test.want || w.Code == 200 && fresh != 2*test.asked {
							t.Errorf("%d %s, %d cookies", w.Code, w.Body, fresh)
						}
					})
				}
				all.Wait()
				if w := answer(d, request("GET", "/ui/session", "", "Cookie", cookies)); w.Code != test.want || w.Code == 401 && cookiesOf(w) != "" {
					t.Errorf("who am I: %d %s", w.Code, w.Body)
				}
				watch.Wait()
				if i.renewed != test.asked || open != test.open {
					t.Errorf("renewed %d times, want %d; watched for %s, want %s", i.renewed, test.asked, open, test.open)
				}
			})
		})
	}
}

func TestSignOutAtTheIssuer(t *testing.T) {
	for name, test := range map[string]struct {
		offers  map[string]any
		headers []string
		code    int
		to      string
	}{
		"it has a place for it": {map[string]any{"end_session_endpoint": "https://issuer.example/end?realm=a"}, nil, 303, "https://issuer.example/end?"},
		"it has none":           {nil, nil, 303, "/ui/"},
		"a link from elsewhere": {nil, []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate"}, 403, ""},
	} {
		i := newIssuer()
		i.offers, i.refresh = test.offers, "again"
		d := i.dashboard(t, &OIDC{})
		cookies := i.signIn(t, d)
		if w := answer(d, request("GET", "/ui/session", "", "Cookie", cookies)); !strings.Contains(w.Body.String(), `"oidc":true`) {
			t.Errorf("%s: told %s", name, w.Body)
		}
		w := answer(d, request("GET", oidcEnd, "", append([]string{"Cookie", cookies}, test.headers...)...))
		to := w.Header().Get("Location")
		if w.Code != test.code || !strings.HasPrefix(to, test.to) {
			t.Errorf("%s: %d, sent to %s", name, w.Code, to)
		}
		if u, err := url.Parse(to); err != nil || len(test.offers) > 0 && (u.Query().Get("realm") != "a" || !strings.HasPrefix(u.Query().Get("id_token_hint"), "e30.") ||
			u.Query().Get("client_id") != "dashboard" || u.Query().Get("post_logout_redirect_uri") != "https://cluster.example/ui/") {
			t.Errorf("%s: sent to %s (%v)", name, to, err)
		}
		over := map[int]int{303: 401, 403: 200}[w.Code]
		if who := answer(d, request("GET", "/ui/session", "", "Cookie", cookies)); who.Code != over || cookiesOf(w) != "" {
			t.Errorf("%s: then %d, cookies %s", name, who.Code, cookiesOf(w))
		}
	}
}
