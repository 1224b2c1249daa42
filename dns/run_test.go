package dns

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// apiServer lists one Service, and sends a second one to who watches.
func apiServer(t *testing.T) *rest.Config {
	t.Helper()
	svc := func(name, ip string) corev1.Service {
		return corev1.Service{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "6"},
			Spec:       corev1.ServiceSpec{ClusterIP: ip},
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		services := strings.HasSuffix(r.URL.Path, "/services")
		switch {
		case r.URL.Query().Has("sendInitialEvents"):
			http.Error(w, "no streaming lists here", http.StatusBadRequest)
		case r.URL.Query().Get("watch") != "":
			if services {
				second := svc("second", "10.96.0.2")
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": &second})
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			items := []corev1.Service{}
			if services {
				items = append(items, svc("first", "10.96.0.1"))
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]string{"resourceVersion": "5"}, "items": items})
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

// freeAddr is an address on which both UDP and TCP are free.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := Config{
		REST: apiServer(t), Addr: freeAddr(t), Upstreams: []string{}, Log: slog.New(slog.DiscardHandler),
		HealthAddr: freeAddr(t), ReadyAddr: freeAddr(t), MetricsAddr: freeAddr(t),
	}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c) }()

	eventually(t, "ready", func() bool {
		r, err := http.Get("http://" + c.ReadyAddr + "/ready")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
	for name, ip := range map[string]string{"first": "10.96.0.1", "second": "10.96.0.2"} {
		name += ".default.svc.cluster.local."
		eventually(t, name, func() bool {
			client := dns.Client{Timeout: time.Second}
			reply, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), c.Addr)
			return err == nil && story(reply) == "NOERROR ["+name+" A "+ip+"]"
		})
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// eventually asks again until it is so, for 10 seconds at most.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !so() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within a minute", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
