package controllers

import (
	"context"
	"fmt"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	nodeutil "k8s.io/component-helpers/node/util"
)

// nodeIPAM gives every node a range of pod addresses out of the cluster's.
type nodeIPAM struct {
	*env
	events  record.EventRecorder
	ranges  []addressRange
	service []netip.Prefix
	bad     error // the configuration does not parse; said on every sync

	mu    sync.Mutex                // protects given
	given map[string][]netip.Prefix // what we have given, whether or not the cache shows it
}

// addressRange is a cluster range, cut into ranges of bits length.
type addressRange struct {
	prefix netip.Prefix
	bits   int
}

func newNodeIPAM(e *env) Controller {
	c := &nodeIPAM{env: e, events: e.recorders("cidrAllocator"), given: map[string][]netip.Prefix{}}
	c.ranges, c.service, c.bad = parseRanges(e.cfg)
	return Controller{
		Name:   "node-ipam-controller",
		Reads:  []Source{wakesSelf(e.nodes())},
		Writes: []string{"nodes"},
		Sync:   c.sync,
	}
}

func parseRanges(cfg Config) (ranges []addressRange, service []netip.Prefix, err error) {
	for _, text := range strings.Split(cfg.ClusterCIDR, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, nil, fmt.Errorf("cluster CIDR: %w", err)
		}
		bits := 24
		if p.Addr().Is6() {
			bits = 64
		}
		if cfg.NodeCIDRMask > 0 && p.Addr().Is4() {
			bits = cfg.NodeCIDRMask
		}
		if bits < p.Bits() {
			return nil, nil, fmt.Errorf("cluster CIDR %s is smaller than a node's /%d", p, bits)
		}
		ranges = append(ranges, addressRange{p.Masked(), bits})
	}
	for _, text := range strings.Split(cfg.ServiceCIDR, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, nil, fmt.Errorf("service CIDR: %w", err)
		}
		service = append(service, p.Masked())
	}
	return ranges, service, nil
}

func (c *nodeIPAM) sync(ctx context.Context, key string) (time.Duration, error) {
	if c.bad != nil {
		return 0, c.bad
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	node := cached[corev1.Node](c.nodes(), key)
	if node == nil {
		delete(c.given, key)
		return 0, nil
	}
	if len(node.Spec.PodCIDRs) > 0 || node.Spec.PodCIDR != "" {
		delete(c.given, key) // the cache shows it
		return 0, nil
	}
	if c.given[key] != nil {
		return pause, c.assign(ctx, key, c.given[key])
	}
	var picked []netip.Prefix
	for _, r := range c.ranges {
		p, ok := r.free(append(c.taken(), c.service...))
		if !ok {
			c.events.Eventf(nodeRef(node), corev1.EventTypeNormal, "CIDRNotAvailable", "Node %s status is now: CIDRNotAvailable", key)
			return 0, fmt.Errorf("no free range for node %s in %s", key, r.prefix)
		}
		picked = append(picked, p)
	}
	c.given[key] = picked
	return 0, c.assign(ctx, key, picked)
}

func (c *nodeIPAM) assign(ctx context.Context, node string, picked []netip.Prefix) error {
	var texts []string
	for _, p := range picked {
		texts = append(texts, p.String())
	}
	if err := nodeutil.PatchNodeCIDRs(ctx, c.clients, types.NodeName(node), texts); err != nil {
		return fmt.Errorf("pod range of node %s: %w", node, err)
	}
	return nil
}

// taken is what nodes have; mu is held.
func (c *nodeIPAM) taken() []netip.Prefix {
	var out []netip.Prefix
	for _, node := range everything[corev1.Node](c.nodes()) {
		for _, text := range node.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				out = append(out, p.Masked())
			}
		}
	}
	for _, given := range c.given {
		out = append(out, given...)
	}
	return out
}

// free returns the first part of the range that overlaps nothing taken.
func (r addressRange) free(taken []netip.Prefix) (netip.Prefix, bool) {
	var blocking []netip.Prefix
	for _, p := range taken {
		if p.Overlaps(r.prefix) {
			blocking = append(blocking, p)
		}
	}
	slices.SortFunc(blocking, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	candidate := netip.PrefixFrom(r.prefix.Addr(), r.bits)
	for r.prefix.Contains(candidate.Addr()) {
		i := slices.IndexFunc(blocking, candidate.Overlaps)
		if i < 0 {
			return candidate, true
		}
		larger := blocking[i]
		if larger.Bits() > r.bits {
			larger = candidate
		}
		next, ok := following(larger, r.bits)
		if !ok {
			break
		}
		candidate = next
		blocking = blocking[i:]
	}
	return netip.Prefix{}, false
}

// following is the prefix of length bits right after p.
func following(p netip.Prefix, bits int) (netip.Prefix, bool) {
	addr := p.Masked().Addr()
	n := new(big.Int).SetBytes(addr.AsSlice())
	n.Add(n, new(big.Int).Lsh(big.NewInt(1), uint(addr.BitLen()-p.Bits())))
	raw := n.Bytes()
	if len(raw) > addr.BitLen()/8 {
		return netip.Prefix{}, false
	}
	padded := make([]byte, addr.BitLen()/8)
	copy(padded[len(padded)-len(raw):], raw)
	next, ok := netip.AddrFromSlice(padded)
	return netip.PrefixFrom(next, bits).Masked(), ok
}
