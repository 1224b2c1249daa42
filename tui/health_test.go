package tui

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"orrery.dev/api"
)

// Who may not see the control plane is told so; it is not that the server has none.
func TestPlaneTellsWhyItIsNotShown(t *testing.T) {
	for code, want := range map[int]string{http.StatusForbidden: "you may not get " + api.MapPath, http.StatusNotFound: "does not tell"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == api.MapPath {
				w.WriteHeader(code)
			}
		}))
		c, err := newCluster(&rest.Config{Host: server.URL}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := c.plane(t.Context()); err != nil || !strings.Contains(m.EtcdError, want) {
			t.Errorf("%d: %q, %v", code, m.EtcdError, err)
		}
		server.Close()
	}
}
