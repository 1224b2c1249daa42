package nodeagent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func typesUID(s string) types.UID { return types.UID(s) }

// keepNode registers the node, then keeps its status: looked at every 10
// seconds and whenever something asks for it, written on change and every 5
// minutes.
func (a *Agent) keepNode(ctx context.Context) error {
	complained := ""
	for {
		err := a.register(ctx)
		if err == nil {
			break
		}
		// A server that is not there yet may be the one that we start.
		if text := err.Error(); text != complained && !utilnet.IsConnectionRefused(err) {
			a.log.Warn("node not registered", "err", err)
			complained = text
		}
		sleep(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			return nil
		}
	}
	for _, w := range a.pods.all() {
		if w.static {
			w.touch() // mirrors name the node as their owner
		}
	}
	a.nodeEvent(corev1.EventTypeNormal, "Starting", "Starting kubelet.")
	look := time.NewTimer(0)
	defer look.Stop()
	var written time.Time
	var last []byte      // what was written, without times
	var listed types.UID // of the node whose volume drivers are listed
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
		case <-a.nodeChanged:
			sleep(ctx, 50*time.Millisecond) // several asks make one look
		}
		status := a.nodeStatus(ctx)
		again := a.cfg.Kubelet.NodeStatusUpdateFrequency.Duration
		now, err := timeless(status)
		if err != nil || !bytes.Equal(last, now) || isUnallocated(a.node.Load()) || time.Since(written) >= a.cfg.Kubelet.NodeStatusReportFrequency.Duration {
			if err := a.writeNode(ctx, status); err != nil {
				a.log.Debug("node status not written", "err", err)
				again = time.Second
			} else {
				last, written = now, time.Now()
			}
		}
		if node := a.node.Load(); node != nil && node.UID != listed && !a.cfg.Simulated && a.listDrivers(ctx, node) == nil {
			listed = node.UID
		}
		if !a.isReady(status) {
			again = min(again, time.Second) // a node that comes up should not be kept waiting
		}
		look.Reset(again)
	}
}

// watchNode follows the node's object: its labels count when pods are admitted,
// and its share of addresses makes the network.
func (a *Agent) watchNode(ctx context.Context) error {
	informer := coreinformers.NewFilteredNodeInformer(a.clients, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", a.cfg.NodeName).String()
	})
	take := func(obj any) {
		node := obj.(*corev1.Node)
		a.node.Store(node)
		if isUnallocated(node) {
			a.touchNode()
		}
		if node.Spec.PodCIDR != "" {
			a.setPodCIDR(ctx, node.Spec.PodCIDR)
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: take, UpdateFunc: func(_, obj any) { take(obj) },
		DeleteFunc: func(any) { a.touchNode() }, // registered again
	})
	if err != nil {
		return err
	}
	informer.RunWithContext(ctx)
	return nil
}

// setPodCIDR passes on the node's share of addresses when it changed.
func (a *Agent) setPodCIDR(ctx context.Context, cidr string) {
	if had := a.podCIDR.Load(); a.cfg.PodCIDR == nil || had != nil && *had == cidr {
		return
	}
	if err := a.cfg.PodCIDR(ctx, cidr); err != nil {
		a.log.Warn("pod network not configured", "cidr", cidr, "err", err)
		return // tried again at the next change of the node, such as its heartbeat
	}
	a.podCIDR.Store(&cidr)
	a.touchNode()
}

