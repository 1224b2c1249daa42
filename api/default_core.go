package api

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultService fills in a Service for a cluster with one address family, IPv4.
func DefaultService(s *corev1.Service) {
	spec := &s.Spec
	fill(&spec.SessionAffinity, corev1.ServiceAffinityNone)
	if spec.SessionAffinity == corev1.ServiceAffinityNone {
		spec.SessionAffinityConfig = nil
	}
	if spec.SessionAffinity == corev1.ServiceAffinityClientIP {
		fillPtr(&spec.SessionAffinityConfig, corev1.SessionAffinityConfig{})
		fillPtr(&spec.SessionAffinityConfig.ClientIP, corev1.ClientIPConfig{})
		fillPtr(&spec.SessionAffinityConfig.ClientIP.TimeoutSeconds, corev1.DefaultClientIPServiceAffinitySeconds)
	}
	fill(&spec.Type, corev1.ServiceTypeClusterIP)
	for i := range spec.Ports {
		p := &spec.Ports[i]
		fill(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == (intstr.IntOrString{}) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer ||
		spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0 {
		fill(&spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	switch spec.Type {
	case corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		fillPtr(&spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		fillPtr(&spec.AllocateLoadBalancerNodePorts, true)
		for i := range s.Status.LoadBalancer.Ingress {
			if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" {
				fillPtr(&in.IPMode, corev1.LoadBalancerIPModeVIP)
			}
		}
	}
}

// DefaultNamespace labels a namespace with its name, for selectors.
func DefaultNamespace(ns *corev1.Namespace) {
	fill(&ns.Status.Phase, corev1.NamespaceActive)
	if ns.Name == "" {
		return
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

// DefaultSecret fills in a Secret's type, and takes over what was written as
// plain text.
func DefaultSecret(s *corev1.Secret) {
	fill(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = map[string][]byte{}
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

// DefaultNode makes all of a node's capacity allocatable unless it says less.
func DefaultNode(n *corev1.Node) {
	switch cidr, all := n.Spec.PodCIDR, n.Spec.PodCIDRs; {
	case cidr != "" && (len(all) == 0 || all[0] != cidr):
		n.Spec.PodCIDRs = []string{cidr}
	case len(all) > 0:
		n.Spec.PodCIDR = all[0]
	}
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
}

// DefaultEndpoints fills in the ports' protocol.
func DefaultEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			fill(&e.Subsets[i].Ports[j].Protocol, corev1.ProtocolTCP)
		}
	}
}

// DefaultLimitRange lets a container's default limit be the maximum, and its
// default request that limit, or failing that the minimum.
func DefaultLimitRange(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		if item.Default == nil {
			item.Default = corev1.ResourceList{}
		}
		if item.DefaultRequest == nil {
			item.DefaultRequest = corev1.ResourceList{}
		}
		fillResources(item.Default, item.Max)
		fillResources(item.DefaultRequest, item.Default)
		fillResources(item.DefaultRequest, item.Min)
	}
}

func fillResources(to, from corev1.ResourceList) {
	for name, q := range from {
		if _, ok := to[name]; !ok {
			to[name] = q.DeepCopy()
		}
	}
}

// DefaultPersistentVolume fills in a PersistentVolume.
func DefaultPersistentVolume(v *corev1.PersistentVolume) {
	fill(&v.Status.Phase, corev1.VolumePending)
	roundUp(v.Spec.Capacity)
	fill(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	fillPtr(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	if v.Spec.HostPath != nil {
		fillPtr(&v.Spec.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Spec.ISCSI != nil {
		fill(&v.Spec.ISCSI.ISCSIInterface, "default")
	}
	if v.Spec.AzureDisk != nil {
		defaultAzureDisk(v.Spec.AzureDisk)
	}
	if r := v.Spec.RBD; r != nil {
		fill(&r.RBDPool, "rbd")
		fill(&r.RadosUser, "admin")
		fill(&r.Keyring, "/etc/ceph/keyring")
	}
	if s := v.Spec.ScaleIO; s != nil {
		fill(&s.StorageMode, "ThinProvisioned")
		fill(&s.FSType, "xfs")
	}
}

// DefaultPersistentVolumeClaim fills in a claim. dataSource is the older form
// of dataSourceRef; what both can say, both say.
func DefaultPersistentVolumeClaim(c *corev1.PersistentVolumeClaim) {
	fill(&c.Status.Phase, corev1.ClaimPending)
	fillPtr(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundUp(c.Spec.Resources.Limits)
	roundUp(c.Spec.Resources.Requests)
}

// SetClaimSource makes the two fields that say what a new volume is filled from
// say the same. The older one always let be what it could not name; another
// namespace cannot be named yet. What old, or nil, has already may stay.
func SetClaimSource(c, old *corev1.PersistentVolumeClaim) {
	spec := &c.Spec
	var before corev1.PersistentVolumeClaimSpec
	if old != nil {
		before = old.Spec
	}
	elsewhere := spec.DataSourceRef != nil && spec.DataSourceRef.Namespace != nil && *spec.DataSourceRef.Namespace != ""
	if elsewhere && before.DataSourceRef == nil {
		spec.DataSourceRef = nil
	}
	if spec.DataSourceRef == nil && before.DataSource == nil && before.DataSourceRef == nil && !claimOrSnapshot(spec.DataSource) {
		spec.DataSource = nil
	}
	from, ref := spec.DataSource, spec.DataSourceRef
	if from != nil && ref == nil {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: from.APIGroup, Kind: from.Kind, Name: from.Name}
	}
	if ref != nil && from == nil && (ref.Namespace == nil || *ref.Namespace == "") {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ref.APIGroup, Kind: ref.Kind, Name: ref.Name}
	}
}

func claimOrSnapshot(from *corev1.TypedLocalObjectReference) bool {
	if from == nil {
		return false
	}
	group := ""
	if from.APIGroup != nil {
		group = *from.APIGroup
	}
	return from.Kind == "PersistentVolumeClaim" && group == "" || from.Kind == "VolumeSnapshot" && group == "snapshot.storage.k8s.io"
}
