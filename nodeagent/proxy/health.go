package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// health knows whether the rules are up to date. A load balancer sends a node
// no traffic while it is not healthy.
type health struct {
	synced  atomic.Int64 // unix nanoseconds of the last sync that worked
	waiting atomic.Int64 // since when a change has waited; 0: none does
	leaving atomic.Bool  // the node is about to be removed
}

// patience is how long a change may wait before the proxy counts as ill.
const patience = 2 * time.Minute

func (h *health) changed() { h.waiting.CompareAndSwap(0, time.Now().UnixNano()) }

func (h *health) done() {
	h.synced.Store(time.Now().UnixNano())
	h.waiting.Store(0)
}

func (h *health) alive() bool {
	since := h.waiting.Load()
	return h.synced.Load() != 0 && (since == 0 || time.Since(time.Unix(0, since)) < patience)
}

// ServeHTTP is /healthz, with upstream's body. /livez (eligible false) leaves out
// whether the node is to go.
func (h *health) handler(eligible bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		here := !eligible || !h.leaving.Load()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !h.alive() || !here {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		body := map[string]any{"lastUpdated": time.Unix(0, h.synced.Load()).UTC().String(), "currentTime": time.Now().UTC().String()}
		if eligible {
			body["nodeEligible"] = here
		}
		_ = json.NewEncoder(w).Encode(body)
	}
}

// servicePorts serves the health check node ports: one small server for each
// Service that keeps its outside traffic local.
type servicePorts struct {
	health *health
	log    *slog.Logger

	mu      sync.Mutex // protects running and the counts in it
	running map[uint16]*servicePort
}

type servicePort struct {
	HealthPort
	server *http.Server
	ended  chan struct{}
}

func newServicePorts(h *health, log *slog.Logger) *servicePorts {
	return &servicePorts{health: h, log: log, running: map[uint16]*servicePort{}}
}

// set makes the running servers those that are wanted. A port that is taken is
// tried again at the next set.
func (s *servicePorts) set(ctx context.Context, wanted []HealthPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := map[uint16]bool{}
	for _, w := range wanted {
		keep[w.Port] = true
		if p := s.running[w.Port]; p != nil {
			p.HealthPort = w
			continue
		}
		if err := s.start(ctx, w); err != nil {
			s.log.Warn("health check node port not served", "service", w.Namespace+"/"+w.Service, "err", err)
		}
	}
	for port, p := range s.running {
		if !keep[port] {
			delete(s.running, port)
			_ = p.server.Close()
		}
	}
}

// start is called with mu held.
func (s *servicePorts) start(ctx context.Context, w HealthPort) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(int(w.Port))))
	if err != nil {
		return err
	}
	p := &servicePort{HealthPort: w, ended: make(chan struct{})}
	p.server = &http.Server{Handler: s.answer(w.Port), ReadHeaderTimeout: 10 * time.Second}
	s.running[w.Port] = p
	go func() {
		defer close(p.ended)
		_ = p.server.Serve(listener) // ends at Close
	}()
	return nil
}

// stop ends all servers and waits for them.
func (s *servicePorts) stop() {
	s.mu.Lock()
	running := s.running
	s.running = map[uint16]*servicePort{}
	s.mu.Unlock()
	for _, p := range running {
		_ = p.server.Close()
		<-p.ended
	}
}

func (s *servicePorts) answer(port uint16) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		p := s.running[port]
		var now HealthPort
		if p != nil {
			now = p.HealthPort
		}
		s.mu.Unlock()
		healthy := s.health.alive()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(now.LocalEndpoints))
		if now.LocalEndpoints == 0 || !healthy {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"service":             map[string]string{"namespace": now.Namespace, "name": now.Service},
			"localEndpoints":      now.LocalEndpoints,
			"serviceProxyHealthy": healthy,
		})
	}
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, addr string, h http.Handler) error {
	s := &http.Server{Addr: addr, Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.ListenAndServe(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("proxy: %w", err)
	}
	return nil
}
