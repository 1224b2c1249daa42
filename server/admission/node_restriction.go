package admission

import (
	"context"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/api"
)

// nodeRestriction holds kubelets to what is theirs: their node, its pods, its
// lease and device inventory, and tokens and certificates for its pods.
func nodeRestriction(reader Reader, authz authorizer.UnconditionalAuthorizer) Plugin {
	n := restriction{reader, authz}
	return Plugin{
		Name:   "NodeRestriction",
		On:     func(r *Request) bool { _, isNode := r.node(); return isNode && r.Operation != Connect },
		Mutate: n.check,
	}
}

type restriction struct {
	reader Reader
	authz  authorizer.UnconditionalAuthorizer
}

func (n restriction) check(ctx context.Context, r *Request) error {
	node, _ := r.node()
	if node == "" {
		return r.forbid("could not determine node from user %q", r.User.GetName())
	}
	resource := r.Resource.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	switch r.Resource.Group + ":" + resource {
	case ":pods":
		return n.checkPod(ctx, r, node)
	case ":pods/status":
		return checkPodStatus(r, node)
	case ":pods/eviction":
		return n.checkEviction(ctx, r, node)
	case ":nodes", ":nodes/status":
		return checkNode(r, node)
	case ":persistentvolumeclaims/status":
		return checkClaimStatus(r, node)
	case ":serviceaccounts/token":
		return n.checkToken(ctx, r, node)
	case "certificates.k8s.io:podcertificaterequests":
		return n.checkCertificateRequest(ctx, r, node)
	case "certificates.k8s.io:certificatesigningrequests":
		return checkSigningRequest(r, node)
	case "coordination.k8s.io:leases":
		if r.Namespace != corev1.NamespaceNodeLease {
			return r.forbid("can only access leases in the %q system namespace", corev1.NamespaceNodeLease)
		}
		if name := r.Meta().GetName(); name != node {
			return r.forbid("can only access node lease with the same name as the requesting node")
		}
	case "storage.k8s.io:csinodes":
		if r.Meta().GetName() != node {
			return r.forbid("can only access CSINode with the same name as the requesting node")
		}
	case "resource.k8s.io:resourceslices":
		return checkSlice(r, node)
	}
	return nil
}

func (n restriction) checkPod(ctx context.Context, r *Request, node string) error {
	switch r.Operation {
	case Create:
		pod, ok := r.Object.(*corev1.Pod)
		if !ok {
			return nil
		}
		return n.checkMirrorPod(ctx, r, pod, node)
	case Delete:
		pod, ok := r.Old.(*corev1.Pod)
		if ok && pod.Spec.NodeName != node {
			return r.forbid("node %q can only delete pods with spec.nodeName set to itself", node)
		}
		return nil
	}
	return r.forbid("unexpected operation %q, node %q can only create and delete mirror pods", r.Operation, node)
}

func (n restriction) checkMirrorPod(ctx context.Context, r *Request, pod *corev1.Pod, node string) error {
	if !api.IsMirror(pod) {
		return r.forbid("pod does not have %q annotation, node %q can only create mirror pods", corev1.MirrorPodAnnotationKey, node)
	}
	if pod.Spec.NodeName != node {
		return r.forbid("node %q can only create pods with spec.nodeName set to itself", node)
	}
	if len(pod.OwnerReferences) != 1 {
		return r.forbid("node %q can only create pods with a single owner reference set to itself", node)
	}
	owner := pod.OwnerReferences[0]
	if owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node {
		return r.forbid("node %q can only create pods with an owner reference set to itself", node)
	}
	if owner.Controller == nil || !*owner.Controller {
		return r.forbid("node %q can only create pods with a controller owner reference set to itself", node)
	}
	if owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion {
		return r.forbid("node %q must not set blockOwnerDeletion on an owner reference", node)
	}
	object, err := get[*corev1.Node](ctx, n.reader, core("nodes"), "", node)
	if err != nil {
		return r.forbid("get node %q: %w", node, err)
	}
	if object.UID != owner.UID {
		return r.forbid("node %s UID mismatch: expected %s got %s", node, owner.UID, object.UID)
	}
	if pod.Spec.ServiceAccountName != "" {
		return r.forbid("node %q can not create pods that reference a service account", node)
	}
	for ref := range podReferences(pod) {
		resource, _, _ := strings.Cut(ref, "/")
		return r.forbid("node %q can not create pods that reference %s", node, resource)
	}
	if len(pod.Spec.ResourceClaims) > 0 {
		return r.forbid("node %q can not create pods that reference resourceclaims", node)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ClusterTrustBundle != nil || s.ServiceAccountToken != nil
		}) {
			return r.forbid("node %q can not create pods that reference service account tokens or clustertrustbundles", node)
		}
	}
	return nil
}

