package admission

import (
	"context"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"
	networkingv1 "k8s.io/api/networking/v1"
)

// Collectors tell how many addresses and node ports of services are taken, and how
// many are left, under upstream's names.
func (a *Addresses) Collectors() []prometheus.Collector { return []prometheus.Collector{occupancy{a}} }

// occupancy counts what is taken when it is asked.
type occupancy struct{ *Addresses }

// Describe implements prometheus.Collector: nothing is known beforehand.
func (occupancy) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. What cannot be read is left out.
func (o occupancy) Collect(ch chan<- prometheus.Metric) {
	ctx := context.Background()
	tell := func(name, help string, value float64, labels prometheus.Labels) {
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("kube_apiserver_"+name, help, nil, labels), prometheus.GaugeValue, value)
	}
	ranges, err := o.ips.current(ctx)
	taken, takenErr := list[*networkingv1.IPAddress](ctx, o.ips.reader, ipResource(), "")
	if err == nil && takenErr == nil {
		for _, r := range ranges {
			used := 0
			for _, ip := range taken {
				if addr, err := netip.ParseAddr(ip.Name); err == nil && r.Contains(addr) {
					used++
				}
			}
			cidr := prometheus.Labels{"cidr": r.String()}
			tell("clusterip_allocator_allocated_ips", "Addresses of services that are taken.", float64(used), cidr)
			tell("clusterip_allocator_available_ips", "Addresses of services that are left.", float64(rangeSize(r))-float64(used), cidr)
		}
	}
	used := 0
	err = o.ports.change(ctx, true, func(t takenPorts) error {
		for port := t.r.First; port <= t.r.Last; port++ {
			if t.has(port) {
				used++
			}
		}
		return nil
	})
	if err == nil {
		tell("nodeport_allocator_allocated_ports", "Node ports that are taken.", float64(used), nil)
		tell("nodeport_allocator_available_ports", "Node ports that are left.", float64(o.ports.portable.size()-used), nil)
	}
}
