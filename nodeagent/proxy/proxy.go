package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"orrery.dev/client"
	"orrery.dev/trace"
)

// Config says what to proxy and how. Its zero values are the defaults named.
type Config struct {
	REST          *rest.Config
	NodeName      string                  // required
	Mode          string                  // "nftables", "iptables", or "": nftables where it works, else iptables
	RoutePods     bool                    // route other nodes' pods to them (podRoutes)
	ClusterCIDR   string                  // pods' addresses, one range for each family, with a comma between; "": none
	HealthzAddr   string                  // "0.0.0.0:10256"
	MetricsAddr   string                  // "127.0.0.1:10249"
	MinSyncPeriod time.Duration           // 1 s at least between two syncs, after the first of a burst: 100 ms
	SyncPeriod    time.Duration           // how often to look whether the rules are still there: 30 s
	HostRoot      string                  // where the host's root is mounted, for nft and iptables; "/host" if that exists
	Trace         *trace.Tracer           // told when routes are there; nil: nobody is
	Log           *slog.Logger            // slog.Default()
	Pages         map[string]http.Handler // further ones beside the metrics, by path
}

func (c Config) withDefaults() Config {
	if c.HealthzAddr == "" {
		c.HealthzAddr = "0.0.0.0:10256"
	}
	if c.MetricsAddr == "" {
		c.MetricsAddr = "127.0.0.1:10249"
	}
	if c.MinSyncPeriod == 0 {
		c.MinSyncPeriod = 100 * time.Millisecond
	}
	if c.SyncPeriod == 0 {
		c.SyncPeriod = 30 * time.Second
	}
	if c.HostRoot == "" {
		if _, err := os.Stat("/host/usr"); err == nil {
			c.HostRoot = "/host"
		}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// mode is a way to put routes into the kernel.
type mode interface {
	name() string
	apply(ctx context.Context, table Table) error // the difference to the last time
	intact(ctx context.Context) bool              // nobody else has removed the rules
	forget()                                      // the next apply replaces all
	cleanup(ctx context.Context) error            // removes all rules
}

// Proxy keeps the kernel's rules in step with the cluster.
type Proxy struct {
	config  Config
	mode    mode
	cluster *cluster
	health  *health
	ports   *servicePorts
	metrics *metrics
	wake    chan struct{} // holds one: a change waits
	news    news
	flows   map[Family]string // UDP routes whose stale connections are dealt with
}

// Run proxies until ctx ends. It leaves the rules in place: connections outlive
// the proxy, and the next one takes over. Cleanup removes them.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	if c.NodeName == "" {
		return errors.New("proxy: the node's name is not set")
	}
	client, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	m, err := chooseMode(ctx, c)
	if err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{config: c, mode: m, health: &health{}, metrics: newMetrics(), wake: make(chan struct{}, 1), flows: map[Family]string{}}
	p.ports = newServicePorts(p.health, c.Log)
	defer p.ports.stop()
	if p.cluster, err = newCluster(client, c.NodeName, p.changed); err != nil {
		return fmt.Errorf("proxy: %w", err)
	}
	prepareKernel(c.Log)
	c.Log.Info("service proxy starts", "mode", m.name(), "node", c.NodeName)

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { p.cluster.watch(ctx); return nil })
	group.Go(func() error { return p.loop(ctx) })
	if c.RoutePods {
		group.Go(func() error { return runPodRoutes(ctx, client, c.NodeName, c.Log) })
	}
	group.Go(func() error { return serveHTTP(ctx, c.HealthzAddr, p.healthRoutes()) })
	group.Go(func() error { return serveHTTP(ctx, c.MetricsAddr, p.metricsRoutes()) })
	return group.Wait()
}

// Cleanup removes the rules of all modes.
func Cleanup(ctx context.Context) error {
	var t tools
	var errs []error
	if t.has("nft") {
		errs = append(errs, newNFTables(t, nil).cleanup(ctx))
	}
	if t.has("iptables-restore") {
		errs = append(errs, newIPTables(t, nil).cleanup(ctx))
	}
	return errors.Join(errs...)
}

func chooseMode(ctx context.Context, c Config) (mode, error) {
	cidrs, err := parseCIDRs(c.ClusterCIDR)
	if err != nil {
		return nil, err
	}
	t := tools{root: c.HostRoot}
	nft, ipt := newNFTables(t, cidrs), newIPTables(t, cidrs)
	nftErr := nft.usable(ctx)
	var chosen, other mode
	switch c.Mode {
	case "nftables":
		if nftErr != nil {
			return nil, fmt.Errorf("mode nftables: %w", nftErr)
		}
		chosen, other = nft, ipt
	case "iptables":
		chosen, other = ipt, nft
	case "":
		chosen, other = nft, ipt
		if nftErr != nil {
			c.Log.Info("nftables not usable, iptables is taken", "err", nftErr)
			chosen, other = ipt, nft
		}
	default:
		return nil, fmt.Errorf("unknown mode %q; there are nftables and iptables", c.Mode)
	}
	if chosen == mode(ipt) && !t.has("iptables-restore") {
		return nil, errors.New("neither nft nor iptables is installed on this node; install nftables")
	}
	// Rules of the other mode would redirect to endpoints of another time.
	if (other == mode(nft) && nftErr == nil) || (other == mode(ipt) && t.has("iptables-restore")) {
		if err := other.cleanup(ctx); err != nil {
			c.Log.Warn("rules of the other mode not removed", "mode", other.name(), "err", err)
		}
	}
	return chosen, nil
}

