package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gorilla/websocket"
)

// echoAPI answers with what it was asked, and upgrades websockets.
func echoAPI(w http.ResponseWriter, r *http.Request) {
	if websocket.IsWebSocketUpgrade(r) {
		u := websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}}
		c, err := u.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.WriteMessage(websocket.TextMessage, []byte(r.Header.Get("Authorization")+" "+r.URL.Path))
		return
	}
	peers := 0
	if r.TLS != nil {
		peers = len(r.TLS.PeerCertificates)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"auth": r.Header.Get("Authorization"), "cookie": r.Header.Get("Cookie"),
		"as":  append(r.Header["Impersonate-User"], r.Header["Impersonate-Group"]...),
		"uri": r.RequestURI, "path": r.URL.Path, "method": r.Method, "peers": peers,
	})
}

func verify(_ context.Context, token string) (User, error) {
	if token != "good" {
		return User{}, errors.New("unknown token")
	}
	return User{Name: "jane", Groups: []string{"admins"}}, nil
}

var files = fstest.MapFS{
	"index.html":           {Data: []byte(`<meta name="nonce" content="__NONCE__">`)},
	"assets/app-abc.js":    {Data: []byte("script")},
	"assets/app-abc.js.br": {Data: []byte("brotli")},
	"assets/app-abc.js.gz": {Data: []byte("gzip")},
}

