package dns

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
)

// Times of forwarding. A client gives up after 5 seconds, so two upstreams must
// fit in.
const (
	upstreamTimeout = 2 * time.Second
	upstreamRest    = 5 * time.Second // a failed upstream is asked last for so long
)

// loopName is under which the probes of detectLoops are asked for.
const loopName = "loop-probe.orrery.invalid."

// upstream is a nameserver outside.
type upstream struct {
	addr   string
	probe  string       // a name that nobody but us asks for
	loops  atomic.Bool  // it sends queries back to us
	failed atomic.Int64 // unix nanoseconds of the last failure
}

// forwarder asks the upstreams, through a cache. Equal questions that are under
// way are asked once.
type forwarder struct {
	upstreams []*upstream
	cache     *answerCache
	flights   singleflight.Group
	metrics   *metrics
	log       *slog.Logger
}

func newForwarder(addrs []string, m *metrics, log *slog.Logger) *forwarder {
	f := &forwarder{cache: newAnswerCache(), metrics: m, log: log}
	for _, a := range addrs {
		var id [8]byte
		_, _ = rand.Read(id[:]) // never fails
		f.upstreams = append(f.upstreams, &upstream{addr: a, probe: hex.EncodeToString(id[:]) + "." + loopName})
	}
	return f
}

// answer replies to a question about the outside.
func (f *forwarder) answer(request *dns.Msg) *dns.Msg {
	q := request.Question[0]
	if f.caughtProbe(strings.ToLower(q.Name)) {
		return new(dns.Msg).SetRcode(request, dns.RcodeServerFailure)
	}
	if len(f.usable()) == 0 {
		return new(dns.Msg).SetRcode(request, dns.RcodeServerFailure)
	}
	key := keyOf(request)
	if cached := f.cache.get(key, time.Now()); cached != nil {
		f.metrics.cacheHits.Inc()
		return adapt(cached, request)
	}
	f.metrics.cacheMisses.Inc()
	shared, _, _ := f.flights.Do(key.String(), func() (any, error) {
		reply := f.ask(request)
		f.cache.put(key, reply, time.Now())
		return reply, nil
	})
	return adapt(shared.(*dns.Msg).Copy(), request)
}

// adapt makes a reply to an equal question one to this request.
func adapt(reply, request *dns.Msg) *dns.Msg {
	reply.Id = request.Id
	reply.Question = request.Question
	reply.RecursionDesired = request.RecursionDesired
	reply.Authoritative = false
	return reply
}

// resolve looks up a name for an alias of the zone.
func (f *forwarder) resolve(name string, qtype uint16) []dns.RR {
	return f.answer(new(dns.Msg).SetQuestion(name, qtype)).Answer
}

// usable are the upstreams that do not lead back here, those that failed just
// now last.
func (f *forwarder) usable() []*upstream {
	var good, resting []*upstream
	now := time.Now().UnixNano()
	for _, u := range f.upstreams {
		switch {
		case u.loops.Load():
		case now-u.failed.Load() < int64(upstreamRest):
			resting = append(resting, u)
		default:
			good = append(good, u)
		}
	}
	return append(good, resting...)
}

func (f *forwarder) ask(request *dns.Msg) *dns.Msg {
	query := request.Copy()
	query.Id = dns.Id()
	ctx, cancel := context.WithTimeout(context.Background(), 2*upstreamTimeout)
	defer cancel()
	for _, u := range f.usable() {
		reply, err := exchange(ctx, query, u.addr)
		f.metrics.forwards.WithLabelValues(u.addr).Inc()
		if err != nil {
			u.failed.Store(time.Now().UnixNano())
			f.log.Debug("upstream does not answer", "upstream", u.addr, "err", err)
			continue
		}
		return reply
	}
	return new(dns.Msg).SetRcode(request, dns.RcodeServerFailure)
}

func exchange(ctx context.Context, query *dns.Msg, addr string) (*dns.Msg, error) {
	udp := dns.Client{Net: "udp", Timeout: upstreamTimeout, UDPSize: dns.DefaultMsgSize}
	reply, _, err := udp.ExchangeContext(ctx, query, addr)
	if err == nil && !reply.Truncated {
		return reply, nil
	}
	if err != nil && !errors.Is(err, dns.ErrBuf) {
		return nil, err
	}
	tcp := dns.Client{Net: "tcp", Timeout: upstreamTimeout}
	whole, _, err := tcp.ExchangeContext(ctx, query, addr)
	if err != nil && reply != nil {
		return reply, nil // truncated is better than nothing
	}
	return whole, err
}

// detectLoops asks each upstream once for a name that only it is asked for. One
// that forwards to us (a node whose resolv.conf names the cluster's DNS) makes
// that name come back, and is never asked again: it would ask us for ever.
func (f *forwarder) detectLoops(ctx context.Context) error {
	var asking sync.WaitGroup
	for _, u := range f.upstreams {
		asking.Go(func() {
			// The answer does not matter, what comes back does.
			_, _ = exchange(ctx, new(dns.Msg).SetQuestion(u.probe, dns.TypeHINFO), u.addr)
		})
	}
	asking.Wait()
	return nil
}

func (f *forwarder) caughtProbe(name string) bool {
	if !strings.HasSuffix(name, loopName) {
		return false
	}
	for _, u := range f.upstreams {
		if u.probe == name && !u.loops.Swap(true) {
			f.log.Warn("upstream nameserver leads back to this server and is left out", "upstream", u.addr)
		}
	}
	return true
}
