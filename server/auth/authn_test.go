package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newTestCA(t *testing.T) *testCA {
	ca := &testCA{}
	ca.cert, ca.key = testCert(t, nil, "ca")
	return ca
}

func testCert(t *testing.T, by *testCA, name string, groups ...string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.cert, by.key
	} else {
		template.IsCA, template.BasicConstraintsValid, template.ExtKeyUsage = true, true, nil
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (ca *testCA) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

func TestAuthenticateRequest(t *testing.T) {
	clients, proxies := newTestCA(t), newTestCA(t)
	store := newFakeStore()
	store.With(core("secrets"), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
		Type:       "bootstrap.kubernetes.io/token",
		Data: map[string][]byte{
			"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups": []byte("system:bootstrappers:nodes"), "expiration": []byte(time.Now().Add(time.Hour).Format(time.RFC3339)),
		},
	})
	a := NewAuthenticator(Config{
		ClientCAs: clients.pool, ProxyCAs: proxies.pool, ProxyNames: []string{"front-proxy-client"},
		Tokens: []authenticator.Token{BootstrapTokens{store}},
	})
	cert := func(by *testCA, name string, groups ...string) func(*http.Request) {
		c, _ := testCert(t, by, name, groups...)
		return func(r *http.Request) { r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}} }
	}
	header := func(kv ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(kv); i += 2 {
				r.Header.Add(kv[i], kv[i+1])
			}
		}
	}
	good := "abcdef.0123456789abcdef"
	for _, c := range []struct {
		name   string
		with   []func(*http.Request)
		user   string // "": refused
		groups []string
	}{
		{"nothing", nil, "system:anonymous", []string{"system:unauthenticated"}},
		{"certificate", []func(*http.Request){cert(clients, "ann", "devs")}, "ann", []string{"devs", "system:authenticated"}},
		{"certificate of another CA", []func(*http.Request){cert(proxies, "ann")}, "", nil},
		{"bearer", []func(*http.Request){header("Authorization", "Bearer "+good)}, "system:bootstrap:abcdef", []string{"system:bootstrappers", "system:bootstrappers:nodes", "system:authenticated"}},
		{"wrong bearer", []func(*http.Request){header("Authorization", "Bearer abcdef.0000000000000000")}, "", nil},
		{"basic is nothing", []func(*http.Request){header("Authorization", "Basic YTpi")}, "system:anonymous", []string{"system:unauthenticated"}},
		{"websocket protocol", []func(*http.Request){header("Upgrade", "websocket", "Sec-WebSocket-Protocol", "v5.channel.k8s.io, "+bearerProtocolStart+base64.RawURLEncoding.EncodeToString([]byte(good)))}, "system:bootstrap:abcdef", []string{"system:bootstrappers", "system:bootstrappers:nodes", "system:authenticated"}},
		{"websocket protocol alone", []func(*http.Request){header("Upgrade", "websocket", "Sec-WebSocket-Protocol", bearerProtocolStart+base64.RawURLEncoding.EncodeToString([]byte(good)))}, "", nil},
		{"front proxy", []func(*http.Request){cert(proxies, "front-proxy-client"), header("X-Remote-User", "bob", "X-Remote-Group", "ops", "X-Remote-Extra-Scopes", "s")}, "bob", []string{"ops", "system:authenticated"}},
		{"front proxy of another name", []func(*http.Request){cert(proxies, "stranger"), header("X-Remote-User", "bob")}, "", nil},
		{"proxy headers without the proxy's certificate", []func(*http.Request){cert(clients, "ann"), header("X-Remote-User", "system:masters")}, "ann", []string{"system:authenticated"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := httptest.NewRequest("GET", "/", nil)
			for _, with := range c.with {
				with(req)
			}
			got, ok, err := a.AuthenticateRequest(req)
			if c.user == "" {
				if ok || err == nil {
					t.Fatalf("got %+v, want a refusal", got)
				}
				return
			}
			if err != nil || !ok {
				t.Fatalf("refused: %v", err)
			}
			if got.User.GetName() != c.user || !slices.Equal(got.User.GetGroups(), c.groups) {
				t.Errorf("got %s %v, want %s %v", got.User.GetName(), got.User.GetGroups(), c.user, c.groups)
			}
			if req.Header.Get("X-Remote-User") == "bob" || req.Header.Get("Authorization") == "Bearer "+good {
				t.Error("the credential is still in the request")
			}
		})
	}
}

func TestTokenCacheForgets(t *testing.T) {
	calls := 0
	method := authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
		calls++
		return &authenticator.Response{}, true, nil
	})
	c := newTokenCache([]authenticator.Token{method}, tokenTTL, 0)
	for range 3 {
		if _, ok, err := c.AuthenticateToken(t.Context(), "x"); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if calls != 1 {
		t.Errorf("asked %d times, want once", calls)
	}
	for k, v := range c.known {
		v.until = time.Now().Add(-time.Second)
		c.known[k] = v
	}
	if _, _, err := c.AuthenticateToken(t.Context(), "x"); err != nil || calls != 2 {
		t.Errorf("asked %d times after the time was up, want twice (%v)", calls, err)
	}
}
