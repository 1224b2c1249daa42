package encryption

import (
	"crypto/sha256"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// reloadMetrics tell how the file is followed, under upstream's names. Those of
// the ciphers and plugins are in the library.
type reloadMetrics struct {
	server string // hash of the server's ID
	total  *prometheus.CounterVec
	last   *prometheus.GaugeVec
	info   *prometheus.GaugeVec
}

func newReloadMetrics(serverID string) *reloadMetrics {
	const prefix = "apiserver_encryption_config_controller_"
	return &reloadMetrics{
		server: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(serverID))),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "automatic_reloads_total", Help: "Reloads of the encryption configuration, by outcome.",
		}, []string{"status", "apiserver_id_hash"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: prefix + "automatic_reload_last_timestamp_seconds", Help: "When the encryption configuration was last reloaded, by outcome.",
		}, []string{"status", "apiserver_id_hash"}),
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: prefix + "last_config_info", Help: "The hash of the encryption configuration in force.",
		}, []string{"apiserver_id_hash", "hash"}),
	}
}

func (m *reloadMetrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.total, m.last, m.info}
}

func (m *reloadMetrics) inForce(hash string) {
	m.info.Reset()
	m.info.WithLabelValues(m.server, hash).Set(1)
}

func (m *reloadMetrics) succeeded(hash string) {
	m.count("success")
	m.inForce(hash)
}

func (m *reloadMetrics) failed() { m.count("failure") }

func (m *reloadMetrics) count(status string) {
	m.total.WithLabelValues(status, m.server).Inc()
	m.last.WithLabelValues(status, m.server).SetToCurrentTime()
}
