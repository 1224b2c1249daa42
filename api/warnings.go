package api

import (
	"crypto/tls"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Warnings are functions WarnX(obj, old) that name what is odd about an object that
// was written, but not wrong. old is nil on create.

// warnings gathers them.
type warnings []string

func (w *warnings) add(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

// say tells about a field.
func (w *warnings) say(at *field.Path, text string) { w.add("%s: %s", at, text) }

// ip and cidr tell of addresses that are written as others would not.
func (w *warnings) ip(ip string, at *field.Path) {
	*w = append(*w, validation.GetWarningsForIP(at, ip)...)
}
func (w *warnings) cidr(cidr string, at *field.Path) {
	*w = append(*w, validation.GetWarningsForCIDR(at, cidr)...)
}

// name wants a name that a host could have too.
func (w *warnings) name(name, of string) {
	if texts := validation.IsDNS1123Label(name); len(texts) > 0 {
		w.add("metadata.name: this is used in %s, which can result in surprising behavior; a DNS label is recommended: %v", of, texts)
	}
}

const podNames = "Pod names and hostnames"

// claim looks at how much a claim wants.
func (w *warnings) claim(spec *corev1.PersistentVolumeClaimSpec, at *field.Path) {
	w.fraction(spec.Resources.Requests, corev1.ResourceStorage, at.Child("resources", "requests"))
	w.fraction(spec.Resources.Limits, corev1.ResourceStorage, at.Child("resources", "limits"))
}

// workload is what there is to warn of about a kind that makes pods.
func workload(name string, created, changed bool, t *corev1.PodTemplateSpec) []string {
	var w warnings
	if created {
		w.name(name, podNames)
	}
	if (created || changed) && t != nil {
		w = append(w, warnTemplate(t, specPath().Child("template"))...)
	}
	return w
}

// WarnDeployment is the warnings about a Deployment.
func WarnDeployment(d, old *appsv1.Deployment) []string {
	return workload(d.Name, old == nil, old != nil && d.Generation != old.Generation, &d.Spec.Template)
}

// WarnReplicaSet is the warnings about a ReplicaSet.
func WarnReplicaSet(r, old *appsv1.ReplicaSet) []string {
	return workload(r.Name, old == nil, old != nil && r.Generation != old.Generation, &r.Spec.Template)
}

// WarnReplicationController is the warnings about a ReplicationController: after a
// change, upstream looks at the template of before.
func WarnReplicationController(rc, old *corev1.ReplicationController) []string {
	if old == nil {
		return workload(rc.Name, true, false, rc.Spec.Template)
	}
	return workload(rc.Name, false, rc.Generation != old.Generation, old.Spec.Template)
}

// WarnPodTemplate is the warnings about a PodTemplate.
func WarnPodTemplate(t, old *corev1.PodTemplate) []string {
	if old != nil && t.Generation == old.Generation {
		return nil
	}
	return warnTemplate(&t.Template, field.NewPath("template"))
}

// WarnDaemonSet is the warnings about a DaemonSet.
func WarnDaemonSet(d, old *appsv1.DaemonSet) []string {
	const count = appsv1.DeprecatedTemplateGeneration
	if old != nil && d.Annotations[count] == old.Annotations[count] {
		return nil
	}
	return warnTemplate(&d.Spec.Template, specPath().Child("template"))
}

// WarnStatefulSet is the warnings about a StatefulSet.
func WarnStatefulSet(s, old *appsv1.StatefulSet) []string {
	var w warnings
	if old == nil || s.Generation != old.Generation {
		w = warnTemplate(&s.Spec.Template, specPath().Child("template"))
	}
	for i := range s.Spec.VolumeClaimTemplates {
		at := specPath().Child("volumeClaimTemplates").Index(i)
		if old != nil {
			at = at.Child("Spec")
		}
		w.claim(&s.Spec.VolumeClaimTemplates[i].Spec, at)
	}
	if n := s.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
		w.say(specPath().Child("revisionHistoryLimit"), "a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return w
}

// WarnJob is the warnings about a Job.
func WarnJob(j, old *batchv1.Job) []string {
	var w warnings
	if old == nil {
		w.name(j.Name, podNames)
	}
	if old == nil || j.Generation != old.Generation {
		w.job(&j.Spec, specPath())
	}
	return w
}

func (w *warnings) job(spec *batchv1.JobSpec, at *field.Path) {
	const manyCompletions, manyAtOnce = 100_000, 10_000
	indexed := spec.CompletionMode != nil && *spec.CompletionMode == batchv1.IndexedCompletion
	if indexed && spec.Completions != nil && *spec.Completions > manyCompletions && spec.Parallelism != nil && *spec.Parallelism > manyAtOnce {
		w.say(at, "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	*w = append(*w, warnTemplate(&spec.Template, at.Child("template"))...)
}

// WarnCronJob is the warnings about a CronJob.
func WarnCronJob(c, old *batchv1.CronJob) []string {
	var w warnings
	if old == nil {
		w.name(c.Name, podNames)
	}
	if old == nil || c.Generation != old.Generation {
		w.job(&c.Spec.JobTemplate.Spec, specPath().Child("jobTemplate", "spec"))
	}
	if old != nil && strings.Contains(c.Spec.Schedule, "TZ") {
		w.add("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details")
	}
	return w
}

// WarnService is the warnings about a Service.
func WarnService(s, _ *corev1.Service) []string {
	var w warnings
	at, spec := specPath(), &s.Spec
	if _, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]; ok {
		w.add("annotation %s is deprecated, please use %s instead", corev1.DeprecatedAnnotationTopologyAwareHints, corev1.AnnotationTopologyMode)
	}
	if spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone {
		for i, ip := range spec.ClusterIPs {
			w.ip(ip, at.Child("clusterIPs").Index(i))
		}
	}
	outside := spec.Type == corev1.ServiceTypeExternalName
	headless := spec.Type == corev1.ServiceTypeClusterIP && spec.ClusterIP == corev1.ClusterIPNone
	for _, ignored := range []struct {
		set  bool
		name string
	}{
		{spec.LoadBalancerIP != "", "loadBalancerIP"}, {len(spec.ExternalIPs) > 0, "externalIPs"},
		{spec.SessionAffinity != corev1.ServiceAffinityNone, "SessionAffinity"},
	} {
		if headless && ignored.set {
			w.add("spec.%s is ignored for headless services", ignored.name)
		}
	}
	for i, ip := range spec.ExternalIPs {
		w.ip(ip, at.Child("externalIPs").Index(i))
	}
	if len(spec.ExternalIPs) > 0 && !headless && !outside {
		w.add("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if spec.LoadBalancerIP != "" {
		w.ip(spec.LoadBalancerIP, at.Child("loadBalancerIP"))
	}
	for i, cidr := range spec.LoadBalancerSourceRanges {
		w.cidr(cidr, at.Child("loadBalancerSourceRanges").Index(i))
	}
	if outside && len(spec.ExternalIPs) > 0 {
		w.add(`spec.externalIPs is ignored when spec.type is "ExternalName"`)
	}
	if !outside && spec.ExternalName != "" {
		w.add(`spec.externalName is ignored when spec.type is not "ExternalName"`)
	}
	if d := spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		w.add(`spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return w
}

// WarnServiceStatus is the warnings about the addresses of a load balancer.
func WarnServiceStatus(s *corev1.Service) []string {
	var w warnings
	for n, p := range s.Status.LoadBalancer.Ingress {
		w.entry(p.IP, n)
	}
	return w
}

// WarnEndpoints is the warnings about Endpoints; our controller knows how to write
// addresses.
func WarnEndpoints(e, _ *corev1.Endpoints) []string {
	if e.Labels["endpoints.kubernetes.io/managed-by"] == "endpoint-controller" {
		return nil
	}
	var w warnings
	for i, s := range e.Subsets {
		at := field.NewPath("subsets").Index(i)
		for j, a := range s.Addresses {
			w.ip(a.IP, at.Child("addresses").Index(j).Child("ip"))
		}
		for j, a := range s.NotReadyAddresses {
			w.ip(a.IP, at.Child("notReadyAddresses").Index(j).Child("ip"))
		}
	}
	return w
}

// WarnEndpointSlice is the warnings about an EndpointSlice.
func WarnEndpointSlice(s, old *discoveryv1.EndpointSlice) []string {
	var w warnings
	if old == nil && s.AddressType == discoveryv1.AddressTypeFQDN {
		w.say(specPath().Child("addressType"), "FQDN endpoints are deprecated")
	}
	if by := s.Labels[discoveryv1.LabelManagedBy]; by == "endpointslice-controller.k8s.io" || by == "endpointslicemirroring-controller.k8s.io" {
		return w
	}
	for i, e := range s.Endpoints {
		for j, a := range e.Addresses {
			w.ip(a, field.NewPath("endpoints").Index(i).Child("addresses").Index(j))
		}
	}
	return w
}

// WarnNode is the warnings about a Node.
func WarnNode(n, _ *corev1.Node) []string {
	var w warnings
	if n.Spec.ConfigSource != nil {
		w.say(specPath().Child("configSource"), "the feature is removed")
	}
	if n.Spec.DoNotUseExternalID != "" {
		w.say(specPath().Child("externalID"), "this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range n.Spec.PodCIDRs {
		w.cidr(cidr, specPath().Child("podCIDRs").Index(i))
	}
	return w
}

// WarnSecret is the warnings about a Secret: a certificate and a key that are none.
func WarnSecret(s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// WarnServiceAccount is the warnings about a ServiceAccount.
func WarnServiceAccount(a, old *corev1.ServiceAccount) []string {
	const key = "kubernetes.io/enforce-mountable-secrets"
	had := false
	if old != nil {
		_, had = old.Annotations[key]
	}
	if _, ok := a.Annotations[key]; !ok || had {
		return nil
	}
	return []string{annotationPath(key).String() + ": deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"}
}

// WarnResourceQuota is the warnings about a new ResourceQuota.
func WarnResourceQuota(q, old *corev1.ResourceQuota) []string {
	var w warnings
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceStorage, corev1.ResourceEphemeralStorage} {
		asked, limited := "requests."+name, "limits."+name
		request, ok := q.Spec.Hard[asked]
		if !ok && (name == corev1.ResourceCPU || name == corev1.ResourceMemory) {
			if request, ok = q.Spec.Hard[name]; ok {
				asked = name
			}
		}
		limit, both := q.Spec.Hard[limited]
		if old == nil && ok && both && request.Cmp(limit) > 0 {
			w.add("ResourceQuota %s (%s) should be less than %s (%s)", asked, request.String(), limited, limit.String())
		}
	}
	return w
}

// WarnPersistentVolume is the warnings about a PersistentVolume.
func WarnPersistentVolume(v, _ *corev1.PersistentVolume) []string {
	var w warnings
	for _, a := range []struct{ key, text string }{
		{corev1.BetaStorageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{corev1.MountOptionAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, ok := v.Annotations[a.key]; ok {
			w.say(annotationPath(a.key), a.text)
		}
	}
	at, spec := specPath(), &v.Spec
	if spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		w.say(at.Child("persistentVolumeReclaimPolicy"), "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := spec.NodeAffinity; a != nil && a.Required != nil {
		for i := range a.Required.NodeSelectorTerms {
			w.nodeTerm(&a.Required.NodeSelectorTerms[i], false, at.Child("nodeAffinity", "required", "nodeSelectorTerms").Index(i))
		}
	}
	w.gone([]gone{
		{spec.CephFS != nil, "cephfs", goneIn31}, {spec.PhotonPersistentDisk != nil, "photonPersistentDisk", goneIn16},
		{spec.ScaleIO != nil, "scaleIO", goneIn22}, {spec.StorageOS != nil, "storageOS", goneIn25},
		{spec.Glusterfs != nil, "glusterfs", goneIn26}, {spec.RBD != nil, "rbd", goneIn31},
	}, at)
	return w
}

// WarnPersistentVolumeClaim is the warnings about a claim.
func WarnPersistentVolumeClaim(c, _ *corev1.PersistentVolumeClaim) []string {
	var w warnings
	if _, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		w.say(annotationPath(corev1.BetaStorageClassAnnotation), `deprecated since v1.8; use "storageClassName" attribute instead`)
	}
	w.claim(&c.Spec, specPath())
	return w
}

// WarnIngress is the warnings about a new Ingress.
func WarnIngress(i, old *networkingv1.Ingress) []string {
	if _, ok := i.Annotations[IngressClassAnnotation]; !ok || i.Spec.IngressClassName != nil || old != nil {
		return nil
	}
	return []string{fmt.Sprintf("annotation %q is deprecated, please use 'spec.ingressClassName' instead", IngressClassAnnotation)}
}

// WarnIngressStatus is the warnings about the addresses of an Ingress.
func WarnIngressStatus(i *networkingv1.Ingress) []string {
	var w warnings
	for n, p := range i.Status.LoadBalancer.Ingress {
		w.entry(p.IP, n)
	}
	return w
}

// entry tells of an address that traffic enters the cluster by.
func (w *warnings) entry(ip string, n int) {
	if ip != "" {
		w.ip(ip, statusPath().Child("loadBalancer", "ingress").Index(n))
	}
}

// WarnNetworkPolicy is the warnings about a NetworkPolicy.
func WarnNetworkPolicy(p, _ *networkingv1.NetworkPolicy) []string {
	var w warnings
	for _, rule := range policyRules(&p.Spec, specPath()) {
		for i, peer := range rule.peers {
			if peer.IPBlock == nil {
				continue
			}
			at := rule.at.Child(rule.side).Index(i).Child("ipBlock")
			w.cidr(peer.IPBlock.CIDR, at.Child("cidr"))
			for j, except := range peer.IPBlock.Except {
				w.cidr(except, at.Child("except").Index(j))
			}
		}
	}
	return w
}
