package web

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// What another site can make a browser send, with the user's cookie if it were sent.
func TestForgedRequests(t *testing.T) {
	const evil, sister = "https://evil.example", "https://x.cluster.example"
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	for name, test := range map[string]struct {
		method, path, body string
		headers            []string
		want               int
	}{
		"our page":                          {"POST", "/ui/k8s/api", "{}", nil, 200},
		"our page, reading":                 {"GET", "/ui/k8s/api", "", []string{"Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "cors"}, 200},
		"typed address of the API":          {"GET", "/ui/k8s/api", "", []string{"Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"}, 200},
		"other origin":                      {"POST", "/ui/k8s/api", "{}", []string{"Origin", evil}, 403},
		"sister domain":                     {"POST", "/ui/k8s/api", "{}", []string{"Origin", sister}, 403},
		"our name without TLS":              {"POST", "/ui/k8s/api", "{}", []string{"Origin", "http://cluster.example"}, 403},
		"our name, another port":            {"POST", "/ui/k8s/api", "{}", []string{"Origin", "https://cluster.example:8443"}, 403},
		"sandboxed frame":                   {"POST", "/ui/k8s/api", "{}", []string{"Origin", "null"}, 403},
		"no origin":                         {"DELETE", "/ui/k8s/api", "", []string{"Origin", ""}, 403},
		"no origin, from a sister":          {"DELETE", "/ui/k8s/api", "", []string{"Origin", "", "Sec-Fetch-Site", "same-site"}, 403},
		"no origin, from us":                {"DELETE", "/ui/k8s/api", "", []string{"Origin", "", "Sec-Fetch-Site", "same-origin"}, 200},
		"form":                              {"POST", "/ui/k8s/api", "a=b", form, 403},
		"form with files":                   {"POST", "/ui/k8s/api", "a=b", []string{"Content-Type", "multipart/form-data; boundary=x"}, 403},
		"JSON as a form's text":             {"POST", "/ui/k8s/api", "{}", []string{"Content-Type", "text/plain"}, 403},
		"no content type":                   {"POST", "/ui/k8s/api", "{}", []string{"Content-Type", ""}, 403},
		"link into the API":                 {"GET", "/ui/k8s/api", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 403},
		"picture of the API":                {"GET", "/ui/k8s/api", "", []string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		"script of who one is":              {"GET", "/ui/session", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		"link to the page":                  {"GET", "/ui/map", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200},
		"page as a script":                  {"GET", "/ui/assets/app-abc.js", "", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		"signing in":                        {"POST", "/ui/session", `{"token":"good"}`, []string{"Origin", evil}, 403},
		"signing in by a form":              {"POST", "/ui/session", `{"token":"good"}`, []string{"Content-Type", "text/plain"}, 403},
		"signing out":                       {"DELETE", "/ui/session", "", []string{"Origin", evil}, 403},
		"websocket":                         {"GET", "/ui/k8s/api", "", []string{"Upgrade", "websocket", "Connection", "Upgrade", "Origin", evil}, 403},
		"websocket of a sister":             {"GET", "/ui/k8s/api", "", []string{"Upgrade", "websocket", "Connection", "Upgrade", "Origin", sister}, 403},
		"websocket of nobody":               {"GET", "/ui/k8s/api", "", []string{"Upgrade", "websocket", "Connection", "Upgrade"}, 403},
		"SPDY, which no page opens":         {"POST", "/ui/k8s/api", "", []string{"Upgrade", "SPDY/3.1", "Connection", "Upgrade", "Origin", evil}, 403},
		"pod's page":                        {"GET", "/ui/k8s/api/v1/namespaces/a/pods/b/proxy/", "", nil, 403},
		"pod's page, with the slash hidden": {"GET", "/ui/k8s/api/v1/namespaces/a/pods/b%2Fproxy/x", "", nil, 403},
		"pod's page, in disguise":           {"GET", "/ui/k8s/api/v1/namespaces/a/pods/b/%70roxy/", "", nil, 403},
		"pod's page, with a detour":         {"GET", "/ui/k8s/api/v1/namespaces/a/pods/x/../b/proxy/", "", nil, 307},
		"pod's page, the old way":           {"GET", "/ui/k8s/api/v1/proxy/namespaces/a/pods/b/", "", nil, 403},
		"service's page":                    {"GET", "/ui/k8s/api/v1/namespaces/a/services/b:80/proxy", "", nil, 403},
		"node's page":                       {"GET", "/ui/k8s/api/v1/nodes/n/proxy/logs/", "", nil, 403},
		"a pod named proxy":                 {"GET", "/ui/k8s/api/v1/namespaces/proxy/pods/proxy", "", nil, 200},
		"the page through the API":          {"GET", "/ui/k8s/ui/k8s/api", "", nil, 404},
		"patch":                             {"PATCH", "/ui/k8s/api/v1/x", "{}", []string{"Content-Type", "application/merge-patch+json"}, 200},
	} {
		d := dashboard(t)
		r := request(test.method, test.path, test.body, append([]string{"Cookie", signIn(t, d)}, test.headers...)...)
		for _, name := range []string{"Origin", "Content-Type"} {
			if r.Header.Get(name) == "" {
				r.Header.Del(name)
			}
		}
		w := answer(d, r)
		if w.Code != test.want || w.Code == 403 && len(w.Result().Cookies()) > 0 {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, test.want)
		}
	}
}

// hostile answers as a pod, an extension or a log might.
func hostile(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html")
	h.Set("Content-Security-Policy", "default-src *")
	h.Set("X-Content-Type-Options", "")
	h.Set("Access-Control-Allow-Origin", "*")
	h.Add("Set-Cookie", cookieName+"=mine; Path=/; Secure")
	if r.URL.Query().Has("late") {
		w.(http.Flusher).Flush()
	}
	_, _ = w.Write([]byte("<script>fetch('/ui/session')</script>"))
}

// An answer of the API shown as a page is a page without an origin, that may do
// nothing.
func TestAnswersAreNoPages(t *testing.T) {
	d, err := New(Config{API: http.HandlerFunc(hostile), Verify: verify, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	cookie := signIn(t, d)
	for _, path := range []string{"/ui/k8s/api/v1/namespaces/a/pods/b/log", "/ui/k8s/apis/x.example/v1/page?late"} {
		h := answer(d, request("GET", path, "", "Cookie", cookie)).Header()
		if csp := h.Values("Content-Security-Policy"); len(csp) != 1 || !strings.Contains(csp[0], "default-src 'none'") || !strings.Contains(csp[0], "sandbox") || strings.Contains(csp[0], "allow-") {
			t.Errorf("%s: CSP %q", path, csp)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("X-Frame-Options") != "DENY" || h.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s: %v", path, h)
		}
		if h.Get("Set-Cookie") != "" || h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: the answer's own %v", path, h)
		}
	}
	// The session's own cookie is renewed beside it.
	start := time.Now()
	d.now = func() time.Time { return start.Add(2 * time.Hour) }
	if w := answer(d, request("GET", "/ui/k8s/api", "", "Cookie", cookie)); len(w.Result().Cookies()) != 1 || w.Result().Cookies()[0].Value == "mine" {
		t.Errorf("cookies %v", w.Result().Cookies())
	}
}

func TestPagesAreNotFramed(t *testing.T) {
	d := dashboard(t)
	for _, path := range []string{"/ui/", "/ui/map", "/ui/session", "/ui/ways", "/ui/assets/app-abc.js", "/ui/k8s/api"} {
		h := answer(d, request("GET", path, "")).Header()
		if h.Get("X-Frame-Options") != "DENY" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" || h.Get("Cross-Origin-Opener-Policy") != "same-origin" {
			t.Errorf("%s: %v", path, h)
		}
	}
	csp := answer(d, request("GET", "/ui/", "")).Header().Get("Content-Security-Policy")
	for _, rule := range []string{"default-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'", "object-src 'none'"} {
		if !strings.Contains(csp, rule) {
			t.Errorf("CSP %q lacks %s", csp, rule)
		}
	}
	if strings.Contains(csp, "unsafe") {
		t.Errorf("CSP %q", csp)
	}
}

// Whoever plants a cookie, or has seen the one before, is left outside.
func TestSessionFixation(t *testing.T) {
	d := dashboard(t)
	before := signIn(t, d)
	w := answer(d, request("POST", "/ui/session", `{"token":"good"}`, "Cookie", before))
	after := w.Result().Cookies()[0]
	if after.Name+"="+after.Value == before {
		t.Error("the session before goes on")
	}
	for cookie, want := range map[string]int{before: 401, after.Name + "=" + after.Value: 200} {
		if w := answer(d, request("GET", "/ui/session", "", "Cookie", cookie)); w.Code != want {
			t.Errorf("%.40s: %d, want %d", cookie, w.Code, want)
		}
	}
	if code, err := d.seal.close(forCode, session{ID: "x", Token: "good", Expires: time.Now().Add(time.Hour), Ends: time.Now().Add(time.Hour)}); err != nil ||
		answer(d, request("GET", "/ui/session", "", "Cookie", cookieName+"="+code)).Code != 401 {
		t.Errorf("a code serves as a session (%v)", err)
	}
}

// beside is a dashboard on the user's own machine.
func beside(t *testing.T) *Dashboard {
	t.Helper()
	d, err := New(Config{API: http.HandlerFunc(echoAPI), Files: files, Loopback: "127.0.0.1:8800",
		As: func(ctx context.Context, _ User) context.Context { return ctx }})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func locally(method, path, body string, headers ...string) *http.Request {
	r := request(method, path, body, headers...)
	r.Host, r.TLS = "127.0.0.1:8800", nil
	if !slices.Contains(headers, "Origin") && method != "GET" {
		r.Header.Set("Origin", "http://127.0.0.1:8800")
	}
	return r
}

// A name of the attacker's that comes to lead to this machine is none of ours.
func TestRebinding(t *testing.T) {
	d := beside(t)
	for host, want := range map[string]int{
		"127.0.0.1:8800": 200, "localhost:8800": 200, "evil.example:8800": 403, "127.0.0.1": 403, "127.0.0.1:8801": 403,
		"localhost.evil.example:8800": 403, "[::1]:8800": 403, "": 403,
	} {
		r := locally("GET", "/ui/", "")
		r.Host = host
		if w := answer(d, r); w.Code != want {
			t.Errorf("%q: %d, want %d", host, w.Code, want)
		}
	}
	r := locally("POST", "/ui/session", `{"code":"x"}`, "Origin", "http://evil.example:8800")
	r.Host = "evil.example:8800"
	if w := answer(d, r); w.Code != 403 {
		t.Errorf("consistent lies: %d", w.Code)
	}
}

func TestLinksSignInOnce(t *testing.T) {
	d := beside(t)
	link, err := d.Link(User{Name: "jane", Groups: []string{"admins"}}, time.Time{})
	path, code, ok := strings.Cut(link, "#code=")
	if err != nil || !ok || path != Prefix || strings.Contains(code, "jane") {
		t.Fatalf("link %s (%v)", link, err)
	}
	use := func(code string) *httptest.ResponseRecorder {
		return answer(d, locally("POST", "/ui/session", `{"code":"`+code+`"}`))
	}
	w := use(code)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"user":"jane"`) || !strings.Contains(w.Body.String(), `"foreign":true`) {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	c := w.Result().Cookies()[0]
	if c.Name != "orrery-session-8800" || !c.HttpOnly || c.Secure || c.SameSite != http.SameSiteStrictMode {
		t.Errorf("cookie %+v", c)
	}
	got := answer(d, locally("GET", "/ui/k8s/api/v1/pods", "", "Cookie", c.Name+"="+c.Value, "Authorization", "Bearer other"))
	if got.Code != 200 || !strings.Contains(got.Body.String(), `"auth":""`) || !strings.Contains(got.Body.String(), `"cookie":""`) {
		t.Errorf("forwarded %d %s", got.Code, got.Body)
	}
	if who := answer(d, locally("GET", "/ui/session", "", "Cookie", c.Name+"="+c.Value)); !strings.Contains(who.Body.String(), `"admins"`) {
		t.Errorf("who am I: %s", who.Body)
	}
	late, _ := d.Link(User{Name: "jane"}, time.Time{})
	other, _ := beside(t).Link(User{Name: "jane"}, time.Time{})
	now := time.Now()
	for name, code := range map[string]string{"again": code, "too late": strings.TrimPrefix(late, Prefix+"#code="), "of another": strings.TrimPrefix(other, Prefix+"#code="), "made up": "AAAA", "a cookie": c.Value} {
		d.now = func() time.Time {
			return now.Add(map[bool]time.Duration{true: codeLife + time.Second}[name == "too late"])
		}
		if w := use(code); w.Code != 401 || len(w.Result().Cookies()) != 0 {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
	if w := answer(d, locally("POST", "/ui/session", `{"token":"good"}`)); w.Code != 403 {
		t.Errorf("a token: %d", w.Code)
	}
}

// waitingAPI upgrades, and holds on for as long as it may.
func waitingAPI(w http.ResponseWriter, r *http.Request) {
	c, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.WriteMessage(websocket.TextMessage, []byte("hello"))
	_, _, _ = c.ReadMessage() // that it does not heed its context changes nothing
}

// What was opened in a session's name ends with it.
func TestWebsocketsEndWithTheirSession(t *testing.T) {
	for name, test := range map[string]struct {
		life time.Duration
		end  func(d *Dashboard, cookie string)
	}{
		"signed out": {time.Hour, func(d *Dashboard, cookie string) { answer(d, request("DELETE", "/ui/session", "", "Cookie", cookie)) }},
		"signed in anew": {time.Hour, func(d *Dashboard, cookie string) {
			answer(d, request("POST", "/ui/session", `{"token":"good"}`, "Cookie", cookie))
		}},
		"over": {time.Second, func(*Dashboard, string) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, err := New(Config{API: http.HandlerFunc(waitingAPI), Verify: verify, Files: files})
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewServer(d)
			defer s.Close()
			value, err := d.seal.close(forSession, session{ID: name, Token: "good", Expires: time.Now().Add(time.Hour), Ends: time.Now().Add(test.life)})
			if err != nil {
				t.Fatal(err)
			}
			cookie := cookieName + "=" + value
			c, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(s.URL, "http")+"/ui/k8s/api", http.Header{"Cookie": {cookie}, "Origin": {s.URL}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			if _, hello, err := c.ReadMessage(); string(hello) != "hello" {
				t.Fatalf("%q, %v", hello, err)
			}
			test.end(d, cookie)
			if _, _, err := c.ReadMessage(); err == nil || strings.Contains(err.Error(), "timeout") {
				t.Errorf("still open: %v", err)
			}
			if w := answer(d, request("GET", "/ui/session", "", "Cookie", cookie)); w.Code != 401 {
				t.Errorf("the cookie is still good: %d", w.Code)
			}
		})
	}
}
