package registry

import (
	"fmt"
	"net"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"orrery.dev/api"
)

func nodeColumns() []Column {
	return []Column{
		nameColumn,
		text("Status", "Whether the node is ready, and takes pods."),
		text("Roles", "The roles of the node, from its labels."),
		ageColumn,
		text("Version", "The version of the node agent."),
		wide(text("Internal-IP", "Address within the cluster.")),
		wide(text("External-IP", "Address from outside.")),
		wide(text("OS-Image", "Operating system.")),
		wide(text("Kernel-Version", "Kernel.")),
		wide(text("Container-Runtime", "Container runtime and its version.")),
	}
}

func nodeRow(n *corev1.Node) []any {
	info := n.Status.NodeInfo
	kernel := orElse(info.KernelVersion, "<unknown>")
	if info.Architecture != "" {
		kernel += " (" + info.Architecture + ")"
	}
	return []any{
		n.Name, api.NodeWord(n), nodeRoles(n), n.CreationTimestamp, info.KubeletVersion,
		nodeAddress(n, corev1.NodeInternalIP), nodeAddress(n, corev1.NodeExternalIP),
		orElse(info.OSImage, "<unknown>"), kernel, orElse(info.ContainerRuntimeVersion, "<unknown>"),
	}
}

func nodeRoles(n *corev1.Node) string {
	found := map[string]bool{}
	for key, value := range n.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok && role != "" {
			found[role] = true
		} else if key == "kubernetes.io/role" && value != "" {
			found[value] = true
		}
	}
	roles := make([]string, 0, len(found))
	for role := range found {
		roles = append(roles, role)
	}
	sort.Strings(roles)
	return orElse(strings.Join(roles, ","), none)
}

func nodeAddress(n *corev1.Node, t corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == t {
			return a.Address
		}
	}
	return none
}

func serviceColumns() []Column {
	return []Column{
		nameColumn,
		text("Type", "How the service is reached."),
		text("Cluster-IP", "Its address within the cluster."),
		text("External-IP", "Its addresses from outside."),
		text("Port(s)", "Its ports, with node ports."),
		ageColumn,
		wide(text("Selector", "Labels of the pods behind it.")),
	}
}

func serviceRow(s *corev1.Service) []any {
	ip := none
	if len(s.Spec.ClusterIPs) > 0 {
		ip = s.Spec.ClusterIPs[0]
	} else if s.Spec.ClusterIP != "" {
		ip = s.Spec.ClusterIP
	}
	var ports []string
	for _, p := range s.Spec.Ports {
		if p.NodePort > 0 {
			ports = append(ports, fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol))
		} else {
			ports = append(ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
	}
	return []any{
		s.Name, string(s.Spec.Type), ip, externalIPs(s), orElse(strings.Join(ports, ","), none), s.CreationTimestamp,
		labels.FormatLabels(s.Spec.Selector),
	}
}

func externalIPs(s *corev1.Service) string {
	outside := strings.Join(s.Spec.ExternalIPs, ",")
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var all []string
		for _, in := range s.Status.LoadBalancer.Ingress {
			all = append(all, orElse(in.IP, in.Hostname))
		}
		sort.Strings(all)
		return orElse(strings.Join(append(all, s.Spec.ExternalIPs...), ","), "<pending>")
	}
	return orElse(outside, none)
}

func endpointsColumns() []Column {
	return []Column{nameColumn, text("Endpoints", "Addresses and ports behind the service."), ageColumn}
}