func (a *Agent) isReady(st *corev1.NodeStatus) bool {
	i := slices.IndexFunc(st.Conditions, func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
	return i >= 0 && st.Conditions[i].Status == corev1.ConditionTrue
}

// register makes the node's object, or takes over the one that is there.
func (a *Agent) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	nodes := a.clients.CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: a.cfg.NodeName, Labels: a.nodeLabels(),
		Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
	}}
	node.Spec.Taints = slices.Clone(a.cfg.Taints)
	node.Spec.ProviderID = a.cfg.Kubelet.ProviderID
	node.Status = *a.nodeStatus(ctx)
	made, err := nodes.Create(ctx, node, metav1.CreateOptions{})
	if err == nil {
		a.node.Store(made)
		a.log.Info("node registered")
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	had, err := nodes.Get(ctx, a.cfg.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	a.node.Store(had)
	want := had.DeepCopy()
	if want.Labels == nil {
		want.Labels = map[string]string{}
	}
	maps.Copy(want.Labels, node.Labels)
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	maps.Copy(want.Annotations, node.Annotations)
	if equality.Semantic.DeepEqual(had.ObjectMeta, want.ObjectMeta) {
		return nil
	}
	patch, err := nodePatch(had, want)
	if err != nil {
		return err
	}
	if had, err = nodes.Patch(ctx, a.cfg.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	a.node.Store(had)
	return nil
}

// listDrivers makes the node's CSINode, which lists the volume drivers that have
// registered with it: none, so far. The scheduler looks at it.
func (a *Agent) listDrivers(ctx context.Context, node *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err := a.clients.StorageV1().CSINodes().Create(ctx, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name: node.Name,
		// What upstream's volume plugins once did and drivers do now.
		Annotations: map[string]string{"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file," +
			"kubernetes.io/cinder,kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (a *Agent) nodeLabels() map[string]string {
	l := map[string]string{
		corev1.LabelHostname: a.cfg.NodeName, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	if a.cfg.Simulated {
		l[corev1.LabelOSStable], l["beta.kubernetes.io/os"] = "linux", "linux"
	}
	maps.Copy(l, a.cfg.Labels)
	return l
}

// writeNode patches the node's status. A node that was deleted is registered
// again.
func (a *Agent) writeNode(ctx context.Context, status *corev1.NodeStatus) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	nodes := a.clients.CoreV1().Nodes()
	had, err := nodes.Get(ctx, a.cfg.NodeName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return a.register(ctx)
	}
	if err != nil {
		return err
	}
	want := had.DeepCopy()
	want.Status = *mergeNodeStatus(&had.Status, status)
	patch, err := nodePatch(had, want)
	if err != nil {
		return err
	}
	made, err := nodes.Patch(ctx, a.cfg.NodeName, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return err
	}
	a.node.Store(made)
	return nil
}

func nodePatch(from, to *corev1.Node) ([]byte, error) {
	before, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
}

// mergeNodeStatus keeps what is not the agent's own (others' conditions,
// attached volumes, extended resources) and the transition times of conditions
// that did not change.
func mergeNodeStatus(had, now *corev1.NodeStatus) *corev1.NodeStatus {
	out := now.DeepCopy()
	out.VolumesAttached = had.VolumesAttached
	out.Config = had.Config
	out.Phase = had.Phase
	for i := range out.Conditions {
		j := slices.IndexFunc(had.Conditions, func(c corev1.NodeCondition) bool { return c.Type == out.Conditions[i].Type })
		if j >= 0 && had.Conditions[j].Status == out.Conditions[i].Status {
			out.Conditions[i].LastTransitionTime = had.Conditions[j].LastTransitionTime
		}
	}
	for _, c := range had.Conditions {
		if !slices.ContainsFunc(out.Conditions, func(o corev1.NodeCondition) bool { return o.Type == c.Type }) {
			out.Conditions = append(out.Conditions, c)
		}
	}
	for name, q := range had.Capacity {
		if isExtended(name) {
			out.Capacity[name], out.Allocatable[name] = q, q
		}
	}
	return out
}

// isUnallocated says whether others gave the node a capacity that it does not
// offer yet.
func isUnallocated(node *corev1.Node) bool {
	for name, q := range node.Status.Capacity {
		if offered, ok := node.Status.Allocatable[name]; isExtended(name) && (!ok || q.Cmp(offered) != 0) {
			return true
		}
	}
	return false
}

// timeless is a status without its times, to be compared: encoded, which is compared a
// good deal faster than the fields one by one.
func timeless(s *corev1.NodeStatus) ([]byte, error) {
	s = s.DeepCopy()
	for i := range s.Conditions {
		s.Conditions[i].LastHeartbeatTime, s.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
	}
	return s.Marshal()
}

// nodeStatus describes the node as it is.
func (a *Agent) nodeStatus(ctx context.Context) *corev1.NodeStatus {
	version, ready := a.askRuntime(ctx)
	st := &corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: a.cfg.NodeIP},
			{Type: corev1.NodeHostName, Address: a.cfg.NodeName},
		},
		Capacity:    a.capacity(),
		Allocatable: a.allocatable(),
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: a.host.machineID, SystemUUID: a.host.systemUUID, BootID: a.host.bootID,
			KernelVersion: a.host.kernel, OSImage: a.host.osImage,
			ContainerRuntimeVersion: version, KubeletVersion: a.cfg.Version,
			OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: a.cfg.Kubelet.Port}},
	}
	if a.cfg.Simulated {
		st.NodeInfo.OperatingSystem, st.NodeInfo.OSImage = "linux", "Simulated"
	}
	st.RuntimeHandlers, st.Features = a.runtimeAbilities()
	st.DeclaredFeatures = declaredFeatures()
	st.Images = a.nodeImages(ctx)
	st.VolumesInUse = a.volumesInUse()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	memory, disk, pids := a.pressure.state()
	st.Conditions = []corev1.NodeCondition{
		nodeCondition(corev1.NodeMemoryPressure, memory, "KubeletHasInsufficientMemory", "kubelet has insufficient memory available", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		nodeCondition(corev1.NodeDiskPressure, disk, "KubeletHasDiskPressure", "kubelet has disk pressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		nodeCondition(corev1.NodePIDPressure, pids, "KubeletHasInsufficientPID", "kubelet has insufficient PID available", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		nodeCondition(corev1.NodeReady, ready == "", "KubeletReady", "kubelet is posting ready status", "KubeletNotReady", ready),
	}
	for i := range st.Conditions {
		st.Conditions[i].LastHeartbeatTime, st.Conditions[i].LastTransitionTime = now, now
	}
	return st
}

func nodeCondition(kind corev1.NodeConditionType, is bool, reason, message, elseReason, elseMessage string) corev1.NodeCondition {
	if is {
		return corev1.NodeCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message}
	}
	return corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: elseReason, Message: elseMessage}
}