func checkPodStatus(r *Request, node string) error {
	pod, ok := r.Object.(*corev1.Pod)
	old, hadOld := r.Old.(*corev1.Pod)
	if !ok || !hadOld {
		return nil
	}
	if old.Spec.NodeName != node {
		return r.forbid("node %q can only update pod status for pods with spec.nodeName set to itself", node)
	}
	if !equality.Semantic.DeepEqual(pod.Labels, old.Labels) {
		return r.forbid("node %q cannot update labels through pod status", node)
	}
	if !equality.Semantic.DeepEqual(pod.Status.ResourceClaimStatuses, old.Status.ResourceClaimStatuses) {
		return r.forbid("node %q cannot update resource claim statuses", node)
	}
	return nil
}

func (n restriction) checkEviction(ctx context.Context, r *Request, node string) error {
	name := r.Name
	if name == "" {
		if m := r.Meta(); m != nil {
			name = m.GetName()
		}
	}
	if name == "" {
		return r.forbid("could not determine pod from request data")
	}
	pod, err := get[*corev1.Pod](ctx, n.reader, core("pods"), r.Namespace, name)
	if err != nil {
		return r.forbid("get pod %q: %w", name, err)
	}
	if pod.Spec.NodeName != node {
		return r.forbid("node %s can only evict pods with spec.nodeName set to itself", node)
	}
	return nil
}

func checkNode(r *Request, node string) error {
	if name := r.Meta().GetName(); name != node {
		return r.forbid("node %q is not allowed to modify node %q", node, name)
	}
	object, ok := r.Object.(*corev1.Node)
	if !ok {
		return nil
	}
	old, _ := r.Old.(*corev1.Node)
	if r.Operation == Create {
		if bad := forbiddenLabels(object.Labels, nil); len(bad) > 0 {
			return r.forbid("node %q is not allowed to set the following labels: %s", node, strings.Join(bad, ", "))
		}
		if len(object.OwnerReferences) > 0 {
			return r.forbid("node %q is not allowed to set ownerReferences", node)
		}
		return nil
	}
	if r.Operation != Update || old == nil {
		return nil
	}
	if !equality.Semantic.DeepEqual(object.OwnerReferences, old.OwnerReferences) {
		return r.forbid("node %q is not allowed to modify ownerReferences", node)
	}
	if !equality.Semantic.DeepEqual(object.Spec.Taints, old.Spec.Taints) {
		return r.forbid("node %q is not allowed to modify taints", node)
	}
	if bad := forbiddenLabels(object.Labels, old.Labels); len(bad) > 0 {
		return r.forbid("is not allowed to modify labels: %s", strings.Join(bad, ", "))
	}
	return nil
}

// forbiddenLabels are the labels that differ and that a kubelet may not set:
// those of Kubernetes' own domains, but for the ones that describe the machine.
func forbiddenLabels(labels, old map[string]string) []string {
	changed := sets.New[string]()
	for k, v := range labels {
		if was, had := old[k]; !had || was != v {
			changed.Insert(k)
		}
	}
	for k := range old {
		if _, has := labels[k]; !has {
			changed.Insert(k)
		}
	}
	var bad []string
	for _, k := range sets.List(changed) {
		if !kubeletMaySet(k) {
			bad = append(bad, k)
		}
	}
	return bad
}

func kubeletMaySet(label string) bool {
	domain, _, ok := strings.Cut(label, "/")
	if !ok {
		return true
	}
	within := func(parent string) bool { return domain == parent || strings.HasSuffix(domain, "."+parent) }
	if within("node-restriction.kubernetes.io") {
		return false
	}
	if !within("kubernetes.io") && !within("k8s.io") {
		return true
	}
	if within("kubelet.kubernetes.io") || within("node.kubernetes.io") {
		return true
	}
	return slices.Contains([]string{
		corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable, corev1.LabelInstanceType,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelWindowsBuild, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}, label)
}

