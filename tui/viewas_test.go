package tui

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// The cluster is seen as another user once the API server agrees, and as oneself after
// that: also by whose kubeconfig already stands for another.
func TestClusterIsSeenAsAnother(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, groups := r.Header.Get("Impersonate-User"), strings.Join(r.Header.Values("Impersonate-Group"), ",")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case user == "root":
			w.WriteHeader(http.StatusForbidden)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonForbidden, Code: 403, Message: "ada may not be root"})
		case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"` + user + `=` + groups + `"}}}`))
		case r.URL.Path == "/api":
			_, _ = w.Write([]byte(`{"kind":"APIVersions","versions":["v1"]}`))
		case r.URL.Path == "/apis":
			_, _ = w.Write([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`))
		case r.URL.Path == "/api/v1":
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","kind":"Pod","namespaced":true,"verbs":["list"]}]}`))
		default:
			http.NotFound(w, r)
		}
	}))
	s := newShow(t, Config{}, 130, 30, func(a *app) {
		a.config.REST = &rest.Config{Host: server.URL, Impersonate: rest.ImpersonationConfig{UserName: "ada"}}
	})
	t.Cleanup(server.Close)
	s.await("db-0")
	s.keys(":as root", tcell.KeyEnter)
	s.await("as root: ada may not be root", "db-0")
	s.left = true
	s.keys(":pods shop", tcell.KeyEnter, ":as jane devs ops", tcell.KeyEnter)
	s.await("Seen as   jane=devs,ops", "pods(shop)")
	s.keys(":as g:auditors", tcell.KeyEnter)
	s.await("Seen as   member-of:auditors=auditors")
	s.keys(":as", tcell.KeyEnter)
	s.await("ada=", "pods(shop)")
	s.awaitGone("Seen as")
}