// askRuntime returns the runtime's name and version, and why it is not usable,
// if so.
func (a *Agent) askRuntime(ctx context.Context) (version, unready string) {
	v, err := a.cfg.Runtime.Version(ctx, "v1")
	if err != nil {
		return a.runtimeName.Load().(string) + "://unknown", "container runtime is down: " + grpcText(err)
	}
	a.runtimeName.Store(v.RuntimeName)
	version = v.RuntimeName + "://" + v.RuntimeVersion
	version = strings.TrimSuffix(strings.Replace(version, "://v", "://", 1), "+unknown")
	resp, err := a.cfg.Runtime.Status(ctx, false)
	if err != nil {
		return version, "container runtime status check failed: " + grpcText(err)
	}
	a.runtimeErr.Store(nil)
	var wrong []string
	a.runtimeFeatures.Store(resp)
	a.networkErr.Store(nil)
	for _, c := range resp.GetStatus().GetConditions() {
		if (c.Type == "RuntimeReady" || c.Type == "NetworkReady") && !c.Status {
			if c.Type == "NetworkReady" {
				text := fmt.Sprintf("NetworkReady=false reason:%s message:%s", c.Reason, c.Message)
				a.networkErr.Store(&text)
			}
			what := "container runtime network not ready: "
			if c.Type == "RuntimeReady" {
				what = "container runtime not ready: "
			}
			wrong = append(wrong, fmt.Sprintf("%s%s=false reason:%s message:%s", what, c.Type, c.Reason, c.Message))
		}
	}
	return version, strings.Join(wrong, ", ")
}

