package tui

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gdamore/tcell/v2"
	"k8s.io/client-go/rest"
)

// TestT35ContextsAreChangedWhateverTheyAre changes to a cluster that never answers,
// to one that is not there, and fails to change to one whose credentials are bad.
func TestT35ContextsAreChangedWhateverTheyAre(t *testing.T) {
	hang := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	gone := httptest.NewServer(nil)
	gone.Close()
	hosts := map[string]string{"here": "https://cluster.example:6443", "silent": silent.URL, "gone": gone.URL}
	s := newShow(t, Config{
		Context: "here",
		Contexts: func() ([]Context, error) {
			return []Context{{Name: "here", User: "admin"}, {Name: "silent", Server: silent.URL}, {Name: "gone"}, {Name: "bad"}}, nil
		},
		Connect: func(name string) (Connection, error) {
			if name == "bad" {
				return Connection{}, errors.New("no such certificate")
			}
			return Connection{Context: name, REST: &rest.Config{Host: hosts[name]}}, nil
		},
	}, 110, 30)
	t.Cleanup(func() { close(hang); silent.Close() })
	s.await("db-0", "here  cluster.example:6443")
	s.keys(":", "ct", tcell.KeyRight, tcell.KeyEnter)
	s.await("contexts[4]", "○ gone", "● here", silent.URL)
	s.keys(":", "ctx bad", tcell.KeyEnter)
	s.await("context bad: no such certificate", "contexts[4]")
	s.keys("/", "name:silent", tcell.KeyEnter)
	s.await("contexts[1/4]")
	s.left = true
	s.keys(tcell.KeyEnter)
	s.await("loading…", "connecting", "silent  127.0.0.1")
	s.keys(":", "nodes", tcell.KeyEnter) // the console goes on
	s.await("nodes[…]")
	s.keys(":", "deploy shop @gon", tcell.KeyTab, tcell.KeyEnter)
	s.await("gone  127.0.0.1", "deployments(shop)[…]")
	s.keys(":", tcell.KeyUp)
	s.await(":deploy shop @gone") // the history went along
}