func dashboard(t *testing.T) *Dashboard {
	t.Helper()
	d, err := New(Config{API: http.HandlerFunc(echoAPI), Verify: verify, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func request(method, path, body string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, "https://cluster.example"+path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if method != "GET" {
		r.Header.Set("Origin", "https://cluster.example")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

func answer(d *Dashboard, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w
}

func signIn(t *testing.T, d *Dashboard) string {
	t.Helper()
	w := answer(d, request("POST", "/ui/session", `{"token":"good"}`))
	cookies := w.Result().Cookies()
	if w.Code != 200 || len(cookies) != 1 {
		t.Fatalf("sign in: %d %s", w.Code, w.Body)
	}
	return cookies[0].Name + "=" + cookies[0].Value
}

func TestSignIn(t *testing.T) {
	d := dashboard(t)
	w := answer(d, request("POST", "/ui/session", `{"token":" good\n"}`, "Accept-Language", "zh-HK,zh;q=0.9"))
	c := w.Result().Cookies()[0]
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.MaxAge != 12*3600 {
		t.Errorf("cookie %+v", c)
	}
	if strings.Contains(c.Value, "good") || !strings.Contains(w.Body.String(), `"user":"jane"`) || !strings.Contains(w.Body.String(), `"language":"zh-TW"`) {
		t.Errorf("cookie %s, body %s", c.Value, w.Body)
	}
	who := answer(d, request("GET", "/ui/session", "", "Cookie", c.Name+"="+c.Value))
	if who.Code != 200 || !strings.Contains(who.Body.String(), `"admins"`) {
		t.Errorf("who am I: %d %s", who.Code, who.Body)
	}
	out := answer(d, request("DELETE", "/ui/session", ""))
	if out.Code != 204 || out.Result().Cookies()[0].MaxAge >= 0 {
		t.Errorf("sign out: %d %v", out.Code, out.Result().Cookies())
	}
}

func TestSignInRefused(t *testing.T) {
	d := dashboard(t)
	for body, code := range map[string]int{
		`{"token":"bad"}`: 401, `{"token":""}`: 400, `token=good`: 400, `{"token":"` + strings.Repeat("x", 3000) + `"}`: 400,
	} {
		w := answer(d, request("POST", "/ui/session", body))
		if w.Code != code || len(w.Result().Cookies()) != 0 || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
			t.Errorf("%.20s: %d %s", body, w.Code, w.Body)
		}
	}
}

func TestSessionsEndAndAreRenewed(t *testing.T) {
	d := dashboard(t)
	cookie := signIn(t, d)
	start := time.Now()
	at := func(after time.Duration, cookie string) *httptest.ResponseRecorder {
		d.now = func() time.Time { return start.Add(after) }
		return answer(d, request("GET", "/ui/k8s/api", "", "Cookie", cookie))
	}
	if w := at(30*time.Minute, cookie); w.Code != 200 || len(w.Result().Cookies()) != 0 {
		t.Errorf("young: %d, %d cookies", w.Code, len(w.Result().Cookies()))
	}
	w := at(2*time.Hour, cookie)
	if w.Code != 200 || len(w.Result().Cookies()) != 1 {
		t.Fatalf("used for a while: %d, %d cookies", w.Code, len(w.Result().Cookies()))
	}
	fresh := w.Result().Cookies()[0]
	if w := at(13*time.Hour, cookie); w.Code != 401 {
		t.Errorf("expired: %d", w.Code)
	}
	if w := at(13*time.Hour, fresh.Name+"="+fresh.Value); w.Code != 200 {
		t.Errorf("renewed: %d", w.Code)
	}
	if w := at(8*24*time.Hour, fresh.Name+"="+fresh.Value); w.Code != 401 {
		t.Errorf("after a week: %d", w.Code)
	}
}

// A session is never longer than its token.
func TestSessionsEndWithTheirToken(t *testing.T) {
	start := time.Now()
	token := "e30." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, start.Add(3*time.Hour).Unix())) + ".x"
	d, err := New(Config{API: http.HandlerFunc(echoAPI), Files: files, Verify: func(context.Context, string) (User, error) { return User{Name: "jane"}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	w := answer(d, request("POST", "/ui/session", `{"token":"`+token+`"}`))
	c := w.Result().Cookies()[0]
	if want := start.Add(3 * time.Hour).UTC().Format("2006-01-02T15:04"); c.MaxAge > 3*3600 || !strings.Contains(w.Body.String(), `"ends":"`+want) && !strings.Contains(w.Body.String(), `"ends":"`+start.Add(3*time.Hour).Format("2006-01-02T15:04")) {
		t.Errorf("cookie for %d s, told %s", c.MaxAge, w.Body)
	}
	for after, want := range map[time.Duration]int{2 * time.Hour: 200, 3*time.Hour + time.Second: 401} {
		d.now = func() time.Time { return start.Add(after) }
		if w := answer(d, request("GET", "/ui/k8s/api", "", "Cookie", c.Name+"="+c.Value)); w.Code != want || len(w.Result().Cookies()) != 0 {
			t.Errorf("after %s: %d, %v", after, w.Code, w.Result().Cookies())
		}
	}
}

func TestForgedSessions(t *testing.T) {
	d := dashboard(t)
	cookie := signIn(t, d)
	end := "A"
	if strings.HasSuffix(cookie, "A") {
		end = "Q"
	}
	foreign := signIn(t, dashboard(t))
	for _, forged := range []string{cookie[:len(cookie)-9] + end + cookie[len(cookie)-8:], foreign, cookieName + "=", cookieName + "=%%", ""} {
		if w := answer(d, request("GET", "/ui/k8s/api", "", "Cookie", forged)); w.Code != 401 && forged != cookie {
			t.Errorf("%.40s: %d", forged, w.Code)
		}
	}
}

func TestSharedKeyMakesSessionsGoodEverywhere(t *testing.T) {
	c := Config{API: http.HandlerFunc(echoAPI), Verify: verify, Files: files, Key: make([]byte, 32)}
	one, _ := New(c)
	two, _ := New(c)
	if w := answer(two, request("GET", "/ui/session", "", "Cookie", signIn(t, one))); w.Code != 200 {
		t.Errorf("the other server answers %d", w.Code)
	}
	c.Key = []byte("short")
	if _, err := New(c); err == nil {
		t.Error("a short key was taken")
	}
}

func TestForwardSpeaksForTheUser(t *testing.T) {
	d := dashboard(t)
	r := request("GET", "/ui/k8s/api/v1/namespaces/a%2Fb/pods?limit=5", "", "Cookie", signIn(t, d), "Authorization", "Bearer other")
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	var got map[string]any
	if err := json.Unmarshal(answer(d, r).Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"auth": "Bearer good", "cookie": "", "uri": "/api/v1/namespaces/a%2Fb/pods?limit=5",
		"path": "/api/v1/namespaces/a/b/pods", "method": "GET", "peers": 0.0}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s: %v, want %v", k, got[k], v)
		}
	}
}

func TestForwardMakesHeadersOfWhomThePageIsSeenAs(t *testing.T) {
	d := dashboard(t)
	r := request("GET", "/ui/k8s/api/v1/pods?impersonate-user=jane&limit=5&impersonate-group=a%2Cb&impersonate-group=c", "", "Cookie", signIn(t, d))
	got := answer(d, r).Body.String()
	for _, want := range []string{`"as":["jane","a,b","c"]`, `"uri":"/api/v1/pods?limit=5"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestWebsocketsPassThrough(t *testing.T) {
	d := dashboard(t)
	s := httptest.NewServer(d)
	defer s.Close()
	dialer := websocket.Dialer{Subprotocols: []string{"v5.channel.k8s.io"}}
	url := "ws" + strings.TrimPrefix(s.URL, "http") + "/ui/k8s/api/v1/exec"
	c, _, err := dialer.Dial(url, http.Header{"Cookie": {signIn(t, d)}, "Origin": {s.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, message, err := c.ReadMessage()
	if err != nil || string(message) != "Bearer good /api/v1/exec" || c.Subprotocol() != "v5.channel.k8s.io" {
		t.Errorf("%q, %v, subprotocol %q", message, err, c.Subprotocol())
	}
	if _, res, err := dialer.Dial(url, http.Header{"Cookie": {signIn(t, d)}, "Origin": {"https://evil.example"}}); err == nil || res.StatusCode != 403 {
		t.Errorf("websocket from elsewhere: %v", err)
	}
}

func TestPage(t *testing.T) {
	d := dashboard(t)
	for _, path := range []string{"/ui/", "/ui/map", "/ui/o/pods/default/x"} {
		w := answer(d, request("GET", path, ""))
		csp := w.Header().Get("Content-Security-Policy")
		nonce := strings.TrimSuffix(strings.TrimPrefix(w.Body.String(), `<meta name="nonce" content="`), `">`)
		if w.Code != 200 || !strings.Contains(csp, "default-src 'self'") || !strings.Contains(csp, "'nonce-"+nonce+"'") || len(nonce) < 20 {
			t.Errorf("%s: %d, CSP %q, nonce %q", path, w.Code, csp, nonce)
		}
		if w.Header().Get("X-Frame-Options") != "DENY" || w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Referrer-Policy") == "" {
			t.Errorf("%s: headers %v", path, w.Header())
		}
	}
	for accept, want := range map[string]string{"gzip, br": "brotli", "gzip": "gzip", "": "script"} {
		w := answer(d, request("GET", "/ui/assets/app-abc.js", "", "Accept-Encoding", accept))
		if w.Body.String() != want || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/javascript") {
			t.Errorf("%q: %s %v", accept, w.Body, w.Header())
		}
	}
	if w := answer(d, request("GET", "/ui/assets/gone.js", "")); w.Code != 404 {
		t.Errorf("asset of another build: %d", w.Code)
	}
}

func TestBuiltWithoutThePage(t *testing.T) {
	d, err := New(Config{API: http.NotFoundHandler(), Verify: verify, Files: fstest.MapFS{".gitkeep": {}}})
	if err != nil {
		t.Fatal(err)
	}
	w := answer(d, request("GET", "/ui/", ""))
	if text, _ := io.ReadAll(w.Body); w.Code != 503 || !strings.Contains(string(text), "built without the dashboard: run make build") {
		t.Errorf("%d %s", w.Code, text)
	}
}
