package nodeagent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"orrery.dev/client"
)

// rate turns a growing counter into a rate.
type rate struct {
	mu    sync.Mutex // protects the fields below
	last  uint64
	at    time.Time
	value uint64
}

// rate is the growth per second since the last call that was at least a second
// ago.
func (r *rate) rate(count uint64, now time.Time) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := now.Sub(r.at)
	if since < time.Second {
		return r.value
	}
	if !r.at.IsZero() && count >= r.last {
		r.value = uint64(float64(count-r.last) / since.Seconds())
	}
	r.last, r.at = count, now
	return r.value
}

// serveMetrics serves figures about the agent itself, as text to everybody.
func (a *Agent) serveMetrics(w http.ResponseWriter, r *http.Request) {
	header(w)
	running := 0
	states := map[string]int{"created": 0, "running": 0, "exited": 0, "unknown": 0}
	for _, worker := range a.pods.all() {
		if st := a.statuses.latest(worker.uid); st != nil {
			if !isOver(st) {
				running++
			}
			for _, c := range st.ContainerStatuses {
				switch {
				case c.State.Running != nil:
					states["running"]++
				case c.State.Terminated != nil:
					states["exited"]++
				default:
					states["created"]++
				}
			}
		}
	}
	gauge(w, "kubelet_node_name", "The node's name. The count is always 1.", labelled{`node="` + a.cfg.NodeName + `"`, 1})
	gauge(w, "kubelet_running_pods", "Number of pods that have a running pod sandbox", labelled{"", float64(running)})
	var lines []labelled
	for state, n := range states {
		lines = append(lines, labelled{`container_state="` + state + `"`, float64(n)})
	}
	gauge(w, "kubelet_running_containers", "Number of containers currently running", lines...)
	plain := r.Clone(r.Context())
	plain.Header = http.Header{}
	promhttp.HandlerFor(client.Measured(a.cfg.Trace), promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, plain)
}

// serveResourceMetrics serves what metrics-server reads.
func (a *Agent) serveResourceMetrics(w http.ResponseWriter, r *http.Request) {
	s, err := a.summary(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	header(w)
	var cpu, memory, podCPU, podMemory, starts []labelled
	for _, p := range s.Pods {
		pod := fmt.Sprintf(`namespace=%q,pod=%q`, p.PodRef.Namespace, p.PodRef.Name)
		podCPU, podMemory = addUsage(podCPU, podMemory, pod, p.CPU, p.Memory)
		for _, c := range p.Containers {
			l := fmt.Sprintf(`container=%q,%s`, c.Name, pod)
			cpu, memory = addUsage(cpu, memory, l, c.CPU, c.Memory)
			starts = append(starts, labelled{l, float64(c.StartTime.UnixNano()) / 1e9})
		}
	}
	counter(w, "container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds", cpu...)
	gauge(w, "container_memory_working_set_bytes", "Current working set of the container in bytes", memory...)
	gauge(w, "container_start_time_seconds", "Start time of the container since unix epoch in seconds", starts...)
	counter(w, "pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", podCPU...)
	gauge(w, "pod_memory_working_set_bytes", "Current working set of the pod in bytes", podMemory...)
	nodeCPU, nodeMemory := addUsage(nil, nil, "", s.Node.CPU, s.Node.Memory)
	counter(w, "node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", nodeCPU...)
	gauge(w, "node_memory_working_set_bytes", "Current working set of the node in bytes", nodeMemory...)
	gauge(w, "resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", labelled{"", 0})
}

func addUsage(cpu, memory []labelled, labels string, c *stats.CPUStats, m *stats.MemoryStats) ([]labelled, []labelled) {
	if c != nil && c.UsageCoreNanoSeconds != nil {
		cpu = append(cpu, labelled{labels, float64(*c.UsageCoreNanoSeconds) / 1e9})
	}
	if m != nil && m.WorkingSetBytes != nil {
		memory = append(memory, labelled{labels, float64(*m.WorkingSetBytes)})
	}
	return cpu, memory
}

// serveContainerMetrics serves what dashboards know from cAdvisor.
func (a *Agent) serveContainerMetrics(w http.ResponseWriter, r *http.Request) {
	header(w)
	if err := a.containerMetrics(r.Context(), w); err != nil {
		a.log.Debug("container metrics", "err", err)
	}
}

func (a *Agent) containerMetrics(ctx context.Context, w io.Writer) error {
	s, err := a.summary(ctx)
	if err != nil {
		return err
	}
	var cpu, set, usage, rss, rx, tx []labelled
	for _, p := range s.Pods {
		pod := fmt.Sprintf(`namespace=%q,pod=%q`, p.PodRef.Namespace, p.PodRef.Name)
		if p.Network != nil && p.Network.RxBytes != nil && p.Network.TxBytes != nil {
			l := fmt.Sprintf(`interface=%q,%s`, p.Network.Name, pod)
			rx = append(rx, labelled{l, float64(*p.Network.RxBytes)})
			tx = append(tx, labelled{l, float64(*p.Network.TxBytes)})
		}
		for _, c := range p.Containers {
			l := fmt.Sprintf(`container=%q,%s`, c.Name, pod)
			cpu, set = addUsage(cpu, set, l, c.CPU, c.Memory)
			if c.Memory != nil && c.Memory.UsageBytes != nil {
				usage = append(usage, labelled{l, float64(*c.Memory.UsageBytes)})
			}
			if c.Memory != nil && c.Memory.RSSBytes != nil {
				rss = append(rss, labelled{l, float64(*c.Memory.RSSBytes)})
			}
		}
	}
	counter(w, "container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", cpu...)
	gauge(w, "container_memory_working_set_bytes", "Current working set in bytes.", set...)
	gauge(w, "container_memory_usage_bytes", "Current memory usage in bytes.", usage...)
	gauge(w, "container_memory_rss", "Size of RSS in bytes.", rss...)
	counter(w, "container_network_receive_bytes_total", "Cumulative count of bytes received", rx...)
	counter(w, "container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", tx...)
	gauge(w, "machine_cpu_cores", "Number of logical CPU cores.", labelled{"", float64(a.host.cores)})
	gauge(w, "machine_memory_bytes", "Amount of memory installed on the machine.", labelled{"", float64(a.host.memory)})
	return nil
}

// labelled is one line of a metric.
type labelled struct {
	labels string
	value  float64
}

func header(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
}

func gauge(w io.Writer, name, help string, lines ...labelled) { metric(w, name, "gauge", help, lines) }
func counter(w io.Writer, name, help string, lines ...labelled) {
	metric(w, name, "counter", help, lines)
}

func metric(w io.Writer, name, kind, help string, lines []labelled) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	for _, l := range lines {
		labels := ""
		if l.labels != "" {
			labels = "{" + l.labels + "}"
		}
		fmt.Fprintf(w, "%s%s %g\n", name, labels, l.value)
	}
}
