package client

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // measures clients, work queues and leader elections
)

// Measured is what a component measures itself, with what the Kubernetes libraries
// do for it: requests to API servers, work queues, leader elections, the Go runtime
// and the process.
func Measured(own ...prometheus.Gatherer) prometheus.Gatherer {
	return append(prometheus.Gatherers(own), legacyregistry.DefaultGatherer)
}