// checkClaimStatus lets a kubelet tell how the expansion of a volume goes.
func checkClaimStatus(r *Request, node string) error {
	claim, ok := r.Object.(*corev1.PersistentVolumeClaim)
	old, hadOld := r.Old.(*corev1.PersistentVolumeClaim)
	if r.Operation != Update || !ok || !hadOld {
		return r.forbid("unexpected operation %q", r.Operation)
	}
	a, b := claim.DeepCopy(), old.DeepCopy()
	for _, c := range []*corev1.PersistentVolumeClaim{a, b} {
		c.ManagedFields = nil
		c.Status.Capacity, c.Status.Conditions = nil, nil
		c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil
		c.Status.CurrentVolumeAttributesClassName, c.Status.ModifyVolumeStatus = nil, nil
		c.ResourceVersion = ""
	}
	if !equality.Semantic.DeepEqual(a, b) {
		return r.forbid("node %q is not allowed to update fields other than status.quantity and status.conditions", node)
	}
	return nil
}

func (n restriction) checkToken(ctx context.Context, r *Request, node string) error {
	request, ok := r.Object.(*authenticationv1.TokenRequest)
	if !ok {
		return nil
	}
	ref := request.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return r.forbid("node requested token not bound to a pod")
	}
	if ref.UID == "" {
		return r.forbid("node requested token with a pod binding without a uid")
	}
	pod, err := get[*corev1.Pod](ctx, n.reader, core("pods"), r.Namespace, ref.Name)
	if err != nil {
		return r.forbid("get pod %q: %w", ref.Name, err)
	}
	if pod.UID != ref.UID {
		return r.forbid("the UID in the bound object reference (%s) does not match the UID in record. The object might have been deleted and then recreated", ref.UID)
	}
	if pod.Spec.NodeName != node {
		return r.forbid("node requested token bound to a pod scheduled on a different node")
	}
	return n.checkAudiences(ctx, r, pod, request.Spec.Audiences)
}

// checkAudiences allows those that the pod's own volumes ask for.
func (n restriction) checkAudiences(ctx context.Context, r *Request, pod *corev1.Pod, audiences []string) error {
	allowed := sets.New("")
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil {
					allowed.Insert(s.ServiceAccountToken.Audience)
				}
			}
		case v.CSI != nil:
			n.allowDriver(ctx, v.CSI.Driver, allowed)
		case v.PersistentVolumeClaim != nil:
			n.allowClaim(ctx, r.Namespace, v.PersistentVolumeClaim.ClaimName, allowed)
		case v.Ephemeral != nil:
			n.allowClaim(ctx, r.Namespace, pod.Name+"-"+v.Name, allowed)
		}
	}
	for _, a := range audiences {
		if !allowed.Has(a) {
			return r.forbid("audience %q not found in pod spec volume", a)
		}
	}
	return nil
}

func (n restriction) allowDriver(ctx context.Context, name string, allowed sets.Set[string]) {
	driver, err := get[*storagev1.CSIDriver](ctx, n.reader, schema.GroupResource{Group: "storage.k8s.io", Resource: "csidrivers"}, "", name)
	if err != nil {
		return // a driver without an object asks for no tokens
	}
	for _, t := range driver.Spec.TokenRequests {
		allowed.Insert(t.Audience)
	}
}

func (n restriction) allowClaim(ctx context.Context, namespace, name string, allowed sets.Set[string]) {
	claim, err := get[*corev1.PersistentVolumeClaim](ctx, n.reader, core("persistentvolumeclaims"), namespace, name)
	if err != nil || claim.Spec.VolumeName == "" {
		return
	}
	pv, err := get[*corev1.PersistentVolume](ctx, n.reader, core("persistentvolumes"), "", claim.Spec.VolumeName)
	if err == nil && pv.Spec.CSI != nil {
		n.allowDriver(ctx, pv.Spec.CSI.Driver, allowed)
	}
}

func checkSlice(r *Request, node string) error {
	obj := r.Object
	if obj == nil {
		obj = r.Old
	}
	slice, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return nil
	}
	if slice.Spec.NodeName == nil || *slice.Spec.NodeName != node {
		verb := map[Operation]string{Create: "create", Update: "modify", Delete: "delete"}[r.Operation]
		return r.forbid("can only %s ResourceSlice with the same NodeName as the requesting node", verb)
	}
	return nil
}
