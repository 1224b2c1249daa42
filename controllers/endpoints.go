package controllers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/endpointslice"
	sliceutil "k8s.io/endpointslice/util"

	"orrery.dev/api"
)

const (
	labelManagedEndpoints = "endpoints.kubernetes.io/managed-by"
	managedByEndpoints    = "endpoint-controller"
	maxEndpoints          = 1000
)

// endpointsController keeps the old Endpoints object of each Service, for
// clients that do not read EndpointSlices yet.
type endpointsController struct {
	*env
	services, endpoints cache.SharedIndexInformer
	triggers            *sliceutil.TriggerTimeTracker
	own                 writes
}

func newEndpoints(e *env) Controller {
	c := &endpointsController{
		env:       e,
		services:  e.factory.Core().V1().Services().Informer(),
		endpoints: e.factory.Core().V1().Endpoints().Informer(),
		triggers:  sliceutil.NewTriggerTimeTracker(),
	}
	return Controller{
		Name: "endpoints-controller",
		Reads: []Source{
			wakesSelf(c.services),
			when(wakes(e.pods(), e.servicesOfPod), podEndpointChanged),
			wakes(c.endpoints, c.keysOfEndpoints),
		},
		Writes:  []string{"endpoints"},
		Workers: 5,
		Sync:    c.sync,
	}
}

// keysOfEndpoints leaves alone what somebody else made without a Service; what
// was made beside a Service without a selector goes when that Service does.
func (c *endpointsController) keysOfEndpoints(ep *corev1.Endpoints) []string {
	if ep.Labels[labelManagedEndpoints] != managedByEndpoints && cached[corev1.Service](c.services, keyOf(ep)) == nil {
		return nil
	}
	return []string{keyOf(ep)}
}

func (c *endpointsController) sync(ctx context.Context, key string) (time.Duration, error) {
	namespace, name := split(key)
	svc := cached[corev1.Service](c.services, key)
	have := cached[corev1.Endpoints](c.endpoints, key)
	if svc == nil {
		c.triggers.DeleteService(namespace, name)
		c.own.forget(key)
		if have == nil {
			return 0, nil
		}
		err := c.clients.CoreV1().Endpoints(namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: sameObject(have)})
		return 0, ignoreGone(err)
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName || len(svc.Spec.Selector) == 0 {
		return 0, nil
	}
	if !c.own.seen(key) {
		return pause, nil
	}
	pods := c.podsOfService(svc)
	subsets := subsetsOf(svc, pods)
	trigger := c.triggers.ComputeEndpointLastChangeTriggerTime(namespace, svc, pods)
	want := desiredEndpoints(svc, have, subsets, trigger)
	var stored *corev1.Endpoints
	var err error
	switch {
	case have == nil:
		stored, err = c.clients.CoreV1().Endpoints(namespace).Create(ctx, want, metav1.CreateOptions{})
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return 0, nil
		}
	case equality.Semantic.DeepEqual(have.Subsets, want.Subsets) && maps.Equal(have.Labels, want.Labels) && have.Annotations[corev1.EndpointsOverCapacity] == want.Annotations[corev1.EndpointsOverCapacity]:
		return 0, nil
	default:
		stored, err = c.clients.CoreV1().Endpoints(namespace).Update(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil {
		return 0, fmt.Errorf("endpoints %s: %w", key, err)
	}
	c.own.made(key, c.endpoints.GetIndexer(), stored)
	return 0, nil
}

// desiredEndpoints is the object to store for a Service.
func desiredEndpoints(svc *corev1.Service, have *corev1.Endpoints, subsets []corev1.EndpointSubset, trigger time.Time) *corev1.Endpoints {
	want := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: svc.Name, Namespace: svc.Namespace}}
	if have != nil {
		want = have.DeepCopy()
	}
	want.Subsets = subsets
	want.Labels = withLabel(svc.Labels, labelManagedEndpoints, managedByEndpoints)
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		want.Labels[corev1.IsHeadlessService] = ""
	} else {
		delete(want.Labels, corev1.IsHeadlessService)
	}
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	if trigger.IsZero() {
		delete(want.Annotations, corev1.EndpointsLastChangeTriggerTime)
	} else {
		want.Annotations[corev1.EndpointsLastChangeTriggerTime] = trigger.UTC().Format(time.RFC3339Nano)
	}
	delete(want.Annotations, corev1.EndpointsOverCapacity)
	if truncate(want.Subsets) {
		want.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	return want
}

