package admission

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var errPortTaken = errors.New("provided port is already allocated")

// PortRange is a range of ports, both ends included.
type PortRange struct{ First, Last int }

func (p PortRange) String() string { return fmt.Sprintf("%d-%d", p.First, p.Last) }

func (p PortRange) size() int { return p.Last - p.First + 1 }

// ports hands out node ports. Those taken are the bits of one RangeAllocation
// object, /registry/ranges/servicenodeports in etcd, as upstream's.
type ports struct {
	reader   Reader
	writer   Writer
	portable PortRange
}

const portsName = "servicenodeports"

// RangeAllocations is the resource that holds the taken node ports. No client
// is served it: storage needs a collection for it, prefix "ranges", cluster-wide.
func RangeAllocations() schema.GroupResource { return core("rangeallocations") }

// taken is a set of ports as bits, from the first of the range.
type takenPorts struct {
	bits   *big.Int
	r      PortRange
	dryRun bool // what is out of the range is left to validation
}

func (t takenPorts) has(port int) bool { return t.bits.Bit(port-t.r.First) == 1 }

func (t takenPorts) set(port int, taken uint) { t.bits.SetBit(t.bits, port-t.r.First, taken) }

// take takes a particular port.
func (t takenPorts) take(port int) error {
	if port < t.r.First || port > t.r.Last {
		if t.dryRun {
			return nil
		}
		return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", t.r)
	}
	if t.has(port) {
		return errPortTaken
	}
	t.set(port, 1)
	return nil
}

// takeAny takes some port, from the upper band of the range first (KEP-3668).
func (t takenPorts) takeAny() (int, error) {
	size := t.r.size()
	band := min(max(16, size/32), 128)
	if size <= 16 {
		band = 0
	}
	for _, part := range []PortRange{{t.r.First + band, t.r.Last}, {t.r.First, t.r.First + band - 1}} {
		if part.size() <= 0 {
			continue
		}
		start := rand.IntN(part.size())
		for i := range part.size() {
			port := part.First + (start+i)%part.size()
			if !t.has(port) {
				t.set(port, 1)
				return port, nil
			}
		}
	}
	return 0, errRangeFull
}

// change lets f take and give ports, in one transaction.
func (p ports) change(ctx context.Context, dryRun bool, f func(takenPorts) error) error {
	if dryRun {
		o, err := get[*corev1.RangeAllocation](ctx, p.reader, RangeAllocations(), "", portsName)
		if apierrors.IsNotFound(err) {
			o, err = &corev1.RangeAllocation{}, nil
		}
		if err != nil {
			return err
		}
		t := p.read(o)
		t.dryRun = true
		return f(t)
	}
	err := p.update(ctx, f)
	if !apierrors.IsNotFound(err) {
		return err
	}
	fresh := &corev1.RangeAllocation{ObjectMeta: metav1.ObjectMeta{Name: portsName}, Range: p.portable.String()}
	if _, err := p.writer.Create(ctx, RangeAllocations(), fresh); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return p.update(ctx, f)
}

func (p ports) update(ctx context.Context, f func(takenPorts) error) error {
	_, err := p.writer.Update(ctx, RangeAllocations(), "", portsName, func(current runtime.Object) (runtime.Object, error) {
		o, ok := current.(*corev1.RangeAllocation)
		if !ok {
			return nil, fmt.Errorf("node ports: stored as %T", current)
		}
		t := p.read(o)
		if err := f(t); err != nil {
			return nil, err
		}
		o.Name, o.Range, o.Data = portsName, p.portable.String(), t.bits.Bytes()
		return o, nil
	})
	return err
}

// read decodes the bits. Those of another range (the flag was changed) are
// worth nothing: the repair loop sets them anew from the services.
func (p ports) read(o *corev1.RangeAllocation) takenPorts {
	t := takenPorts{bits: new(big.Int), r: p.portable}
	if o.Range == p.portable.String() {
		t.bits.SetBytes(o.Data)
	}
	return t
}
