package client

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // measures clients, work queues and leader elections

	"orrery.dev/trace"
)

// Measured is what a component measures itself, with what its tracer (nil: it has none)
// and the Kubernetes libraries do for it: requests to API servers, work queues, leader
// elections, the Go runtime and the process.
func Measured(spans *trace.Tracer, own ...prometheus.Gatherer) prometheus.Gatherer {
	if spans != nil {
		registry := prometheus.NewRegistry()
		registry.MustRegister(spans.Metrics())
		own = append(own, registry)
	}
	return append(prometheus.Gatherers(own), legacyregistry.DefaultGatherer)
}
