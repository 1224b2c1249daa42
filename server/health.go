package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
)

// health is the named checks behind /healthz, /livez and /readyz.
type health struct {
	s *Server

	mu   sync.Mutex       // protects done
	done map[string]error // outcome of each bootstrap step; absent: not run yet
}

func newHealth(s *Server) *health { return &health{s: s, done: map[string]error{}} }

// finished records how a bootstrap step went. A step that was done once stays
// done: later trouble is no reason to restart the server.
func (h *health) finished(step string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if old, ran := h.done[step]; !ran || old != nil {
		h.done[step] = err
	}
}

func (h *health) step(name string) HealthCheck {
	return HealthCheck{Name: "poststarthook/" + name, Run: func(context.Context) error {
		h.mu.Lock()
		defer h.mu.Unlock()
		err, ran := h.done[name]
		if !ran {
			return errors.New("not finished")
		}
		return err
	}}
}

// checks lists a group's checks in the order in which they are reported.
func (h *health) checks(group string) []HealthCheck {
	ok := func(context.Context) error { return nil }
	all := []HealthCheck{
		{Name: "ping", Run: ok},
		{Name: "log", Run: ok},
		{Name: "etcd", Run: h.etcd},
		{Name: "etcd-readiness", Ready: true, Run: h.etcd},
		{Name: "informer-sync", Ready: true, Run: h.cache},
		h.step(stepDefinitions),
	}
	for _, step := range h.s.bootstrapSteps() {
		all = append(all, h.step(step.Name))
	}
	all = append(all, h.s.Health...)
	all = append(all, HealthCheck{Name: "shutdown", Ready: true, Run: h.shutdown})
	var kept []HealthCheck
	for _, check := range all {
		if (!check.Ready || group == "readyz") && !(check.NotLive && group == "livez") {
			kept = append(kept, check)
		}
	}
	return kept
}

// What must have been read before the server knows all its paths.
const (
	stepDefinitions = "crd-informer-synced"
	stepAPIServices = "apiservice-discovery-controller"
)

// knowsPaths reports whether a path that is not there will not be there in a
// moment either.
func (h *health) knowsPaths() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, definitions := h.done[stepDefinitions]
	_, services := h.done[stepAPIServices]
	return definitions && services
}

func (h *health) etcd(ctx context.Context) error { return h.s.Store.Ready(ctx) }

func (h *health) cache(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return h.s.Store.WaitLoaded(ctx)
}

func (h *health) shutdown(context.Context) error {
	if h.s.draining() {
		return errors.New("process is shutting down")
	}
	return nil
}

// healthGroup runs all checks of a group, but those that ?exclude names.
func (s *Server) healthGroup(c *gin.Context) {
	group := strings.Trim(c.Request.URL.Path, "/")
	excluded := map[string]bool{}
	for _, name := range c.Request.URL.Query()["exclude"] {
		excluded[name] = true
	}
	var report strings.Builder
	failed := 0
	for _, check := range s.health.checks(group) {
		if excluded[check.Name] {
			delete(excluded, check.Name)
			fmt.Fprintf(&report, "[+]%s excluded: ok\n", check.Name)
			continue
		}
		if err := check.Run(c.Request.Context()); err != nil {
			failed++
			s.Log.Debug("health check failed", "check", check.Name, "err", err)
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", check.Name)
			continue
		}
		fmt.Fprintf(&report, "[+]%s ok\n", check.Name)
	}
	for name := range excluded {
		fmt.Fprintf(&report, "warn: some health checks cannot be excluded: no matches for %q\n", name)
	}
	header := c.Writer.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	_, verbose := c.Request.URL.Query()["verbose"]
	switch {
	case failed > 0:
		c.Writer.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(c.Writer, "%s%s check failed\n", report.String(), group)
	case verbose:
		fmt.Fprintf(c.Writer, "%s%s check passed\n", report.String(), group)
	default:
		fmt.Fprint(c.Writer, "ok")
	}
}

// healthCheck runs one check.
func (s *Server) healthCheck(c *gin.Context) {
	group, name, _ := strings.Cut(strings.TrimPrefix(c.Request.URL.Path, "/"), "/")
	name = strings.TrimSuffix(name, "/")
	if name == "" {
		s.healthGroup(c)
		return
	}
	for _, check := range s.health.checks(group) {
		if check.Name != name {
			continue
		}
		c.Writer.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if err := check.Run(c.Request.Context()); err != nil {
			c.Writer.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(c.Writer, "internal server error: %v\n", err)
			return
		}
		fmt.Fprint(c.Writer, "ok")
		return
	}
	notFoundText(c.Writer)
}
