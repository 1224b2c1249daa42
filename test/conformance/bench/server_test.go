package bench

import (
	"crypto/tls"
	_ "embed"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"orrery.dev/test/conformance/lab"
)

// server is one of the two, with what the client has open to it.
type server struct {
	*lab.APIServer
	host    string
	tls     *tls.Config
	clients []*conn
	begun   func()       // called when the measured part of a measure begins; may be nil
	created atomic.Int64 // pods made by create, to name the next
	touched atomic.Int64 // patches, to make each another
}

// mostClients is how many clients measures use at most, watchers aside.
const mostClients = 64

func startServer(t *testing.T, pki *lab.PKI, orrery, name string, argv ...string) *server {
	t.Helper()
	s := &server{APIServer: lab.StartAPIServer(t, pki, orrery, name, argv...)}
	at, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	s.host, s.tls = at.Host, pki.TLS(t, "admin")
	if s.clients, err = s.connect(mostClients); err != nil {
		t.Fatal(err)
	}
	return s
}

// connect opens connections, and uses each once so that its handshake is done.
func (s *server) connect(n int) ([]*conn, error) {
	conns := make([]*conn, n)
	for i := range conns {
		var err error
		if conns[i], err = dial(s.host, s.tls); err != nil {
			return nil, err
		}
		if err := conns[i].try(); err != nil {
			return nil, err
		}
	}
	return conns, nil
}

// reconnect replaces the connections that the server has closed, as it does to
// idle ones.
func (s *server) reconnect() error {
	for i, c := range s.clients {
		if c.try() == nil {
			continue
		}
		c.close()
		fresh, err := s.connect(1)
		if err != nil {
			return err
		}
		s.clients[i] = fresh[0]
	}
	return nil
}

// The objects that are measured with.
const (
	namespace = "bench"
	listPath  = "/api/v1/pods"
	podsPath  = "/api/v1/namespaces/" + namespace + "/pods"
	nodes     = 200
)

//go:embed pod.json
var podTemplate string

//go:embed status.json
var statusTemplate string

func podName(n int64) string { return "storefront-6f8b7c9d5d-" + strconv.FormatInt(n, 36) }

func createPod(n int64) request {
	body := strings.NewReplacer("$NAME", podName(n), "$NODE", fmt.Sprint("node-", n%nodes), "$TIER", fmt.Sprint("t", n%7)).Replace(podTemplate)
	return request{method: http.MethodPost, path: podsPath, contentType: "application/json", body: []byte(body)}
}

// patchStatus is what a node agent tells of a pod; change makes it another each
// time.
func patchStatus(n, change int64) request {
	body := strings.NewReplacer("$N", fmt.Sprint(change), "$ADDRESS", fmt.Sprint(n%250+1)).Replace(statusTemplate)
	return request{method: http.MethodPatch, path: podsPath + "/" + podName(n) + "/status", contentType: "application/strategic-merge-patch+json", body: []byte(body)}
}

func getPod(n int64) request {
	return request{method: http.MethodGet, path: podsPath + "/" + podName(n)}
}

// furnish makes the namespace and what a pod needs to be let in.
func (s *server) furnish(t *testing.T) {
	t.Helper()
	for _, o := range [][2]string{{"/api/v1/namespaces", namespace}, {"/api/v1/namespaces/" + namespace + "/serviceaccounts", "default"}} {
		r := request{method: http.MethodPost, path: o[0], contentType: "application/json", body: []byte(`{"metadata":{"name":"` + o[1] + `"}}`)}
		if _, err := s.clients[0].must(r); err != nil {
			t.Fatal(err)
		}
	}
}

// fill makes all pods, each with the status of one that runs.
func (s *server) fill() error {
	return s.share(16, allPods, func(c *conn, n int64) error {
		if err := c.insist(createPod(n)); err != nil {
			return err
		}
		return c.insist(patchStatus(n, n))
	})
}

// share has clients do a job that is made of parts.
func (s *server) share(clients int, parts int64, do func(c *conn, n int64) error) error {
	var next atomic.Int64
	errs := make([]error, clients)
	var working sync.WaitGroup
	for i := range clients {
		working.Go(func() {
			for n := next.Add(1) - 1; n < parts && errs[i] == nil; n = next.Add(1) - 1 {
				errs[i] = do(s.clients[i], n)
			}
		})
	}
	working.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
