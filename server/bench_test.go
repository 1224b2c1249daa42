package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/storage"
	"orrery.dev/trace"
)

// nowhere is a ResponseWriter that counts.
type nowhere struct {
	header http.Header
	bytes  int
}

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) WriteHeader(int)             {}
func (n *nowhere) Write(p []byte) (int, error) { n.bytes += len(p); return len(p), nil }

func BenchmarkListPods(b *testing.B) {
	c := start(b)
	pods := c.store.Collection(schema.GroupResource{Resource: "pods"})
	for i := range 1000 {
		p := pod(fmt.Sprintf("p-%d", i))
		m, _ := meta.Accessor(p)
		beginMetadata(m)
		if _, err := pods.Create(context.Background(), p, storage.WriteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for _, accept := range []string{typeJSON, typeProtobuf, "application/json;as=Table;v=v1;g=meta.k8s.io"} {
		b.Run(accept, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("GET", "/api/v1/pods?resourceVersion=0", nil)
				r.Header.Set("Authorization", "Bearer admin")
				r.Header.Set("Accept", accept)
				w := &nowhere{header: http.Header{}}
				c.server.Handler().ServeHTTP(w, r)
				b.SetBytes(int64(w.bytes))
			}
		})
	}
}

func BenchmarkWrites(b *testing.B) { benchmarkWrites(b, start(b)) }

// BenchmarkTracedWrites is the same with spans, as an API server of a cluster has
// them.
func BenchmarkTracedWrites(b *testing.B) { benchmarkWrites(b, start(b, traced)) }

// traced has a server put its spans into a window.
func traced(c *Config) {
	c.Trace = trace.New("kube-apiserver", trace.NewReceiver(trace.NewWindow(), nil, nil), nil)
}

func benchmarkWrites(b *testing.B, c *cluster) {
	n := 0
	do := func(method, path, contentType, body string) (version string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer admin")
		r.Header.Set("Content-Type", contentType)
		r.Header.Set("User-Agent", "bench/1")
		w := httptest.NewRecorder()
		c.server.Handler().ServeHTTP(w, r)
		if w.Code >= 300 {
			text, _ := io.ReadAll(w.Body)
			b.Fatalf("%d %s", w.Code, text)
		}
		_, rest, _ := strings.Cut(w.Body.String(), `"resourceVersion":"`)
		version, _, _ = strings.Cut(rest, `"`)
		return version
	}
	b.Run("create pod", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n++
			do("POST", "/api/v1/namespaces/default/pods", typeJSON, fmt.Sprintf(`{"metadata":{"name":"p-%d","labels":{"app":"x"}},"spec":{"containers":[{"name":"a","image":"b","env":[{"name":"A","value":"b"}],"resources":{"requests":{"cpu":"10m"}}}]}}`, n))
		}
	})
	b.Run("renew lease", func(b *testing.B) {
		b.ReportAllocs()
		n++
		name := fmt.Sprintf("n-%d", n)
		version := do("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", typeJSON, leaseOf(name, "", 1))
		for b.Loop() {
			n++
			version = do("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/"+name, typeJSON, leaseOf(name, version, n))
		}
	})
	b.Run("patch pod label", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n++
			do("PATCH", "/api/v1/namespaces/default/pods/p-1", "application/strategic-merge-patch+json", fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, n))
		}
	})
	b.Run("patch pod status", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			n++
			do("PATCH", "/api/v1/namespaces/default/pods/p-1/status", "application/strategic-merge-patch+json", fmt.Sprintf(`{"status":{"message":"%d","conditions":[{"type":"Ready","status":"True"}]}}`, n))
		}
	})
}

func leaseOf(name, version string, renewed int) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default","resourceVersion":%q},"spec":{"holderIdentity":%q,"leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:00.%06dZ"}}`, name, version, name, renewed%1e6)
}
