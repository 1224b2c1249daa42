package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics/prometheus/slis"
)

// health is the named checks behind /healthz, /livez and /readyz.
type health struct {
	s *Server

	mu   sync.Mutex       // protects done
	done map[string]error // outcome of each hook; absent: not run yet
}

func newHealth(s *Server) *health { return &health{s: s, done: map[string]error{}} }

// What a server does when it starts, by upstream's names: its own parts, and what
// is in bootstrapSteps.
var (
	storageHooks    = []string{"generic-apiserver-start-informers", "storage-readiness"}
	definitionHooks = []string{"start-apiextensions-informers", "start-apiextensions-controllers", "crd-informer-synced"}
	leaseHooks      = []string{"start-kube-apiserver-identity-lease-controller", "start-kube-apiserver-identity-lease-garbage-collector"}
	flowHooks       = []string{"priority-and-fairness-filter", "storage-object-count-tracker-hook"}
	flowConfigHook  = "priority-and-fairness-config-consumer"
	serviceHooks    = []string{
		"start-kube-aggregator-informers", "apiservice-status-local-available-controller", "apiservice-status-remote-available-controller",
		"apiservice-registration-controller", "apiservice-discovery-controller", "kube-apiserver-autoregistration",
		"apiservice-openapi-controller", "apiservice-openapiv3-controller",
	}
	// reported is the order of the checks.
	reported = []string{
		"start-apiserver-admission-initializer", "generic-apiserver-start-informers", flowConfigHook, "priority-and-fairness-filter",
		"storage-object-count-tracker-hook", "start-apiextensions-informers", "start-apiextensions-controllers",
		"crd-informer-synced", "start-system-namespaces-controller", "start-cluster-authentication-info-controller",
		"start-kube-apiserver-identity-lease-controller", "start-kube-apiserver-identity-lease-garbage-collector",
		"storage-readiness", "start-legacy-token-tracking-controller", "start-service-ip-repair-controllers", "rbac/bootstrap-roles",
		"scheduling/bootstrap-system-priority-classes", "priority-and-fairness-config-producer", "bootstrap-controller", "start-kubernetes-service-cidr-controller",
		"aggregator-reload-proxy-client-cert", "start-kube-aggregator-informers", "apiservice-status-local-available-controller", "apiservice-status-remote-available-controller",
		"apiservice-registration-controller", "apiservice-discovery-controller", "kube-apiserver-autoregistration", "autoregister-completion",
		"apiservice-openapi-controller", "apiservice-openapiv3-controller",
	}
)

// finished records how some hooks went. One that was done once stays done: later
// trouble is no reason to restart the server.
func (h *health) finished(err error, hooks ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, hook := range hooks {
		if old, ran := h.done[hook]; !ran || old != nil {
			h.done[hook] = err
		}
	}
}

func (h *health) outcome(hook string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	err, ran := h.done[hook]
	if !ran {
		return errors.New("not finished")
	}
	return err
}

// hooks are the checks of what this server does when it starts.
func (h *health) hooks() []HealthCheck {
	names := slices.Concat(storageHooks, definitionHooks, serviceHooks)
	if h.s.Admission != nil {
		names = append(names, "start-apiserver-admission-initializer")
	}
	if h.s.flow != nil {
		names = append(append(names, flowHooks...), flowConfigHook)
	}
	if h.s.AdvertiseAddress != "" {
		names = append(names, leaseHooks...)
	}
	for _, step := range h.s.bootstrapSteps() {
		names = append(names, step.Name)
	}
	for _, hook := range h.s.Hooks {
		names = append(names, hook.Name)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(place(a), place(b)) })
	var checks []HealthCheck
	for _, name := range names {
		checks = append(checks, HealthCheck{Name: "poststarthook/" + name, Run: func(ctx context.Context) error { return h.hook(ctx, name) }})
		if name == "kube-apiserver-autoregistration" {
			checks = append(checks, HealthCheck{Name: "autoregister-completion", Run: func(context.Context) error { return h.outcome(name) }})
		}
	}
	return checks
}

// hook asks those who know of one of the server's hooks, or looks it up.
func (h *health) hook(ctx context.Context, name string) error {
	for _, hook := range h.s.Hooks {
		if hook.Name == name {
			return hook.Run(ctx)
		}
	}
	return h.outcome(name)
}

// place is where a hook is reported; unknown ones are last.
func place(hook string) int {
	if at := slices.Index(reported, hook); at >= 0 {
		return at
	}
	return len(reported)
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
	}
	all = slices.Concat(all, h.hooks(), h.s.Health, []HealthCheck{{Name: "shutdown", Ready: true, Run: h.shutdown}})
	return slices.DeleteFunc(all, func(check HealthCheck) bool {
		return check.Ready && group != "readyz" || check.NotLive && group == "livez"
	})
}

// knowsPaths reports whether a path that is not there will not be there in a
// moment either.
func (h *health) knowsPaths() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, definitions := h.done["crd-informer-synced"]
	_, services := h.done["apiservice-discovery-controller"]
	return definitions && services
}

// Settled waits until the server that has just been started knows what it serves, and
// who may have it.
func (s *Server) Settled(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		return s.health.knowsPaths() && (s.Synced == nil || s.Synced(ctx) == nil), nil
	})
}

func (h *health) etcd(ctx context.Context) error { return h.s.Store.Ready(ctx) }

func (h *health) cache(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := h.s.Store.WaitLoaded(ctx); err != nil || h.s.Synced == nil {
		return err
	}
	return h.s.Synced(ctx)
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
			slis.ObserveHealthcheck(c, check.Name, group, slis.Error)
			s.Log.Debug("health check failed", "check", check.Name, "err", err)
			fmt.Fprintf(&report, "[-]%s failed: reason withheld\n", check.Name)
			continue
		}
		slis.ObserveHealthcheck(c, check.Name, group, slis.Success)
		fmt.Fprintf(&report, "[+]%s ok\n", check.Name)
	}
	if len(excluded) > 0 {
		names := slices.Sorted(maps.Keys(excluded))
		fmt.Fprintf(&report, "warn: some health checks cannot be excluded: no matches for \"%s\"\n", strings.Join(names, `","`))
	}
	if failed > 0 {
		http.Error(c.Writer, fmt.Sprintf("%s%s check failed", report.String(), group), http.StatusInternalServerError)
		return
	}
	header := c.Writer.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	_, verbose := c.Request.URL.Query()["verbose"]
	switch {
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
		if err := check.Run(c.Request.Context()); err != nil {
			http.Error(c.Writer, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
			return
		}
		c.Writer.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(c.Writer, "ok")
		return
	}
	notFoundText(c.Writer)
}
