package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/utils/ptr"
)

const testIssuerURL = "https://kubernetes.default.svc.cluster.local"

func testIssuer(t *testing.T, store *fakeStore, key crypto.Signer) *Issuer {
	t.Helper()
	i, err := NewIssuer(IssuerConfig{URL: testIssuerURL, Key: key, Reader: store, JWKSURL: "https://10.0.0.1:6443/openid/v1/jwks"})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func rsaKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func meta(namespace, name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}
}

func TestTokenLifecycle(t *testing.T) {
	store := newFakeStore()
	account := &corev1.ServiceAccount{ObjectMeta: meta("ns", "app", "sa-uid")}
	pod := &corev1.Pod{ObjectMeta: meta("ns", "pod", "pod-uid"), Spec: corev1.PodSpec{ServiceAccountName: "app", NodeName: "n1"}}
	store.With(core("serviceaccounts"), account)
	store.With(core("pods"), pod)
	store.With(core("nodes"), &corev1.Node{ObjectMeta: meta("", "n1", "node-uid")})
	i := testIssuer(t, store, rsaKey(t))

	ref := &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: "pod", UID: "pod-uid"}
	answer, err := i.Issue(t.Context(), account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](3607), BoundObjectRef: ref}})
	if err != nil {
		t.Fatal(err)
	}
	var c claims
	token, _, err := jwt.NewParser().ParseUnverified(answer.Status.Token, &c)
	if err != nil {
		t.Fatal(err)
	}
	if token.Header["alg"] != "RS256" || token.Header["kid"] != i.keys[0].id {
		t.Errorf("header %v", token.Header)
	}
	if c.Kubernetes.WarnAfter == nil || time.Until(c.ExpiresAt.Time) < 300*24*time.Hour {
		t.Error("a projected token for the API server is not extended")
	}
	if until := time.Until(answer.Status.ExpirationTimestamp.Time); until > time.Hour+10*time.Second {
		t.Errorf("status promises %s", until)
	}

	got, ok, err := i.AuthenticateToken(t.Context(), answer.Status.Token)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	extra := got.User.GetExtra()
	if got.User.GetName() != "system:serviceaccount:ns:app" || got.User.GetUID() != "sa-uid" ||
		extra["authentication.kubernetes.io/pod-name"][0] != "pod" || extra["authentication.kubernetes.io/node-uid"][0] != "node-uid" ||
		!strings.HasPrefix(extra["authentication.kubernetes.io/credential-id"][0], "JTI=") {
		t.Errorf("user %+v", got.User)
	}
	other := authenticator.WithAudiences(t.Context(), authenticator.Audiences{"vault"})
	if _, ok, err := i.AuthenticateToken(other, answer.Status.Token); ok || err == nil {
		t.Error("good for an audience that it is not meant for")
	}
	store.With(core("pods"), &corev1.Pod{ObjectMeta: meta("ns", "pod", "another-uid")})
	if _, ok, err := i.AuthenticateToken(t.Context(), answer.Status.Token); ok || err == nil {
		t.Error("good after its pod was replaced")
	}
}