// truncate cuts the addresses to what one object may hold, ready ones last.
func truncate(subsets []corev1.EndpointSubset) bool {
	room := maxEndpoints
	cut := false
	for i := range subsets {
		if len(subsets[i].Addresses) > room {
			subsets[i].Addresses, cut = subsets[i].Addresses[:room], true
		}
		room -= len(subsets[i].Addresses)
	}
	for i := range subsets {
		if len(subsets[i].NotReadyAddresses) > room {
			subsets[i].NotReadyAddresses, cut = subsets[i].NotReadyAddresses[:room], true
		}
		room -= len(subsets[i].NotReadyAddresses)
	}
	return cut
}

// subsetsOf groups the pods' addresses by the ports they serve; pods that name
// the same port differently land in different subsets.
func subsetsOf(svc *corev1.Service, pods []*corev1.Pod) []corev1.EndpointSubset {
	byPorts := map[string]*corev1.EndpointSubset{}
	for _, pod := range pods {
		if !sliceutil.ShouldPodBeInEndpoints(pod, svc.Spec.PublishNotReadyAddresses) {
			continue
		}
		address, ok := addressOf(svc, pod)
		if !ok {
			continue
		}
		ports := portsOf(svc, pod)
		if len(ports) == 0 && len(svc.Spec.Ports) > 0 {
			continue
		}
		key := portsKey(ports)
		set := byPorts[key]
		if set == nil {
			set = &corev1.EndpointSubset{Ports: ports}
			byPorts[key] = set
		}
		if api.IsPodReady(pod) || svc.Spec.PublishNotReadyAddresses {
			set.Addresses = append(set.Addresses, address)
		} else {
			set.NotReadyAddresses = append(set.NotReadyAddresses, address)
		}
	}
	out := make([]corev1.EndpointSubset, 0, len(byPorts))
	for _, key := range slices.Sorted(maps.Keys(byPorts)) {
		set := byPorts[key]
		sortAddresses(set.Addresses)
		sortAddresses(set.NotReadyAddresses)
		out = append(out, *set)
	}
	return out
}

func sortAddresses(addresses []corev1.EndpointAddress) {
	slices.SortFunc(addresses, func(a, b corev1.EndpointAddress) int {
		return cmp.Or(strings.Compare(a.IP, b.IP), strings.Compare(string(a.TargetRef.UID), string(b.TargetRef.UID)))
	})
}

func addressOf(svc *corev1.Service, pod *corev1.Pod) (corev1.EndpointAddress, bool) {
	wantV6 := len(svc.Spec.IPFamilies) > 0 && svc.Spec.IPFamilies[0] == corev1.IPv6Protocol
	ip := ""
	for _, candidate := range append([]corev1.PodIP{{IP: pod.Status.PodIP}}, pod.Status.PodIPs...) {
		if parsed := net.ParseIP(candidate.IP); parsed != nil && (parsed.To4() == nil) == wantV6 {
			ip = candidate.IP
			break
		}
	}
	if ip == "" {
		return corev1.EndpointAddress{}, false
	}
	address := corev1.EndpointAddress{
		IP: ip,
		TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		},
	}
	if node := pod.Spec.NodeName; node != "" {
		address.NodeName = &node
	}
	if sliceutil.ShouldSetHostname(pod, svc) {
		address.Hostname = pod.Spec.Hostname
	}
	return address, true
}

// portsOf are the Service's ports as a pod serves them; named target ports are
// looked up in the pod, and left out where it has none of that name.
func portsOf(svc *corev1.Service, pod *corev1.Pod) []corev1.EndpointPort {
	var out []corev1.EndpointPort
	for i := range svc.Spec.Ports {
		p := &svc.Spec.Ports[i]
		number, err := endpointslice.FindPort(pod, p)
		if err != nil {
			continue
		}
		out = append(out, corev1.EndpointPort{Name: p.Name, Port: int32(number), Protocol: p.Protocol, AppProtocol: p.AppProtocol})
	}
	slices.SortFunc(out, func(a, b corev1.EndpointPort) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.Protocol), string(b.Protocol)), int(a.Port-b.Port))
	})
	return out
}

// portsKey is equal for equal lists of ports.
func portsKey(ports []corev1.EndpointPort) string {
	var b strings.Builder
	for _, p := range ports {
		app := ""
		if p.AppProtocol != nil {
			app = *p.AppProtocol
		}
		fmt.Fprintf(&b, "%s:%d/%s/%s,", p.Name, p.Port, p.Protocol, app)
	}
	return b.String()
}
