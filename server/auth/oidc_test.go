package auth

import (
	"context"
	"crypto"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/apiserver/pkg/authentication/user"
)

// fakeIssuer is an OpenID Connect issuer on loopback.
type fakeIssuer struct {
	*httptest.Server
	key crypto.Signer

	mu     sync.Mutex     // protects the fields below
	claims map[string]any // what /claims answers, signed
	asked  []string
}

func newFakeIssuer(t testing.TB) *fakeIssuer {
	i := &fakeIssuer{key: rsaKey(t)}
	i.Server = httptest.NewTLSServer(i)
	t.Cleanup(i.Close)
	return i
}

func (i *fakeIssuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.asked = append(i.asked, r.URL.Path)
	i.mu.Unlock()
	switch r.URL.Path {
	case "/.well-known/openid-configuration", "/elsewhere":
		json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"}})
	case "/keys":
		key, err := newVerificationKey(i.key.Public())
		if err == nil {
			raw, _ := keySet([]verificationKey{key})
			w.Write(raw)
		}
	case "/claims":
		if r.Header.Get("Authorization") != "Bearer let-me" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, i.sign(i.claims))
	default:
		http.NotFound(w, r)
	}
}

// sign makes a token that is good for an hour, of the audience "app", with claims.
func (i *fakeIssuer) sign(extra map[string]any) string {
	c := jwt.MapClaims{"iss": i.URL, "aud": "app", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(c, extra)
	key, _ := newVerificationKey(i.key.Public())
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, c)
	token.Header["kid"] = key.id
	text, err := token.SignedString(i.key)
	if err != nil {
		panic(err)
	}
	return text
}

func (i *fakeIssuer) ca() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}))
}

// configuration is a file with this issuer and more lines of its entry.
func (i *fakeIssuer) configuration(more string) string {
	indent := func(text string, by int) string {
		return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", by))
	}
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer:\n    url: " + i.URL +
		"\n    audiences: [app, other]\n    audienceMatchPolicy: MatchAny\n    certificateAuthority: |\n      " + indent(i.ca(), 6) + "\n  " + indent(more, 2) + "\n"
}