// usable tries what the rules need, without leaving anything.
func (n *nftables) usable(ctx context.Context) error {
	const trial = `add table ip kube-proxy-trial
add map ip kube-proxy-trial m { type ipv4_addr . inet_proto . inet_service : verdict ; }
add chain ip kube-proxy-trial c { type nat hook prerouting priority -100 ; }
add rule ip kube-proxy-trial c ip daddr . meta l4proto . th dport vmap @m
add rule ip kube-proxy-trial c meta l4proto tcp dnat ip addr . port to numgen random mod 2 map { 0 : 192.0.2.1 . 80, 1 : 192.0.2.2 . 80 }
delete table ip kube-proxy-trial
`
	_, err := n.tools.run(ctx, trial, "nft", "-f", "-")
	return err
}

func parseCIDRs(text string) (map[Family]netip.Prefix, error) {
	all := map[Family]netip.Prefix{}
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one == "" {
			continue
		}
		p, err := netip.ParsePrefix(one)
		if err != nil {
			return nil, fmt.Errorf("cluster CIDR: %w", err)
		}
		family := IPv4
		if p.Addr().Is6() {
			family = IPv6
		}
		all[family] = p.Masked()
	}
	return all, nil
}

// prepareKernel turns forwarding on. A kernel that is set up already, with
// /proc/sys read-only, is as good.
func prepareKernel(log *slog.Logger) {
	const forwarding = "/proc/sys/net/ipv4/ip_forward"
	if have, err := os.ReadFile(forwarding); err == nil && strings.TrimSpace(string(have)) == "1" {
		return
	}
	if err := os.WriteFile(forwarding, []byte("1"), 0o644); err != nil {
		log.Warn("IP forwarding not turned on", "err", err)
	}
}

func (p *Proxy) changed(before, after any) {
	if p.config.Trace != nil {
		p.news.add(before, after)
	}
	p.health.changed()
	select {
	case p.wake <- struct{}{}:
	default: // a change waits already
	}
}

// loop syncs at once after a change, and not again before MinSyncPeriod is over:
// changes come in bursts. It starts when everything is known, since half the
// Services would look as if the others had been deleted.
func (p *Proxy) loop(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), p.cluster.synced...) {
		return nil
	}
	p.changed(nil, nil)
	check := time.NewTicker(p.config.SyncPeriod)
	defer check.Stop()
	var again <-chan time.Time // set after a sync that did not work
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-check.C:
			if p.mode.intact(ctx) || ctx.Err() != nil {
				continue
			}
			p.config.Log.Warn("somebody has removed service rules; they are made again")
			p.mode.forget()
		case <-again:
		case <-p.wake:
		}
		again = nil
		if err := p.sync(ctx); err != nil && ctx.Err() == nil {
			p.config.Log.Error("service rules not updated", "err", err)
			p.mode.forget()
			again = time.After(5 * time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(p.config.MinSyncPeriod):
		}
	}
}

func (p *Proxy) sync(ctx context.Context) error {
	began, news := time.Now(), p.news.take()
	node, leaving := p.cluster.node(p.config.NodeName)
	p.health.leaving.Store(leaving)
	tables, err := p.cluster.tables(node)
	if err != nil {
		return err
	}
	var errs []error
	var health []HealthPort
	for _, t := range tables {
		errs = append(errs, p.syncTable(ctx, t))
		health = append(health, t.Health...)
	}
	p.ports.set(ctx, health)
	p.metrics.observe(tables, time.Since(began), errors.Join(errs...))
	err = errors.Join(errs...)
	for _, n := range news {
		n.tell(p.config, began, err)
	}
	if err != nil {
		return err
	}
	p.health.done()
	return nil
}

func (p *Proxy) syncTable(ctx context.Context, t Table) error {
	// A machine without IPv6 would refuse even an empty table.
	if _, was := p.flows[t.Family]; t.Family == IPv6 && len(t.Routes) == 0 && !was {
		return nil
	}
	if err := p.mode.apply(ctx, t); err != nil {
		return err
	}
	udp := fmt.Sprint(udpFlowsOf(t))
	if p.flows[t.Family] == udp {
		return nil
	}
	gone, err := forgetStale(t)
	if err != nil {
		// The rules are right; only clients that never pause are worse off.
		p.config.Log.Warn("stale UDP connections not removed", "err", err)
		return nil
	}
	p.flows[t.Family] = udp
	p.metrics.forgotten.Add(float64(gone))
	return nil
}

func (p *Proxy) healthRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", p.health.handler(true))
	mux.HandleFunc("/livez", p.health.handler(false))
	return mux
}

func (p *Proxy) metricsRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(client.Measured(p.config.Trace, p.metrics.registry), promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", p.health.handler(true))
	for path, page := range p.config.Pages {
		mux.Handle(path, page)
	}
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, p.mode.name()) })
	return mux
}