func endpointsRow(e *corev1.Endpoints) []any {
	var all []string
	for _, s := range e.Subsets {
		for _, a := range s.Addresses {
			if len(s.Ports) == 0 {
				all = append(all, a.IP)
			}
			for _, p := range s.Ports {
				all = append(all, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return []any{e.Name, orElse(some(all), none), e.CreationTimestamp}
}

func eventColumns() []Column {
	return []Column{
		text("Last Seen", "When it last happened."),
		text("Type", "Normal or Warning."),
		text("Reason", "Why, in one word."),
		text("Object", "What it happened to."),
		wide(text("Subobject", "The part of it.")),
		wide(text("Source", "Who says so.")),
		text("Message", "What happened."),
		wide(text("First Seen", "When it first happened.")),
		wide(text("Count", "How often.")),
		wide(nameColumn),
	}
}

func eventRow(e *corev1.Event) []any {
	first := e.FirstTimestamp
	if first.IsZero() {
		first = metav1.Time{Time: e.EventTime.Time}
	}
	last, count := e.LastTimestamp, e.Count
	if last.IsZero() {
		last = first
	}
	switch {
	case e.Series != nil:
		last, count = metav1.Time{Time: e.Series.LastObservedTime.Time}, e.Series.Count
	case count == 0:
		count = 1
	}
	component, host := e.Source.Component, e.Source.Host
	if component == "" {
		component, host = e.ReportingController, e.ReportingInstance
	}
	if host != "" {
		component += ", " + host
	}
	object := e.InvolvedObject.Name
	if e.InvolvedObject.Kind != "" {
		object = strings.ToLower(e.InvolvedObject.Kind) + "/" + object
	}
	return []any{
		last, e.Type, e.Reason, object, e.InvolvedObject.FieldPath, component,
		strings.TrimSpace(e.Message), first, int64(count), e.Name,
	}
}

func newEventRow(e *eventsv1.Event) []any { return eventRow(api.EventToCore(e)) }

func componentStatusColumns() []Column {
	return []Column{
		nameColumn,
		text("Status", "Healthy, Unhealthy or Unknown."),
		text("Message", "What the component answered."),
		text("Error", "What went wrong in asking."),
	}
}

func componentStatusRow(c *corev1.ComponentStatus) []any {
	status, message, failure := "Unknown", "", ""
	for _, condition := range c.Conditions {
		if condition.Type == corev1.ComponentHealthy {
			status = "Unhealthy"
			if condition.Status == corev1.ConditionTrue {
				status = "Healthy"
			}
			message, failure = condition.Message, condition.Error
		}
	}
	return []any{c.Name, status, message, failure}
}

func configMapColumns() []Column {
	return []Column{nameColumn, text("Data", "How many entries."), ageColumn}
}

func configMapRow(c *corev1.ConfigMap) []any {
	return []any{c.Name, int64(len(c.Data) + len(c.BinaryData)), c.CreationTimestamp}
}

func secretColumns() []Column {
	return []Column{nameColumn, text("Type", "What it is for."), text("Data", "How many entries."), ageColumn}
}

func secretRow(s *corev1.Secret) []any {
	return []any{s.Name, string(s.Type), int64(len(s.Data)), s.CreationTimestamp}
}

func serviceAccountColumns() []Column { return []Column{nameColumn, ageColumn} }

func serviceAccountRow(s *corev1.ServiceAccount) []any { return []any{s.Name, s.CreationTimestamp} }

func namespaceColumns() []Column {
	return []Column{nameColumn, text("Status", "Active or Terminating."), ageColumn}
}

func namespaceRow(n *corev1.Namespace) []any {
	return []any{n.Name, string(n.Status.Phase), n.CreationTimestamp}
}

func quotaColumns() []Column {
	return []Column{
		nameColumn,
		text("Request", "Used, of what may be requested."),
		text("Limit", "Used, of what may be the limit."),
		ageColumn,
	}
}

func quotaRow(q *corev1.ResourceQuota) []any {
	names := make([]string, 0, len(q.Status.Hard))
	for name := range q.Status.Hard {
		names = append(names, string(name))
	}
	sort.Strings(names)
	var requests, limits []string
	for _, name := range names {
		hard, used := q.Status.Hard[corev1.ResourceName(name)], q.Status.Used[corev1.ResourceName(name)]
		line := fmt.Sprintf("%s: %s/%s", name, used.String(), hard.String())
		if strings.HasPrefix(name, "limits") {
			limits = append(limits, line)
		} else {
			requests = append(requests, line)
		}
	}
	return []any{q.Name, strings.Join(requests, ", "), strings.Join(limits, ", "), q.CreationTimestamp}
}

func volumeColumns() []Column {
	return []Column{
		nameColumn,
		text("Capacity", "Size."),
		text("Access Modes", "RWO: one node, ROX: many read, RWX: many write, RWOP: one pod."),
		text("Reclaim Policy", "What becomes of it when its claim goes."),
		text("Status", "Available, Bound, Released or Failed."),
		text("Claim", "Whose it is."),
		text("StorageClass", "Its storage class."),
		text("VolumeAttributesClass", "Its class of attributes."),
		text("Reason", "Why it is in that status."),
		ageColumn,
		wide(text("VolumeMode", "Filesystem or Block.")),
	}
}

func volumeRow(v *corev1.PersistentVolume) []any {
	claim := ""
	if ref := v.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	phase := string(v.Status.Phase)
	if v.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	size := v.Spec.Capacity[corev1.ResourceStorage]
	return []any{
		v.Name, size.String(), accessModes(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy), phase, claim,
		classOf(v.Annotations, &v.Spec.StorageClassName), orUnset(v.Spec.VolumeAttributesClassName), v.Status.Reason,
		v.CreationTimestamp, modeOf(v.Spec.VolumeMode),
	}
}

func claimColumns() []Column {
	return []Column{
		nameColumn,
		text("Status", "Pending, Bound or Lost."),
		text("Volume", "The volume that it got."),
		text("Capacity", "The volume's size."),
		text("Access Modes", "RWO: one node, ROX: many read, RWX: many write, RWOP: one pod."),
		text("StorageClass", "Its storage class."),
		text("VolumeAttributesClass", "Its class of attributes."),
		ageColumn,
		wide(text("VolumeMode", "Filesystem or Block.")),
	}
}

func claimRow(c *corev1.PersistentVolumeClaim) []any {
	phase := string(c.Status.Phase)
	if c.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	capacity, modes := "", ""
	if c.Spec.VolumeName != "" {
		size := c.Status.Capacity[corev1.ResourceStorage]
		capacity, modes = size.String(), accessModes(c.Status.AccessModes)
	}
	return []any{
		c.Name, phase, c.Spec.VolumeName, capacity, modes, classOf(c.Annotations, c.Spec.StorageClassName),
		orUnset(c.Spec.VolumeAttributesClassName), c.CreationTimestamp, modeOf(c.Spec.VolumeMode),
	}
}

func classOf(annotations map[string]string, name *string) string {
	if class, ok := annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if name == nil {
		return ""
	}
	return *name
}

func orUnset(s *string) string {
	if s == nil || *s == "" {
		return unset
	}
	return *s
}

func modeOf(m *corev1.PersistentVolumeMode) string {
	if m == nil {
		return unset
	}
	return string(*m)
}

func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var out []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		for _, has := range modes {
			if has == m.mode {
				out = append(out, m.short)
				break
			}
		}
	}
	return strings.Join(out, ",")
}