func startJWTs(t testing.TB, c JWTConfig) *JWTs {
	t.Helper()
	c.Log = slog.New(slog.DiscardHandler)
	j, err := NewJWTs(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { j.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	if err := j.now.Load().await(t.Context()); err != nil {
		t.Fatal(err)
	}
	return j
}

// whose tells whose a token is: the user, or the error, or that nobody knows it.
func whose(t testing.TB, j *JWTs, token string) string {
	t.Helper()
	response, ok, err := j.AuthenticateToken(t.Context(), token)
	switch {
	case err != nil:
		return err.Error()
	case !ok:
		return "unknown"
	}
	who := response.User
	text := fmt.Sprintf("%s %s", who.GetName(), who.GetGroups())
	if who.GetUID() != "" {
		text += " " + who.GetUID()
	}
	for _, key := range []string{user.CredentialIDKey, "example.com/tenant"} {
		if values := who.GetExtra()[key]; values != nil {
			text += fmt.Sprintf(" %s=%s", key, values)
		}
	}
	return text
}

func TestOIDCFlags(t *testing.T) {
	i := newFakeIssuer(t)
	for _, c := range []struct {
		name   string
		flags  OIDC
		claims map[string]any
		want   string
	}{
		{"default prefix", OIDC{UsernameClaim: "sub"}, nil, i.URL + "#ann []"},
		{"no prefix", OIDC{UsernameClaim: "sub", UsernamePrefix: "-"}, map[string]any{"jti": "7"}, "ann [] " + user.CredentialIDKey + "=[JTI=7]"},
		{"own prefix", OIDC{UsernameClaim: "sub", UsernamePrefix: "oidc:"}, nil, "oidc:ann []"},
		{"email", OIDC{UsernameClaim: "email"}, map[string]any{"email": "a@x.org"}, "a@x.org []"},
		{"email that is not verified", OIDC{UsernameClaim: "email"}, map[string]any{"email": "a@x.org", "email_verified": false}, "oidc: email not verified"},
		{"no such claim", OIDC{UsernameClaim: "nick"}, nil, `oidc: parse username claims "nick": claim not present`},
		{"groups", OIDC{UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "g", GroupsPrefix: "p:"}, map[string]any{"g": []string{"a", "b"}}, "ann [p:a p:b]"},
		{"one group", OIDC{UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "g"}, map[string]any{"g": "a"}, "ann [a]"},
		{"no groups", OIDC{UsernameClaim: "sub", UsernamePrefix: "-", GroupsClaim: "g"}, nil, "ann []"},
		{"required claim", OIDC{UsernameClaim: "sub", UsernamePrefix: "-", RequiredClaims: map[string]string{"hd": "x"}}, map[string]any{"hd": "x"}, "ann []"},
		{"required claim of another value", OIDC{UsernameClaim: "sub", RequiredClaims: map[string]string{"hd": "x"}}, map[string]any{"hd": "y"}, "oidc: required claim hd value does not match. Got = y, want = x"},
		{"required claim missing", OIDC{UsernameClaim: "sub", RequiredClaims: map[string]string{"hd": "x"}}, nil, "oidc: required claim hd not present in ID token"},
		{"for somebody else", OIDC{UsernameClaim: "sub"}, map[string]any{"aud": "other"}, `expected audience in ["app"] got ["other"]`},
		{"expired", OIDC{UsernameClaim: "sub"}, map[string]any{"exp": 1}, "oidc: verify token: oidc: token is expired"},
		{"of another issuer", OIDC{UsernameClaim: "sub"}, map[string]any{"iss": "https://other"}, "unknown"},
	} {
		c.flags.Issuer, c.flags.ClientID, c.flags.CA = i.URL, "app", []byte(i.ca())
		config, err := c.flags.Configuration(nil)
		if err != nil {
			t.Fatal(err)
		}
		j := startJWTs(t, JWTConfig{Configuration: config, Algorithms: []string{"RS256"}})
		if got := whose(t, j, i.sign(c.claims)); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	if _, err := (OIDC{Issuer: i.URL, ClientID: "app", UsernameClaim: "sub"}).Configuration([]string{i.URL}); err == nil {
		t.Error("the issuer of service account tokens can be configured")
	}
	forged := i.sign(nil)
	config, _ := (OIDC{Issuer: i.URL, ClientID: "app", CA: []byte(i.ca()), UsernameClaim: "sub"}).Configuration(nil)
	if got := whose(t, startJWTs(t, JWTConfig{Configuration: config}), forged[:len(forged)-4]+"AAAA"); !strings.Contains(got, "failed to verify signature") {
		t.Errorf("a forged token: %s", got)
	}
}

const expressions = `
claimMappings:
  username: {expression: "'corp:' + claims.sub"}
  groups: {expression: "claims.roles.split(',')"}
  uid: {expression: "claims.id"}
  extra:
  - {key: example.com/tenant, valueExpression: "claims.nested.tenant__dot__name"}
claimValidationRules:
- {expression: "claims.exp - claims.iat <= 86400", message: no more than a day}
userValidationRules:
- {expression: "!user.groups.exists(g, g.startsWith('system:'))", message: reserved}
`

func TestOIDCExpressions(t *testing.T) {
	i := newFakeIssuer(t)
	config, err := ParseAuthentication([]byte(i.configuration(expressions)), nil)
	if err != nil {
		t.Fatal(err)
	}
	j := startJWTs(t, JWTConfig{Configuration: config})
	now := time.Now().Unix()
	good := map[string]any{"aud": []string{"other", "x"}, "roles": "dev,,ops", "id": "u1", "iat": now, "nested": map[string]any{"tenant.name": "acme"}}
	for want, change := range map[string]map[string]any{
		"corp:ann [dev ops] u1 example.com/tenant=[acme]": {},
		"error evaluating claim validation expression: validation expression 'claims.exp - claims.iat <= 86400' failed: no more than a day": {"iat": 1},
		"error evaluating user info validation rule: validation expression":                                                                 {"roles": "system:masters"},
		"uid claim expression must return a string":                                                                                         {"id": 5},
		"no such key: roles": {"roles": nil},
	} {
		claims := maps.Clone(good)
		maps.Copy(claims, change)
		if change["roles"] == nil && len(change) > 0 && strings.HasPrefix(want, "no such key") {
			delete(claims, "roles")
		}
		if got := whose(t, j, i.sign(claims)); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	for text, want := range map[string]string{
		"claimMappings: {username: {expression: 'claims.'}}":              "compilation failed",
		"claimMappings: {username: {claim: sub}}":                         "prefix is required",
		"claimMappings: {username: {expression: 'claims.sub'}, users: x}": "unknown field",
	} {
		if _, err := ParseAuthentication([]byte(i.configuration(text)), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestDistributedClaims: groups may be had from elsewhere, signed.
func TestDistributedClaims(t *testing.T) {
	i := newFakeIssuer(t)
	i.claims = map[string]any{"g": []string{"far"}}
	config, err := ParseAuthentication([]byte(i.configuration("claimMappings: {username: {claim: sub, prefix: ''}, groups: {claim: g, prefix: ''}}")), nil)
	if err != nil {
		t.Fatal(err)
	}
	j := startJWTs(t, JWTConfig{Configuration: config})
	token := func(secret string) string {
		return i.sign(map[string]any{
			"_claim_names":   map[string]string{"g": "there"},
			"_claim_sources": map[string]any{"there": map[string]string{"endpoint": i.URL + "/claims", "access_token": secret}},
		})
	}
	if got := whose(t, j, token("let-me")); got != "ann [far]" {
		t.Error(got)
	}
	if got := whose(t, j, token("")); !strings.Contains(got, "error while getting distributed claim JWT: 401") {
		t.Error(got)
	}
}

// TestDiscoveryElsewhere: the issuer's configuration may be at another URL than its
// name says.
func TestDiscoveryElsewhere(t *testing.T) {
	i := newFakeIssuer(t)
	text := strings.Replace(i.configuration("claimMappings: {username: {claim: sub, prefix: ''}}"), "    audiences:", "    discoveryURL: "+i.URL+"/elsewhere\n    audiences:", 1)
	config, err := ParseAuthentication([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := whose(t, startJWTs(t, JWTConfig{Configuration: config}), i.sign(nil)); got != "ann []" {
		t.Error(got)
	}
	if i.asked[0] != "/elsewhere" {
		t.Errorf("asked %v", i.asked)
	}
}

// TestJWTReload: another configuration counts once its issuers are found.
func TestJWTReload(t *testing.T) {
	first, second := newFakeIssuer(t), newFakeIssuer(t)
	const mapping = "claimMappings: {username: {claim: sub, prefix: ''}}"
	path := filepath.Join(t.TempDir(), "authentication.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw := []byte(first.configuration(mapping))
	write(string(raw))
	config, err := ParseAuthentication(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	j := startJWTs(t, JWTConfig{Configuration: config, File: path, Loaded: raw})
	write("nonsense")
	if got := whose(t, j, first.sign(nil)); got != "ann []" {
		t.Errorf("after a bad change: %s", got)
	}
	write(second.configuration(mapping))
	for end := time.Now().Add(4 * lookInterval); whose(t, j, second.sign(nil)) != "ann []"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the second issuer's token: %s", whose(t, j, second.sign(nil)))
		}
	}
	if got := whose(t, j, first.sign(nil)); got != "unknown" {
		t.Errorf("the first issuer's token: %s", got)
	}
	if _, err := j.parse([]byte(first.configuration(mapping) + "anonymous: {enabled: false}\n")); err == nil {
		t.Error("who may be anonymous can change")
	}
}
