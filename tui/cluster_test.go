package tui

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"orrery.dev/api"
)

// foreign is an API server that answers what only ours knows with a code, and
// who answers instead.
func foreign(t *testing.T, code int, instead http.Handler) *cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if code == http.StatusOK {
			_ = json.NewEncoder(w).Encode(api.Namespaces{Names: []string{"the server's"}})
			return
		}
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Message: fmt.Sprintf("as told: %d", code)})
	}))
	t.Cleanup(server.Close)
	c, err := newCluster(&rest.Config{Host: server.URL}, instead)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What a server does not know, or does not tell this user, is asked in this
// process; a server in trouble is not covered up.
func TestOwnAnswersOfServersThatHaveNone(t *testing.T) {
	inside := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == api.JourneyPath {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status"}, Code: http.StatusNotFound, Message: "nobody here keeps that"})
			return
		}
		_ = json.NewEncoder(w).Encode(api.Namespaces{Names: []string{fmt.Sprintf("%s %s%v%s", r.Method, r.URL.Path, r.URL.Query()["name"], body)}})
	})
	for _, c := range []struct {
		code         int
		instead      http.Handler
		asked, posed string // what is answered, to a short question and to a long one
	}{
		{http.StatusOK, inside, "the server's", "the server's"},
		{http.StatusNotFound, inside, "GET /orrery/v1/why[a b]", `POST /orrery/v1/blast[]{"objects":null}`},
		{http.StatusForbidden, inside, "GET /orrery/v1/why[a b]", `POST /orrery/v1/blast[]{"objects":null}`},
		{http.StatusUnauthorized, inside, "as told: 401", "as told: 401"},
		{http.StatusInternalServerError, inside, "as told: 500", "as told: 500"},
		{http.StatusNotFound, nil, "as told: 404", "as told: 404"},
	} {
		k := foreign(t, c.code, c.instead)
		for want, ask := range map[string]func(*api.Namespaces) error{
			c.asked: func(a *api.Namespaces) error {
				return k.ask(t.Context(), api.WhyPath, url.Values{"name": {"a", "b"}}, a)
			},
			c.posed: func(a *api.Namespaces) error { return k.consult(t.Context(), api.BlastPath, api.BlastOf{}, a) },
		} {
			var answer api.Namespaces
			err := ask(&answer)
			if got := fmt.Sprint(answer.Names, err); !strings.Contains(got, want) {
				t.Errorf("%d: it says %s, want %s", c.code, got, want)
			}
		}
	}
	var none api.Journey
	if err := foreign(t, http.StatusNotFound, inside).ask(t.Context(), api.JourneyPath, nil, &none); err == nil || !strings.Contains(err.Error(), "nobody here keeps that") {
		t.Errorf("what neither knows is told as %v", err)
	}
}

// T14: nobody holds the console's requests back; at client-go's own five a
// second, these would take a minute.
func TestT14RequestsAreNotHeldBack(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PodList","apiVersion":"v1","items":[]}`))
	}))
	t.Cleanup(server.Close)
	c, err := newCluster(&rest.Config{Host: server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var list corev1.PodList
	began := time.Now()
	for range 100 {
		_, err1 := c.kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		_, err2 := c.of(aPod, "").List(t.Context(), metav1.ListOptions{})
		err3 := c.ask(t.Context(), api.WhyPath, nil, &list)
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
	}
	if took := time.Since(began); took > 45*time.Second {
		t.Errorf("300 requests took %s", took)
	}
}
