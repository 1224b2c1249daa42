// Package reload follows the configuration files of the API server: whose keys
// encrypt, whose tokens are believed, who decides what is allowed.
//
// Follow looks at a file again and again and hands new content to whoever applies
// it. Content that makes no sense is refused once and the old one stays in force;
// what may go better later is tried again. Metrics count both under upstream's
// names.
package reload

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// File is a file to be followed.
type File struct {
	Path string
	// Interval is how often the file is looked at, Retry how soon after content
	// that could not be applied, 10 s if 0.
	Interval, Retry time.Duration
	// Loaded is the content that is in force.
	Loaded  []byte
	Metrics *Metrics
	Log     *slog.Logger
}

// Follow calls apply with each new content until ctx ends. If that fails, again
// says whether the same content may be tried later.
func (f File) Follow(ctx context.Context, apply func(ctx context.Context, raw []byte) (again bool, err error)) {
	if f.Retry == 0 {
		f.Retry = 10 * time.Second
	}
	seen := f.Loaded
	for pause := f.Interval; Sleep(ctx, pause); {
		pause = f.Interval
		raw, err := os.ReadFile(f.Path)
		if err == nil && bytes.Equal(raw, seen) {
			continue
		}
		again := true
		if err == nil {
			again, err = apply(ctx, raw)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			seen = raw
			f.Metrics.succeeded(raw)
			f.Log.Info("configuration reloaded", "file", f.Path)
		default:
			f.Metrics.failed()
			f.Log.Error("configuration keeps what it was", "file", f.Path, "err", err)
			if !again {
				seen = raw
			} else {
				pause = min(f.Retry, f.Interval)
			}
		}
	}
}

// Sleep waits and reports true, or false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Metrics tell how a file is followed.
type Metrics struct {
	server string // hash of the server's ID
	total  *prometheus.CounterVec
	last   *prometheus.GaugeVec
	info   *prometheus.GaugeVec
}

// NewMetrics makes the metrics of a controller, as upstream calls it
// ("apiserver_encryption_config_controller"), for the content in force.
func NewMetrics(controller, serverID string, loaded []byte) *Metrics {
	m := &Metrics{
		server: Hash([]byte(serverID)),
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: controller + "_automatic_reloads_total", Help: "Reloads of the configuration, by outcome.",
		}, []string{"status", "apiserver_id_hash"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: controller + "_automatic_reload_last_timestamp_seconds", Help: "When the configuration was last reloaded, by outcome.",
		}, []string{"status", "apiserver_id_hash"}),
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: controller + "_last_config_info", Help: "The hash of the configuration in force.",
		}, []string{"apiserver_id_hash", "hash"}),
	}
	m.inForce(loaded)
	return m
}

// Hash stands for a content that may be secret.
func Hash(raw []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(raw)) }

// Collectors are the metrics.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.total, m.last, m.info}
}

func (m *Metrics) inForce(raw []byte) {
	m.info.Reset()
	m.info.WithLabelValues(m.server, Hash(raw)).Set(1)
}

func (m *Metrics) succeeded(raw []byte) {
	m.count("success")
	m.inForce(raw)
}

func (m *Metrics) failed() { m.count("failure") }

func (m *Metrics) count(status string) {
	m.total.WithLabelValues(status, m.server).Inc()
	m.last.WithLabelValues(status, m.server).SetToCurrentTime()
}
