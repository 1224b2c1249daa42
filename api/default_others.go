package api

import (
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultHorizontalPodAutoscalerV1 fills in an autoscaler in its older form;
// its metric follows with conversion.
func DefaultHorizontalPodAutoscalerV1(h *autoscalingv1.HorizontalPodAutoscaler) {
	fillPtr(&h.Spec.MinReplicas, 1)
}

// DefaultNetworkPolicy fills in a NetworkPolicy: it is about ingress always,
// and about egress when it has such rules.
func DefaultNetworkPolicy(p *networkingv1.NetworkPolicy) {
	tcp := func(ports []networkingv1.NetworkPolicyPort) {
		for i := range ports {
			fillPtr(&ports[i].Protocol, corev1.ProtocolTCP)
		}
	}
	for i := range p.Spec.Ingress {
		tcp(p.Spec.Ingress[i].Ports)
	}
	for i := range p.Spec.Egress {
		tcp(p.Spec.Egress[i].Ports)
	}
	if len(p.Spec.PolicyTypes) == 0 {
		p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		if len(p.Spec.Egress) > 0 {
			p.Spec.PolicyTypes = append(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
	}
}

// DefaultIngressClass fills in the scope of the parameters.
func DefaultIngressClass(c *networkingv1.IngressClass) {
	if c.Spec.Parameters != nil {
		fillPtr(&c.Spec.Parameters.Scope, networkingv1.IngressClassParametersReferenceScopeCluster)
	}
}

// DefaultStorageClass fills in a StorageClass.
func DefaultStorageClass(c *storagev1.StorageClass) {
	fillPtr(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
	fillPtr(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
}

// DefaultCSIDriver fills in a CSIDriver.
func DefaultCSIDriver(d *storagev1.CSIDriver) {
	fillPtr(&d.Spec.AttachRequired, true)
	fillPtr(&d.Spec.PodInfoOnMount, false)
	fillPtr(&d.Spec.StorageCapacity, false)
	fillPtr(&d.Spec.RequiresRepublish, false)
	fillPtr(&d.Spec.SELinuxMount, false)
	fillPtr(&d.Spec.PreventPodSchedulingIfMissing, false)
	fillPtr(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	if len(d.Spec.VolumeLifecycleModes) == 0 {
		d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// DefaultClusterRoleBinding fills in the groups of role and subjects.
func DefaultClusterRoleBinding(b *rbacv1.ClusterRoleBinding) {
	fill(&b.RoleRef.APIGroup, rbacv1.GroupName)
	defaultSubjects(b.Subjects)
}

// DefaultRoleBinding fills in the groups of role and subjects.
func DefaultRoleBinding(b *rbacv1.RoleBinding) {
	fill(&b.RoleRef.APIGroup, rbacv1.GroupName)
	defaultSubjects(b.Subjects)
}

func defaultSubjects(subjects []rbacv1.Subject) {
	for i := range subjects {
		if subjects[i].Kind == rbacv1.UserKind || subjects[i].Kind == rbacv1.GroupKind {
			fill(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}

// DefaultPriorityClass fills in the preemption policy.
func DefaultPriorityClass(c *schedulingv1.PriorityClass) {
	fillPtr(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
}

// DefaultEndpointSlice fills in the ports' name and protocol.
func DefaultEndpointSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		fillPtr(&s.Ports[i].Name, "")
		fillPtr(&s.Ports[i].Protocol, corev1.ProtocolTCP)
	}
}

// DefaultPodCertificateRequest fills in the longest life of the certificate.
func DefaultPodCertificateRequest(r *certificatesv1.PodCertificateRequest) {
	fillPtr(&r.Spec.MaxExpirationSeconds, 24*60*60)
}

// DefaultFlowSchema fills in the precedence.
func DefaultFlowSchema(f *flowcontrolv1.FlowSchema) {
	fill(&f.Spec.MatchingPrecedence, 1000)
}

// DefaultPriorityLevel fills in a PriorityLevelConfiguration.
func DefaultPriorityLevel(l *flowcontrolv1.PriorityLevelConfiguration) {
	if l.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt {
		fillPtr(&l.Spec.Exempt, flowcontrolv1.ExemptPriorityLevelConfiguration{})
		fillPtr(&l.Spec.Exempt.NominalConcurrencyShares, 0)
		fillPtr(&l.Spec.Exempt.LendablePercent, 0)
		return
	}
	if limited := l.Spec.Limited; limited != nil {
		fillPtr(&limited.NominalConcurrencyShares, 30)
		fillPtr(&limited.LendablePercent, 0)
		if q := limited.LimitResponse.Queuing; q != nil {
			fill(&q.Queues, 64)
			fill(&q.HandSize, 8)
			fill(&q.QueueLengthLimit, 50)
		}
	}
}

// DefaultMutatingWebhooks fills in a MutatingWebhookConfiguration.
func DefaultMutatingWebhooks(c *admissionv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		fillPtr(&w.FailurePolicy, admissionv1.Fail)
		fillPtr(&w.MatchPolicy, admissionv1.Equivalent)
		fillPtr(&w.NamespaceSelector, metav1.LabelSelector{})
		fillPtr(&w.ObjectSelector, metav1.LabelSelector{})
		fillPtr(&w.TimeoutSeconds, 10)
		fillPtr(&w.ReinvocationPolicy, admissionv1.NeverReinvocationPolicy)
		defaultWebhookRules(w.Rules)
		if w.ClientConfig.Service != nil {
			fillPtr(&w.ClientConfig.Service.Port, 443)
		}
	}
}

// DefaultValidatingWebhooks fills in a ValidatingWebhookConfiguration.
func DefaultValidatingWebhooks(c *admissionv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		fillPtr(&w.FailurePolicy, admissionv1.Fail)
		fillPtr(&w.MatchPolicy, admissionv1.Equivalent)
		fillPtr(&w.NamespaceSelector, metav1.LabelSelector{})
		fillPtr(&w.ObjectSelector, metav1.LabelSelector{})
		fillPtr(&w.TimeoutSeconds, 10)
		defaultWebhookRules(w.Rules)
		if w.ClientConfig.Service != nil {
			fillPtr(&w.ClientConfig.Service.Port, 443)
		}
	}
}

func defaultWebhookRules(rules []admissionv1.RuleWithOperations) {
	for i := range rules {
		fillPtr(&rules[i].Scope, admissionv1.AllScopes)
	}
}

// DefaultValidatingPolicy fills in a ValidatingAdmissionPolicy.
func DefaultValidatingPolicy(p *admissionv1.ValidatingAdmissionPolicy) {
	fillPtr(&p.Spec.FailurePolicy, admissionv1.Fail)
	defaultMatch(p.Spec.MatchConstraints)
}

// DefaultMutatingPolicy fills in a MutatingAdmissionPolicy.
func DefaultMutatingPolicy(p *admissionv1.MutatingAdmissionPolicy) {
	fillPtr(&p.Spec.FailurePolicy, admissionv1.Fail)
	defaultMatch(p.Spec.MatchConstraints)
}

// DefaultValidatingPolicyBinding fills in a ValidatingAdmissionPolicyBinding.
func DefaultValidatingPolicyBinding(b *admissionv1.ValidatingAdmissionPolicyBinding) {
	defaultMatch(b.Spec.MatchResources)
}

// DefaultMutatingPolicyBinding fills in a MutatingAdmissionPolicyBinding.
func DefaultMutatingPolicyBinding(b *admissionv1.MutatingAdmissionPolicyBinding) {
	defaultMatch(b.Spec.MatchResources)
}

func defaultMatch(m *admissionv1.MatchResources) {
	if m == nil {
		return
	}
	fillPtr(&m.MatchPolicy, admissionv1.Equivalent)
	fillPtr(&m.NamespaceSelector, metav1.LabelSelector{})
	fillPtr(&m.ObjectSelector, metav1.LabelSelector{})
	for i := range m.ResourceRules {
		fillPtr(&m.ResourceRules[i].Scope, admissionv1.AllScopes)
	}
	for i := range m.ExcludeResourceRules {
		fillPtr(&m.ExcludeResourceRules[i].Scope, admissionv1.AllScopes)
	}
}

// DefaultCustomResourceDefinition fills in names and conversion.
func DefaultCustomResourceDefinition(c *apiextensionsv1.CustomResourceDefinition) {
	if c.Spec.Names.Kind != "" {
		fill(&c.Spec.Names.Singular, strings.ToLower(c.Spec.Names.Kind))
		fill(&c.Spec.Names.ListKind, c.Spec.Names.Kind+"List")
	}
	fillPtr(&c.Spec.Conversion, apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter})
	if w := c.Spec.Conversion.Webhook; w != nil && w.ClientConfig != nil && w.ClientConfig.Service != nil {
		fillPtr(&w.ClientConfig.Service.Port, 443)
	}
	for _, v := range c.Spec.Versions {
		if v.Storage && len(c.Status.StoredVersions) == 0 {
			c.Status.StoredVersions = []string{v.Name}
		}
	}
}

// DefaultAPIService fills in the port of the service.
func DefaultAPIService(a *APIService) {
	if a.Spec.Service != nil {
		fillPtr(&a.Spec.Service.Port, 443)
	}
}

// DefaultResourceClaim fills in how many devices are meant.
func DefaultResourceClaim(c *resourcev1.ResourceClaim) { defaultDevices(&c.Spec.Devices) }

// DefaultResourceClaimTemplate does the same for a template.
func DefaultResourceClaimTemplate(t *resourcev1.ResourceClaimTemplate) {
	defaultDevices(&t.Spec.Spec.Devices)
}

func defaultDevices(d *resourcev1.DeviceClaim) {
	for i := range d.Requests {
		r := &d.Requests[i]
		if r.Exactly != nil {
			fill(&r.Exactly.AllocationMode, resourcev1.DeviceAllocationModeExactCount)
			if r.Exactly.AllocationMode == resourcev1.DeviceAllocationModeExactCount {
				fill(&r.Exactly.Count, 1)
			}
			defaultDeviceTolerations(r.Exactly.Tolerations)
		}
		for j := range r.FirstAvailable {
			s := &r.FirstAvailable[j]
			fill(&s.AllocationMode, resourcev1.DeviceAllocationModeExactCount)
			if s.AllocationMode == resourcev1.DeviceAllocationModeExactCount {
				fill(&s.Count, 1)
			}
			defaultDeviceTolerations(s.Tolerations)
		}
	}
}

func defaultDeviceTolerations(tolerations []resourcev1.DeviceToleration) {
	for i := range tolerations {
		fill(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

// DefaultDeviceTaintRule stamps the time of the taint.
func DefaultDeviceTaintRule(r *resourcev1.DeviceTaintRule) {
	fillPtr(&r.Spec.Taint.TimeAdded, metav1.Now().Rfc3339Copy())
}

// DefaultResourceSlice does the same for the taints of devices.
func DefaultResourceSlice(s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		for j := range s.Spec.Devices[i].Taints {
			fillPtr(&s.Spec.Devices[i].Taints[j].TimeAdded, metav1.Now().Rfc3339Copy())
		}
	}
}

// DefaultTokenRequest gives a token an hour, if nothing is said of it.
func DefaultTokenRequest(r *authenticationv1.TokenRequest) {
	fillPtr(&r.Spec.ExpirationSeconds, 60*60)
}