func TestIssueRefuses(t *testing.T) {
	store := newFakeStore()
	account := &corev1.ServiceAccount{ObjectMeta: meta("ns", "app", "sa-uid")}
	store.With(core("pods"), &corev1.Pod{ObjectMeta: meta("ns", "pod", "pod-uid"), Spec: corev1.PodSpec{ServiceAccountName: "other"}})
	store.With(core("secrets"), &corev1.Secret{ObjectMeta: meta("ns", "s", "secret-uid")})
	i := testIssuer(t, store, rsaKey(t))
	ref := func(kind, name, uid string) *authenticationv1.BoundObjectReference {
		return &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: name, UID: types.UID(uid)}
	}
	for _, c := range []struct {
		name string
		spec authenticationv1.TokenRequestSpec
		is   func(error) bool
	}{
		{"too short", authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](599)}, apierrors.IsInvalid},
		{"too long", authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](1<<32 + 1)}, apierrors.IsInvalid},
		{"no such pod", authenticationv1.TokenRequestSpec{BoundObjectRef: ref("Pod", "gone", "")}, apierrors.IsNotFound},
		{"pod of another account", authenticationv1.TokenRequestSpec{BoundObjectRef: ref("Pod", "pod", "")}, apierrors.IsBadRequest},
		{"replaced secret", authenticationv1.TokenRequestSpec{BoundObjectRef: ref("Secret", "s", "old")}, apierrors.IsConflict},
		{"unknown kind", authenticationv1.TokenRequestSpec{BoundObjectRef: ref("ConfigMap", "c", "")}, apierrors.IsBadRequest},
	} {
		if _, err := i.Issue(t.Context(), account, &authenticationv1.TokenRequest{Spec: c.spec}); !c.is(err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTokensOfOthers(t *testing.T) {
	store := newFakeStore()
	account := &corev1.ServiceAccount{ObjectMeta: meta("ns", "app", "sa-uid")}
	store.With(core("serviceaccounts"), account)
	i := testIssuer(t, store, rsaKey(t))
	forger := testIssuer(t, store, rsaKey(t))
	forged, err := forger.Issue(t.Context(), account, &authenticationv1.TokenRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := i.AuthenticateToken(t.Context(), forged.Status.Token); ok || err == nil || err.Error() != "invalid signature, no keys found" {
		t.Error("a token of another key is good")
	}
	if _, ok, err := i.AuthenticateToken(t.Context(), "not a token"); ok || err != nil {
		t.Errorf("nonsense: %v %v, want no opinion", ok, err)
	}
	expired, err := i.sign(claims{
		RegisteredClaims: jwt.RegisteredClaims{Issuer: testIssuerURL, Audience: []string{testIssuerURL}, ExpiresAt: jwt.NewNumericDate(time.Now().Add(-time.Minute)), Subject: "system:serviceaccount:ns:app"},
		Kubernetes:       boundTo{Namespace: "ns", ServiceAccount: objectRef{"app", "sa-uid"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := i.AuthenticateToken(t.Context(), expired); err == nil || err.Error() != "service account token has expired" {
		t.Errorf("expired: %v", err)
	}
}

func TestLegacyToken(t *testing.T) {
	store := newFakeStore()
	account := &corev1.ServiceAccount{ObjectMeta: meta("ns", "app", "sa-uid")}
	store.With(core("serviceaccounts"), account)
	i := testIssuer(t, store, rsaKey(t))
	token, err := i.LegacyToken(account, "app-token")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := i.AuthenticateToken(t.Context(), token); ok {
		t.Error("good without its secret")
	}
	store.With(core("secrets"), &corev1.Secret{ObjectMeta: meta("ns", "app-token", "u"), Data: map[string][]byte{"token": []byte(token)}})
	got, ok, err := i.AuthenticateToken(t.Context(), token)
	if !ok || err != nil || got.User.GetName() != "system:serviceaccount:ns:app" {
		t.Errorf("%v %v %v", got, ok, err)
	}
	i.config.Writer = store
	if _, ok, err := i.AuthenticateToken(t.Context(), token); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if got, _ := store.Get(t.Context(), core("secrets"), "ns", "app-token"); got.(*corev1.Secret).Labels[lastUsedLabel] != time.Now().UTC().Format(time.DateOnly) {
		t.Errorf("the use was not noted: %v", got)
	}
	marked, _ := store.Get(t.Context(), core("secrets"), "ns", "app-token")
	marked.(*corev1.Secret).Labels[invalidSinceLabel] = "2026-01-01"
	if _, ok, err := i.AuthenticateToken(t.Context(), token); ok || err == nil || !strings.Contains(err.Error(), "has been marked invalid") {
		t.Errorf("a token marked as invalid: %v %v", ok, err)
	}
	for _, c := range []struct {
		uses prometheus.Counter
		want float64
	}{{i.uses.legacy, 2}, {i.uses.manual, 2}, {i.uses.auto, 0}, {i.uses.autoEnded, 1}, {i.uses.valid, 0}} {
		var told dto.Metric
		if err := c.uses.Write(&told); err != nil || told.Counter.GetValue() != c.want {
			t.Errorf("%v: %v, want %v", c.uses.Desc(), &told, c.want)
		}
	}
}

func TestDocuments(t *testing.T) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i, err := NewIssuer(IssuerConfig{URL: testIssuerURL, Key: rsaKey(t), Others: []crypto.PublicKey{ec.Public()}, JWKSURL: "https://x/openid/v1/jwks", Reader: newFakeStore()})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := i.KeySet()
	if err != nil {
		t.Fatal(err)
	}
	var set struct{ Keys []webKey }
	if err := json.Unmarshal(raw, &set); err != nil || len(set.Keys) != 2 {
		t.Fatalf("%s: %v", raw, err)
	}
	if set.Keys[0].E != "AQAB" || set.Keys[1].Curve != "P-256" || len(set.Keys[1].X) != 43 {
		t.Errorf("%s", raw)
	}
	raw, err = i.Discovery()
	if err != nil || !strings.Contains(string(raw), `"id_token_signing_alg_values_supported":["RS256","ES256"]`) {
		t.Errorf("%s: %v", raw, err)
	}
}
