package api

import (
	"maps"
	"slices"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	componentresource "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// DefaultPod fills in a pod. Beyond its spec, a pod (but not a template) has
// its requests follow its limits, and its host ports its container ports.
func DefaultPod(pod *corev1.Pod) {
	spec := &pod.Spec
	fillPtr(&spec.EnableServiceLinks, true)
	DefaultPodSpec(spec)
	if *spec.TerminationGracePeriodSeconds < 0 {
		spec.TerminationGracePeriodSeconds = ptr.To[int64](1)
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			requestWhatIsLimited(&c.Resources)
			if spec.HostNetwork {
				for j := range c.Ports {
					fill(&c.Ports[j].HostPort, c.Ports[j].ContainerPort)
				}
			}
		}
	}
	defaultPodIPs(&pod.Status)
}

// defaultPodIPs makes the list of addresses and the older field of one agree, for
// writers that know only one of them. If both are set, the older one counts.
func defaultPodIPs(s *corev1.PodStatus) {
	if s.PodIP == "" && len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
	if s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP) {
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
}

func requestWhatIsLimited(r *corev1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// DefaultPodLevelResources fills in what the pod as a whole asks for and may use from
// what its containers do, if it says anything of that. It is no default like the others:
// it waits for the containers that admission adds, and is nobody's.
func DefaultPodLevelResources(pod *corev1.Pod) {
	spec := &pod.Spec
	r := spec.Resources
	if r == nil || len(r.Limits) == 0 && len(r.Requests) == 0 {
		return
	}
	plain := &corev1.Pod{Spec: corev1.PodSpec{Containers: spec.Containers, InitContainers: spec.InitContainers}}
	limits := componentresource.AggregateContainerLimits(plain, componentresource.PodResourcesOptions{})
	for name, q := range limits {
		if _, asked := r.Requests[name]; isHugePages(name) && !asked {
			fillAmount(&r.Limits, name, q)
		}
	}
	for name, q := range componentresource.AggregateContainerRequests(plain, componentresource.PodResourcesOptions{}) {
		if overcommittable(name) {
			fillAmount(&r.Requests, name, q)
		}
	}
	for name, q := range r.Limits {
		fillAmount(&r.Requests, name, q)
	}
	for name, asked := range r.Requests {
		if limit, ok := limits[name]; ok && limitedEverywhere(spec, name) {
			if asked.Cmp(limit) > 0 {
				limit = asked
			}
			fillAmount(&r.Limits, name, limit)
		}
	}
}

// fillAmount adds an amount, if it is of what a pod as a whole can have, and not there.
func fillAmount(list *corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) {
	if _, ok := (*list)[name]; ok || !componentresource.IsSupportedPodLevelResource(name) {
		return
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = q.DeepCopy()
}

// limitedEverywhere tells if each container has a limit.
func limitedEverywhere(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		if _, ok := c.Resources.Limits[name]; !ok {
			return false
		}
	}
	return true
}

// DefaultPodSpec fills in the spec of a pod or a template.
func DefaultPodSpec(spec *corev1.PodSpec) {
	fill(&spec.DNSPolicy, corev1.DNSClusterFirst)
	fill(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	fill(&spec.SchedulerName, corev1.DefaultSchedulerName)
	fillPtr(&spec.SecurityContext, corev1.PodSecurityContext{})
	fillPtr(&spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	// serviceAccount is the older name of serviceAccountName; they are kept equal.
	fill(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	roundUp(spec.Overhead)
	if spec.Resources != nil {
		roundUp(spec.Resources.Limits)
		roundUp(spec.Resources.Requests)
	}
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i])
	}
	eachContainer(spec, defaultContainer)
}

func defaultContainer(c *corev1.Container) {
	fill(&c.ImagePullPolicy, pullPolicy(c.Image))
	fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				fillPtr(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	defaultProbe(c.LivenessProbe)
	defaultProbe(c.ReadinessProbe)
	defaultProbe(c.StartupProbe)
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

// pullPolicy is Always for images whose tag moves. What is no name of an image is
// refused elsewhere, or by the node.
func pullPolicy(image string) corev1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return corev1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	fill(&p.TimeoutSeconds, 1)
	fill(&p.PeriodSeconds, 10)
	fill(&p.SuccessThreshold, 1)
	fill(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		fillPtr(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(g *corev1.HTTPGetAction) {
	if g != nil {
		fill(&g.Path, "/")
		fill(&g.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultFieldRef(ref *corev1.ObjectFieldSelector) {
	if ref != nil {
		fill(&ref.APIVersion, "v1")
	}
}

// roundUp brings quantities to whole thousandths, the finest that is stored.
func roundUp(list corev1.ResourceList) {
	for name, q := range list {
		before := q.DeepCopy()
		if q.RoundUp(resource.Milli); q.Cmp(before) != 0 {
			list[name] = q
		}
	}
}

func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		fillPtr(&v.HostPath.Type, corev1.HostPathUnset)
	case v.Secret != nil:
		fillPtr(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	case v.ConfigMap != nil:
		fillPtr(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		fillPtr(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		for i := range v.DownwardAPI.Items {
			defaultFieldRef(v.DownwardAPI.Items[i].FieldRef)
		}
	case v.Projected != nil:
		defaultProjected(v.Projected)
	case v.Ephemeral != nil:
		if t := v.Ephemeral.VolumeClaimTemplate; t != nil {
			fillPtr(&t.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
		}
	case v.Image != nil:
		fill(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	default:
		defaultNetworkVolume(v)
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	fillPtr(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		s := &p.Sources[i]
		if s.DownwardAPI != nil {
			for j := range s.DownwardAPI.Items {
				defaultFieldRef(s.DownwardAPI.Items[j].FieldRef)
			}
		}
		if s.ServiceAccountToken != nil {
			fillPtr(&s.ServiceAccountToken.ExpirationSeconds, 60*60)
		}
	}
}

func defaultNetworkVolume(v *corev1.Volume) {
	switch {
	case v.ISCSI != nil:
		fill(&v.ISCSI.ISCSIInterface, "default")
	case v.RBD != nil:
		fill(&v.RBD.RBDPool, "rbd")
		fill(&v.RBD.RadosUser, "admin")
		fill(&v.RBD.Keyring, "/etc/ceph/keyring")
	case v.AzureDisk != nil:
		defaultAzureDisk(v.AzureDisk)
	case v.ScaleIO != nil:
		fill(&v.ScaleIO.StorageMode, "ThinProvisioned")
		fill(&v.ScaleIO.FSType, "xfs")
	}
}

// DefaultPodTemplate fills in a PodTemplate object.
func DefaultPodTemplate(t *corev1.PodTemplate) { DefaultPodSpec(&t.Template.Spec) }

// DefaultReplicationController fills in a ReplicationController, whose selector
// and labels come from its template.
func DefaultReplicationController(rc *corev1.ReplicationController) {
	if t := rc.Spec.Template; t != nil {
		if len(rc.Spec.Selector) == 0 {
			rc.Spec.Selector = maps.Clone(t.Labels)
		}
		if len(rc.Labels) == 0 {
			rc.Labels = maps.Clone(t.Labels)
		}
		DefaultPodSpec(&t.Spec)
	}
	fillPtr(&rc.Spec.Replicas, 1)
}

func percent(s string) intstr.IntOrString { return intstr.FromString(s) }

func defaultAzureDisk(d *corev1.AzureDiskVolumeSource) {
	fillPtr(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	fillPtr(&d.Kind, corev1.AzureSharedBlobDisk)
	fillPtr(&d.FSType, "ext4")
	fillPtr(&d.ReadOnly, false)
}