// runtimeAbilities tells what the runtime and its handlers can do.
func (a *Agent) runtimeAbilities() ([]corev1.NodeRuntimeHandler, *corev1.NodeFeatures) {
	resp := a.runtimeFeatures.Load()
	var out []corev1.NodeRuntimeHandler
	for _, h := range resp.GetRuntimeHandlers() {
		out = append(out, corev1.NodeRuntimeHandler{Name: h.Name, Features: &corev1.NodeRuntimeHandlerFeatures{
			RecursiveReadOnlyMounts: ptr.To(h.GetFeatures().GetRecursiveReadOnlyMounts()),
			UserNamespaces:          ptr.To(h.GetFeatures().GetUserNamespaces()),
		}})
	}
	slices.SortFunc(out, func(x, y corev1.NodeRuntimeHandler) int { return strings.Compare(x.Name, y.Name) })
	if f := resp.GetFeatures(); f != nil {
		return out, &corev1.NodeFeatures{SupplementalGroupsPolicy: ptr.To(f.SupplementalGroupsPolicy)}
	}
	return out, nil
}

// declaredFeatures names what this agent can do that an older one of the same
// API could not: schedulers and API servers ask before they count on it.
func declaredFeatures() []string {
	return []string{
		"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
		"RestartAllContainersOnContainerExits",
	}
}

// nodeImages lists the largest images, for the scheduler's locality score.
func (a *Agent) nodeImages(ctx context.Context) []corev1.ContainerImage {
	limit := int(*a.cfg.Kubelet.NodeStatusMaxImages)
	if limit == 0 {
		return nil
	}
	images, err := a.cfg.Images.ListImages(ctx, nil)
	if err != nil {
		return nil
	}
	slices.SortFunc(images, func(x, y *runtimeapi.Image) int {
		switch {
		case x.Size > y.Size:
			return -1
		case x.Size < y.Size:
			return 1
		}
		return strings.Compare(x.Id, y.Id)
	})
	var out []corev1.ContainerImage
	for _, img := range images {
		names := slices.Concat(img.RepoDigests, img.RepoTags)
		if len(names) == 0 {
			continue
		}
		out = append(out, corev1.ContainerImage{Names: names[:min(len(names), 5)], SizeBytes: int64(img.Size)})
		if limit > 0 && len(out) == limit {
			break
		}
	}
	return out
}

// volumesInUse names the attachable volumes of running pods.
func (a *Agent) volumesInUse() []corev1.UniqueVolumeName { return nil }

// capacity is all there is on the node.
func (a *Agent) capacity() corev1.ResourceList {
	out := corev1.ResourceList{}
	if a.cfg.Simulated {
		out = a.cfg.Capacity.DeepCopy()
		if out == nil {
			out = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"), corev1.ResourceEphemeralStorage: resource.MustParse("500Gi")}
		}
	} else {
		out[corev1.ResourceCPU] = *resource.NewQuantity(a.host.cores, resource.DecimalSI)
		out[corev1.ResourceMemory] = *resource.NewQuantity(a.host.memory, resource.BinarySI)
		if disk, ok := diskOf(a.cfg.RootDir); ok {
			out[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(disk.size, resource.BinarySI)
		}
		maps.Copy(out, hugePages())
	}
	if _, ok := out[corev1.ResourcePods]; !ok {
		out[corev1.ResourcePods] = *resource.NewQuantity(int64(a.cfg.Kubelet.MaxPods), resource.DecimalSI)
	}
	return out
}

// allocatable is what pods may have: capacity less what is reserved for the
// system, and less the eviction threshold.
func (a *Agent) allocatable() corev1.ResourceList {
	out := a.capacity()
	take := func(name corev1.ResourceName, q resource.Quantity) {
		have, ok := out[name]
		if !ok {
			return
		}
		have.Sub(q)
		if have.Sign() < 0 {
			have = resource.Quantity{}
		}
		out[name] = have
	}
	for _, reserved := range []map[string]string{a.cfg.Kubelet.SystemReserved, a.cfg.Kubelet.KubeReserved} {
		for name, text := range reserved {
			if q, err := resource.ParseQuantity(text); err == nil {
				take(corev1.ResourceName(name), q)
			}
		}
	}
	if a.cfg.Simulated {
		return out
	}
	for signal, name := range map[string]corev1.ResourceName{"memory.available": corev1.ResourceMemory, "nodefs.available": corev1.ResourceEphemeralStorage} {
		total := out[name]
		if limit := thresholdOf(a.cfg.Kubelet.EvictionHard[signal], total.Value()); limit > 0 {
			take(name, *resource.NewQuantity(limit, resource.BinarySI))
		}
	}
	return out
}
