package dns

import (
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Bounds of the cache, CoreDNS's in a kubeadm cluster.
const (
	cacheEntries   = 9984
	cacheLongest   = 30 * time.Second
	cacheFailures  = 5 * time.Second // SERVFAIL, so that a dead upstream is not asked for each query
	cacheNoRecords = 5 * time.Second // when a negative answer names no time itself
)

type cacheKey struct {
	name        string
	qtype       uint16
	dnssec, cut bool // DO and CD change what an answer contains
}

func keyOf(request *dns.Msg) cacheKey {
	q := request.Question[0]
	opt := request.IsEdns0()
	return cacheKey{name: strings.ToLower(q.Name), qtype: q.Qtype, dnssec: opt != nil && opt.Do(), cut: request.CheckingDisabled}
}

func (k cacheKey) String() string {
	flags := byte('0')
	if k.dnssec {
		flags |= 1
	}
	if k.cut {
		flags |= 2
	}
	return k.name + "/" + dns.TypeToString[k.qtype] + string(flags)
}

type cacheEntry struct {
	reply       *dns.Msg // never changed once it is here
	since, till time.Time
}

// answerCache keeps replies from outside.
type answerCache struct {
	mu      sync.Mutex // protects entries
	entries map[cacheKey]cacheEntry
}

func newAnswerCache() *answerCache { return &answerCache{entries: map[cacheKey]cacheEntry{}} }

// get returns a copy whose times to live are what is left of them, or nil.
func (c *answerCache) get(key cacheKey, now time.Time) *dns.Msg {
	c.mu.Lock()
	e, ok := c.entries[key]
	if ok && !now.Before(e.till) {
		delete(c.entries, key)
		ok = false
	}
	c.mu.Unlock()
	if !ok {
		return nil
	}
	reply := e.reply.Copy()
	age := uint32(now.Sub(e.since) / time.Second)
	for _, section := range [][]dns.RR{reply.Answer, reply.Ns, reply.Extra} {
		for _, rr := range section {
			if h := rr.Header(); h.Rrtype != dns.TypeOPT {
				h.Ttl -= min(h.Ttl, age)
			}
		}
	}
	return reply
}

func (c *answerCache) put(key cacheKey, reply *dns.Msg, now time.Time) {
	keep := lifetime(reply)
	if keep <= 0 || reply.Truncated {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= cacheEntries {
		c.makeRoom(now)
	}
	c.entries[key] = cacheEntry{reply: reply.Copy(), since: now, till: now.Add(keep)}
}

// makeRoom drops what is over, or else anything: map order is as good as random.
func (c *answerCache) makeRoom(now time.Time) {
	for k, e := range c.entries {
		if !now.Before(e.till) {
			delete(c.entries, k)
		}
	}
	for k := range c.entries {
		if len(c.entries) < cacheEntries*9/10 {
			return
		}
		delete(c.entries, k)
	}
}

// lifetime is how long a reply may be repeated.
func lifetime(reply *dns.Msg) time.Duration {
	switch reply.Rcode {
	case dns.RcodeSuccess, dns.RcodeNameError:
	case dns.RcodeServerFailure:
		return cacheFailures
	default:
		return 0
	}
	if len(reply.Answer) == 0 || reply.Rcode == dns.RcodeNameError {
		for _, rr := range reply.Ns {
			if soa, ok := rr.(*dns.SOA); ok {
				return min(cacheLongest, time.Duration(min(soa.Minttl, soa.Hdr.Ttl))*time.Second)
			}
		}
		return cacheNoRecords
	}
	keep := cacheLongest
	for _, rr := range reply.Answer {
		keep = min(keep, time.Duration(rr.Header().Ttl)*time.Second)
	}
	return keep
}
