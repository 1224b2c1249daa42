package dns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Config says what to serve and where. Its zero values are the defaults named.
type Config struct {
	REST        *rest.Config
	Addr        string        // ":53", UDP and TCP
	Domain      string        // "cluster.local"
	TTL         time.Duration // of the cluster's own records: 30 s
	ResolvConf  string        // whose nameservers are the upstreams: "/etc/resolv.conf"
	Upstreams   []string      // host:port; instead of ResolvConf
	HealthAddr  string        // ":8080", /health
	ReadyAddr   string        // ":8181", /ready
	MetricsAddr string        // ":9153", /metrics
	Log         *slog.Logger  // slog.Default()
}

func (c Config) withDefaults() Config {
	set := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	set(&c.Addr, ":53")
	set(&c.Domain, "cluster.local")
	set(&c.ResolvConf, "/etc/resolv.conf")
	set(&c.HealthAddr, ":8080")
	set(&c.ReadyAddr, ":8181")
	set(&c.MetricsAddr, ":9153")
	if c.TTL == 0 {
		c.TTL = 30 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c
}

// server answers one query at a time per goroutine; all of its state is in the
// parts, which are safe to share.
type server struct {
	zone    *zone
	outside *forwarder
	metrics *metrics
	log     *slog.Logger
}

// Run serves until ctx ends.
func Run(ctx context.Context, c Config) error {
	c = c.withDefaults()
	client, err := kubernetes.NewForConfig(c.REST)
	if err != nil {
		return fmt.Errorf("cluster DNS: %w", err)
	}
	upstreams := c.Upstreams
	if upstreams == nil {
		if upstreams, err = nameservers(c.ResolvConf); err != nil {
			return fmt.Errorf("cluster DNS: %w", err)
		}
	}
	seen := newStore()
	m := newMetrics()
	s := &server{
		zone:    newZone(c.Domain, c.TTL, seen),
		outside: newForwarder(upstreams, m, c.Log),
		metrics: m,
		log:     c.Log,
	}
	packets, err := net.ListenPacket("udp", c.Addr)
	if err != nil {
		return fmt.Errorf("cluster DNS: %w", err)
	}
	defer packets.Close()
	connections, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return fmt.Errorf("cluster DNS: %w", err)
	}
	defer connections.Close()

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return seen.watch(ctx, client) })
	group.Go(func() error {
		return serveDNS(ctx, &dns.Server{PacketConn: packets, Handler: s, UDPSize: dns.DefaultMsgSize})
	})
	group.Go(func() error { return serveDNS(ctx, &dns.Server{Listener: connections, Handler: s}) })
	group.Go(func() error { return serveHTTP(ctx, c.HealthAddr, "/health", answerOK(func() bool { return true })) })
	group.Go(func() error { return serveHTTP(ctx, c.ReadyAddr, "/ready", answerOK(seen.synced)) })
	group.Go(func() error {
		return serveHTTP(ctx, c.MetricsAddr, "/metrics", promhttp.HandlerFor(m.all(), promhttp.HandlerOpts{}))
	})
	group.Go(func() error { return s.outside.detectLoops(ctx) })
	c.Log.Info("cluster DNS serves", "addr", c.Addr, "domain", c.Domain, "upstreams", upstreams)
	return group.Wait()
}

// nameservers reads a resolv.conf. A missing file means no upstreams: the
// cluster's own names are answered all the same.
func nameservers(path string) ([]string, error) {
	conf, err := dns.ClientConfigFromFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read upstream nameservers: %w", err)
	}
	var all []string
	for _, s := range conf.Servers {
		all = append(all, net.JoinHostPort(s, conf.Port))
	}
	return all, nil
}

func serveDNS(ctx context.Context, s *dns.Server) error {
	stopped := context.AfterFunc(ctx, func() { _ = s.Shutdown() })
	defer stopped()
	err := s.ActivateAndServe()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func serveHTTP(ctx context.Context, addr, path string, h http.Handler) error {
	mux := http.NewServeMux()
	mux.Handle(path, h)
	s := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stopped()
	if err := s.ListenAndServe(); err != nil && ctx.Err() == nil {
		return fmt.Errorf("cluster DNS: %w", err)
	}
	return nil
}

func answerOK(ok func() bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !ok() {
			http.Error(w, "kubernetes", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "OK")
	})
}

// ServeDNS answers one query.
func (s *server) ServeDNS(w dns.ResponseWriter, request *dns.Msg) {
	began := time.Now()
	if len(request.Question) != 1 || request.Opcode != dns.OpcodeQuery {
		s.write(w, request, new(dns.Msg).SetRcode(request, dns.RcodeNotImplemented))
		return
	}
	answer := s.answer(request)
	s.write(w, request, answer)
	s.metrics.observe(request, answer, w, time.Since(began))
}

func (s *server) answer(request *dns.Msg) *dns.Msg {
	q := request.Question[0]
	name := strings.ToLower(q.Name)
	if q.Qclass != dns.ClassINET && q.Qclass != dns.ClassANY {
		return new(dns.Msg).SetRcode(request, dns.RcodeRefused)
	}
	if reply, ok := s.zone.answer(request, name, s.outside.resolve); ok {
		return reply
	}
	return s.outside.answer(request)
}

// write fits the answer to what the client can take.
func (s *server) write(w dns.ResponseWriter, request, answer *dns.Msg) {
	size := dns.MaxMsgSize
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		size = dns.MinMsgSize
		if opt := request.IsEdns0(); opt != nil {
			size = max(size, min(int(opt.UDPSize()), dns.DefaultMsgSize))
		}
	}
	if request.IsEdns0() != nil && answer.IsEdns0() == nil {
		answer.SetEdns0(dns.DefaultMsgSize, request.IsEdns0().Do())
	}
	answer.Compress = true
	answer.Truncate(size)
	if err := w.WriteMsg(answer); err != nil && !errors.Is(err, net.ErrClosed) {
		s.log.Debug("answer not written", "err", err)
	}
}
