package admission

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
)

var (
	errIPTaken   = errors.New("provided IP is already allocated")
	errRangeFull = errors.New("range is full")
)

// ips hands out service addresses. Each that is taken is an IPAddress object of
// that name: creating it is what takes the address, so that no two API servers
// can hand out the same one.
type ips struct {
	reader Reader
	writer OwnWriter
	ranges []netip.Prefix // as configured
}

func ipResource() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "ipaddresses"}
}

func cidrResource() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "servicecidrs"}
}

// current are the ranges to allocate from: the ServiceCIDR objects that are
// ready, or before there are any, those configured.
func (a ips) current(ctx context.Context) ([]netip.Prefix, error) {
	objects, err := list[*networkingv1.ServiceCIDR](ctx, a.reader, cidrResource(), "")
	if err != nil {
		return nil, err
	}
	ranges := append([]netip.Prefix(nil), a.ranges...)
	for _, o := range objects {
		if o.DeletionTimestamp != nil || !cidrReady(o) {
			continue
		}
		for _, text := range o.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				ranges = appendPrefix(ranges, p.Masked())
			}
		}
	}
	return ranges, nil
}

func appendPrefix(all []netip.Prefix, p netip.Prefix) []netip.Prefix {
	for _, have := range all {
		if have == p {
			return all
		}
	}
	return append(all, p)
}

func cidrReady(o *networkingv1.ServiceCIDR) bool {
	for _, c := range o.Status.Conditions {
		if c.Type == networkingv1.ServiceCIDRConditionReady {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}

// take takes a particular address for a service.
func (a ips) take(ctx context.Context, ip netip.Addr, service *corev1.Service, dryRun bool) error {
	ranges, err := a.current(ctx)
	if err != nil {
		return err
	}
	var inRange bool
	shown := ""
	for _, r := range ranges {
		if r.Addr().Is4() == ip.Is4() {
			inRange = inRange || assignable(r, ip)
			if shown != "" {
				shown += ","
			}
			shown += r.String()
		}
	}
	if !inRange {
		return fmt.Errorf("the provided IP (%v) is not in the valid range. The range of valid IPs is %s", ip, shown)
	}
	if dryRun {
		if _, err := a.reader.Get(ctx, ipResource(), "", ip.String()); !apierrors.IsNotFound(err) {
			return errIPTaken
		}
		return nil
	}
	return a.create(ctx, ip, service)
}

func (a ips) create(ctx context.Context, ip netip.Addr, service *corev1.Service) error {
	_, err := a.writer.Create(ctx, ipResource(), newIPAddress(ip, service))
	if apierrors.IsAlreadyExists(err) {
		return errIPTaken
	}
	return err
}

func newIPAddress(ip netip.Addr, service *corev1.Service) *networkingv1.IPAddress {
	family := "IPv4"
	if ip.Is6() {
		family = "IPv6"
	}
	return &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: ip.String(), UID: uuid.NewUUID(), CreationTimestamp: metav1.Now().Rfc3339Copy(),
			Labels: map[string]string{networkingv1.LabelIPAddressFamily: family, networkingv1.LabelManagedBy: "ipallocator.k8s.io"},
		},
		Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: service.Namespace, Name: service.Name}},
	}
}

// randomTries is how often an address is guessed before all are looked at.
const randomTries = 16

// takeAny takes some address of a family.
func (a ips) takeAny(ctx context.Context, v4 bool, service *corev1.Service, dryRun bool) (netip.Addr, error) {
	ranges, err := a.current(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, r := range ranges {
		if r.Addr().Is4() != v4 {
			continue
		}
		ip, err := a.takeFrom(ctx, r, service, dryRun)
		if err == nil || !errors.Is(err, errRangeFull) {
			return ip, err
		}
	}
	return netip.Addr{}, errRangeFull
}

// takeFrom guesses in the upper band of a range first: the lower one is left,
// as long as that lasts, to those who ask for a particular address.
func (a ips) takeFrom(ctx context.Context, r netip.Prefix, service *corev1.Service, dryRun bool) (netip.Addr, error) {
	size := rangeSize(r)
	band := staticBand(size)
	attempt := func(offset uint64) (netip.Addr, bool, error) {
		ip := nth(r, offset)
		err := a.take(ctx, ip, service, dryRun)
		if errors.Is(err, errIPTaken) {
			return ip, false, nil
		}
		return ip, err == nil, err
	}
	if size > band {
		for range randomTries {
			if ip, ok, err := attempt(1 + band + rand.Uint64N(size-band)); ok || err != nil {
				return ip, err
			}
		}
	}
	taken, err := a.taken(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	// Nearly full: look for a free one, upper band first.
	const most = 1 << 20 // ends the search in an endless IPv6 range
	for i := uint64(0); i < min(size, most); i++ {
		offset := 1 + (band+i)%size
		if taken[nth(r, offset).String()] {
			continue
		}
		if ip, ok, err := attempt(offset); ok || err != nil {
			return ip, err
		}
	}
	return netip.Addr{}, errRangeFull
}

func (a ips) taken(ctx context.Context) (map[string]bool, error) {
	all, err := list[*networkingv1.IPAddress](ctx, a.reader, ipResource(), "")
	if err != nil {
		return nil, err
	}
	taken := make(map[string]bool, len(all))
	for _, o := range all {
		taken[o.Name] = true
	}
	return taken, nil
}

// give gives an address back, if it is the service's.
func (a ips) give(ctx context.Context, ip netip.Addr, service *corev1.Service) error {
	o, err := get[*networkingv1.IPAddress](ctx, a.reader, ipResource(), "", ip.String())
	if err == nil {
		if ref := o.Spec.ParentRef; ref == nil || ref.Namespace != service.Namespace || ref.Name != service.Name {
			return nil
		}
		err = a.writer.Delete(ctx, ipResource(), "", ip.String())
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// rangeSize is how many addresses of a range can be handed out: the first is
// the network's, and of IPv4 the last is for broadcasts.
func rangeSize(r netip.Prefix) uint64 {
	bits := r.Addr().BitLen() - r.Bits()
	if bits >= 63 {
		return 1 << 62
	}
	size := uint64(1) << bits
	reserved := uint64(1)
	if r.Addr().Is4() {
		reserved = 2
	}
	if size <= reserved {
		return 0
	}
	return size - reserved
}

// staticBand is the size of the lower band, KEP-3070: a sixteenth of the range,
// from 16 to 256; none in small ranges.
func staticBand(size uint64) uint64 {
	band := min(max(16, size/16), 256)
	if size <= 16 {
		return 0
	}
	return band
}

func assignable(r netip.Prefix, ip netip.Addr) bool {
	return r.Contains(ip) && ip != r.Masked().Addr() && !(ip.Is4() && ip == nth(r, rangeSize(r)+1))
}

// nth is the address at an offset in a range.
func nth(r netip.Prefix, offset uint64) netip.Addr {
	base := r.Masked().Addr()
	if base.Is4() {
		b := base.As4()
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(offset))
		return netip.AddrFrom4(b)
	}
	b := base.As16()
	sum := new(big.Int).Add(new(big.Int).SetBytes(b[:]), new(big.Int).SetUint64(offset))
	sum.FillBytes(b[:])
	return netip.AddrFrom16(b)
}
