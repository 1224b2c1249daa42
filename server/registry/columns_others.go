package registry

import (
	"fmt"
	"sort"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	migrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/api"
)

func apiServiceColumns() []Column {
	return []Column{nameColumn, text("Service", "Who serves it."), text("Available", "Whether that answers."), ageColumn}
}

func apiServiceRow(a *api.APIService) []any {
	service := "Local"
	if s := a.Spec.Service; s != nil {
		service = s.Namespace + "/" + s.Name
	}
	available := "Unknown"
	for _, c := range a.Status.Conditions {
		if c.Type != api.APIServiceAvailable {
			continue
		}
		available = c.Status
		if c.Status != "True" {
			available = fmt.Sprintf("%s (%s)", c.Status, c.Reason)
		}
	}
	return []any{a.Name, service, available, a.CreationTimestamp}
}

func csrColumns() []Column {
	return []Column{
		nameColumn, ageColumn,
		text("SignerName", "Who is asked to sign."),
		text("Requestor", "Who asks."),
		text("RequestedDuration", "For how long."),
		text("Condition", "How far it is."),
	}
}

func csrRow(r *csr) []any {
	lasting := none
	if s := r.Spec.ExpirationSeconds; s != nil {
		lasting = api.HumanDuration(time.Duration(*s) * time.Second)
	}
	return []any{r.Name, r.CreationTimestamp, orElse(r.Spec.SignerName, none), r.Spec.Username, lasting, csrWord(r)}
}

func csrWord(r *csr) string {
	var approved, denied, failed bool
	for _, c := range r.Status.Conditions {
		switch c.Type {
		case certificatesv1.CertificateApproved:
			approved = true
		case certificatesv1.CertificateDenied:
			denied = true
		case certificatesv1.CertificateFailed:
			failed = true
		}
	}
	word := "Pending"
	switch {
	case denied:
		word = "Denied"
	case approved:
		word = "Approved"
	}
	if failed {
		word += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		word += ",Issued"
	}
	return word
}

func trustBundleColumns() []Column {
	return []Column{nameColumn, text("SignerName", "Whose certificates it vouches for.")}
}

func trustBundleRow(b *certificatesv1.ClusterTrustBundle) []any {
	return []any{b.Name, orElse(b.Spec.SignerName, none)}
}

func podCertificateColumns() []Column {
	return []Column{
		nameColumn,
		text("PodName", "The pod that it is for."),
		text("ServiceAccountName", "The pod's account."),
		text("NodeName", "The pod's node."),
		text("SignerName", "Who is asked to sign."),
		text("State", "How far it is."),
		text("UnverifiedUserAnnotations", "What the pod's author added."),
	}
}

func podCertificateRow(r *certificatesv1.PodCertificateRequest) []any {
	state := "Pending"
	for _, c := range r.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			state = c.Type
		}
	}
	return []any{
		r.Name, r.Spec.PodName, r.Spec.ServiceAccountName, string(r.Spec.NodeName), r.Spec.SignerName, state,
		labelText(r.Spec.UnverifiedUserAnnotations),
	}
}

func labelText(m map[string]string) string {
	if len(m) == 0 {
		return none
	}
	var all []string
	for key, value := range m {
		all = append(all, key+"="+value)
	}
	sort.Strings(all)
	return strings.Join(all, ",")
}

func budgetColumns() []Column {
	return []Column{
		nameColumn,
		text("Min Available", "Pods that must stay."),
		text("Max Unavailable", "Pods that may go."),
		number("Allowed Disruptions", "Pods that may be evicted now."),
		ageColumn,
	}
}

func budgetRow(b *policyv1.PodDisruptionBudget) []any {
	least, most := "N/A", "N/A"
	if b.Spec.MinAvailable != nil {
		least = b.Spec.MinAvailable.String()
	}
	if b.Spec.MaxUnavailable != nil {
		most = b.Spec.MaxUnavailable.String()
	}
	return []any{b.Name, least, most, int64(b.Status.DisruptionsAllowed), b.CreationTimestamp}
}

func bindingColumns() []Column {
	return []Column{
		nameColumn, text("Role", "The role that is given."), ageColumn,
		wide(text("Users", "To these users.")), wide(text("Groups", "To these groups.")), wide(text("ServiceAccounts", "To these accounts.")),
	}
}

func clusterRoleBindingRow(b *rbacv1.ClusterRoleBinding) []any {
	return bindingCells(b.ObjectMeta, b.RoleRef, b.Subjects)
}

func roleBindingRow(b *rbacv1.RoleBinding) []any {
	return bindingCells(b.ObjectMeta, b.RoleRef, b.Subjects)
}

func bindingCells(m metav1.ObjectMeta, role rbacv1.RoleRef, subjects []rbacv1.Subject) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{
		m.Name, role.Kind + "/" + role.Name, m.CreationTimestamp,
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}

func csiDriverColumns() []Column {
	return []Column{
		nameColumn,
		boolean("AttachRequired", "Whether volumes are attached before they are mounted."),
		boolean("PodInfoOnMount", "Whether the driver is told of the pod."),
		boolean("StorageCapacity", "Whether it reports capacity."),
		text("TokenRequests", "Audiences of the tokens that it gets."),
		boolean("RequiresRepublish", "Whether volumes are published again and again."),
		text("Modes", "Lives that its volumes may have."),
		ageColumn,
	}
}

func csiDriverRow(d *storagev1.CSIDriver) []any {
	var modes, audiences []string
	for _, m := range d.Spec.VolumeLifecycleModes {
		modes = append(modes, string(m))
	}
	for _, t := range d.Spec.TokenRequests {
		audiences = append(audiences, t.Audience)
	}
	return []any{
		d.Name, flag(d.Spec.AttachRequired, true), flag(d.Spec.PodInfoOnMount, false), flag(d.Spec.StorageCapacity, false),
		orElse(strings.Join(audiences, ","), unset), flag(d.Spec.RequiresRepublish, false),
		orElse(strings.Join(modes, ","), none), d.CreationTimestamp,
	}
}

func flag(b *bool, fallback bool) bool {
	if b == nil {
		return fallback
	}
	return *b
}

func csiNodeColumns() []Column {
	return []Column{nameColumn, number("Drivers", "Drivers on the node."), ageColumn}
}

func csiNodeRow(n *storagev1.CSINode) []any {
	return []any{n.Name, int64(len(n.Spec.Drivers)), n.CreationTimestamp}
}

func storageClassColumns() []Column {
	return []Column{
		nameColumn,
		text("Provisioner", "Who makes the volumes."),
		text("ReclaimPolicy", "What becomes of them."),
		text("VolumeBindingMode", "When they are made."),
		text("AllowVolumeExpansion", "Whether they may grow."),
		ageColumn,
	}
}

func storageClassRow(c *storagev1.StorageClass) []any {
	name := c.Name
	if isDefault(c.Annotations, "storageclass.kubernetes.io/is-default-class") || isDefault(c.Annotations, "storageclass.beta.kubernetes.io/is-default-class") {
		name += " (default)"
	}
	reclaim, mode := string(corev1.PersistentVolumeReclaimDelete), string(storagev1.VolumeBindingImmediate)
	if c.ReclaimPolicy != nil {
		reclaim = string(*c.ReclaimPolicy)
	}
	if c.VolumeBindingMode != nil {
		mode = string(*c.VolumeBindingMode)
	}
	return []any{name, c.Provisioner, reclaim, mode, flag(c.AllowVolumeExpansion, false), c.CreationTimestamp}
}

func isDefault(annotations map[string]string, key string) bool { return annotations[key] == "true" }

func volumeAttachmentColumns() []Column {
	attacher := text("Attacher", "Who attaches.")
	attacher.Format = "name"
	return []Column{
		nameColumn, attacher,
		text("PV", "The volume."), text("Node", "The node."), boolean("Attached", "Whether it is done."), ageColumn,
	}
}

func volumeAttachmentRow(a *storagev1.VolumeAttachment) []any {
	volume := ""
	if a.Spec.Source.PersistentVolumeName != nil {
		volume = *a.Spec.Source.PersistentVolumeName
	}
	return []any{a.Name, a.Spec.Attacher, volume, a.Spec.NodeName, a.Status.Attached, a.CreationTimestamp}
}

func attributesClassColumns() []Column {
	return []Column{nameColumn, text("DriverName", "The driver it is for."), ageColumn}
}

func attributesClassRow(c *storagev1.VolumeAttributesClass) []any {
	name := c.Name
	if isDefault(c.Annotations, "volumeattributesclass.alpha.kubernetes.io/is-default-class") {
		name += " (default)"
	}
	return []any{name, c.DriverName, c.CreationTimestamp}
}

func policyColumns(count, description string) []Column {
	return []Column{nameColumn, number(count, description), text("ParamKind", "The kind of its parameters."), ageColumn}
}

func validatingPolicyRow(p *admissionv1.ValidatingAdmissionPolicy) []any {
	return []any{p.Name, int64(len(p.Spec.Validations)), paramKind(p.Spec.ParamKind), p.CreationTimestamp}
}

func mutatingPolicyRow(p *admissionv1.MutatingAdmissionPolicy) []any {
	return []any{p.Name, int64(len(p.Spec.Mutations)), paramKind(p.Spec.ParamKind), p.CreationTimestamp}
}

func paramKind(k *admissionv1.ParamKind) string {
	if k == nil {
		return unset
	}
	return k.APIVersion + "/" + k.Kind
}

func policyBindingColumns() []Column {
	return []Column{nameColumn, text("PolicyName", "The policy."), text("ParamRef", "Its parameters."), ageColumn}
}

func validatingBindingRow(b *admissionv1.ValidatingAdmissionPolicyBinding) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), b.CreationTimestamp}
}

func mutatingBindingRow(b *admissionv1.MutatingAdmissionPolicyBinding) []any {
	return []any{b.Name, b.Spec.PolicyName, paramRef(b.Spec.ParamRef), b.CreationTimestamp}
}

func paramRef(r *admissionv1.ParamRef) string {
	switch {
	case r == nil, r.Name == "" && r.Selector == nil:
		return unset
	case r.Name == "":
		return r.Selector.String()
	case r.Namespace == "":
		return "*/" + r.Name
	}
	return r.Namespace + "/" + r.Name
}

func webhookColumns() []Column {
	return []Column{nameColumn, number("Webhooks", "How many webhooks."), ageColumn}
}

func mutatingWebhooksRow(c *admissionv1.MutatingWebhookConfiguration) []any {
	return []any{c.Name, int64(len(c.Webhooks)), c.CreationTimestamp}
}

func validatingWebhooksRow(c *admissionv1.ValidatingWebhookConfiguration) []any {
	return []any{c.Name, int64(len(c.Webhooks)), c.CreationTimestamp}
}

func crdColumns() []Column {
	return []Column{
		nameColumn,
		text("Scope", "Namespaced or Cluster."),
		text("Versions", "The versions that are served."),
		plainColumns[1],
		wide(text("Group", "The API group.")),
		wide(text("Kind", "The kind.")),
		wide(text("ShortNames", "Its short names.")),
		wide(boolean("Established", "Whether it is served.")),
	}
}

func crdRow(c *apiextensionsv1.CustomResourceDefinition) []any {
	var versions []string
	for _, v := range c.Spec.Versions {
		switch {
		case v.Storage:
			versions = append(versions, v.Name+"(storage)")
		case v.Served:
			versions = append(versions, v.Name)
		}
	}
	established := false
	for _, condition := range c.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			established = condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return []any{
		c.Name, string(c.Spec.Scope), strings.Join(versions, ","), createdAt(c),
		c.Spec.Group, c.Spec.Names.Kind, strings.Join(c.Spec.Names.ShortNames, ","), established,
	}
}

func priorityClassColumns() []Column {
	return []Column{
		nameColumn, number("Value", "The priority."),
		boolean("Global-Default", "Whether pods without a class get it."),
		ageColumn, text("PreemptionPolicy", "Whether its pods push others out."),
	}
}

func priorityClassRow(c *schedulingv1.PriorityClass) []any {
	policy := string(corev1.PreemptLowerPriority)
	if c.PreemptionPolicy != nil {
		policy = string(*c.PreemptionPolicy)
	}
	return []any{c.Name, int64(c.Value), c.GlobalDefault, c.CreationTimestamp, policy}
}

func leaseColumns() []Column {
	return []Column{nameColumn, text("Holder", "Who holds it."), ageColumn}
}

func leaseRow(l *coordinationv1.Lease) []any {
	holder := ""
	if l.Spec.HolderIdentity != nil {
		holder = *l.Spec.HolderIdentity
	}
	return []any{l.Name, holder, l.CreationTimestamp}
}

func runtimeClassColumns() []Column {
	return []Column{nameColumn, text("Handler", ""), ageColumn}
}

func runtimeClassRow(c *nodev1.RuntimeClass) []any {
	return []any{c.Name, c.Handler, c.CreationTimestamp}
}

func nameAgeColumns() []Column { return []Column{nameColumn, ageColumn} }

func deviceClassRow(c *resourcev1.DeviceClass) []any { return []any{c.Name, c.CreationTimestamp} }

func claimTemplateRow(t *resourcev1.ResourceClaimTemplate) []any {
	return []any{t.Name, t.CreationTimestamp}
}

func deviceTaintColumns() []Column {
	return []Column{
		nameColumn, text("Key", "The taint's key."), text("Value", "Its value."), text("Effect", "What it does."),
		text("TimeAdded", "Since when."), ageColumn,
	}
}

func deviceTaintRow(r *resourcev1.DeviceTaintRule) []any {
	t := r.Spec.Taint
	var added any = unset
	if t.TimeAdded != nil {
		added = *t.TimeAdded
	}
	return []any{r.Name, t.Key, t.Value, string(t.Effect), added, r.CreationTimestamp}
}

func resourceClaimColumns() []Column {
	return []Column{nameColumn, text("State", "How far it is."), ageColumn}
}

func resourceClaimRow(c *resourcev1.ResourceClaim) []any {
	var states []string
	if c.DeletionTimestamp != nil {
		states = append(states, "deleted")
	}
	switch {
	case c.Status.Allocation != nil:
		states = append(states, "allocated")
	case c.DeletionTimestamp == nil:
		states = append(states, "pending")
	}
	if len(c.Status.ReservedFor) > 0 {
		states = append(states, "reserved")
	}
	return []any{c.Name, strings.Join(states, ","), c.CreationTimestamp}
}

func resourceSliceColumns() []Column {
	return []Column{nameColumn, text("Node", "The node that has the devices."), text("Driver", "Their driver."), text("Pool", "Their pool."), ageColumn}
}

func resourceSliceRow(s *resourcev1.ResourceSlice) []any {
	node := ""
	if s.Spec.NodeName != nil {
		node = *s.Spec.NodeName
	}
	return []any{s.Name, node, s.Spec.Driver, s.Spec.Pool.Name, s.CreationTimestamp}
}

func flowSchemaColumns() []Column {
	return []Column{
		nameColumn,
		text("PriorityLevel", "Where its requests queue."),
		text("MatchingPrecedence", "Lower is tried first."),
		text("DistinguisherMethod", "What makes a flow."),
		ageColumn,
		text("MissingPL", "Whether the priority level is missing."),
	}
}

func flowSchemaRow(f *flowcontrolv1.FlowSchema) []any {
	by, missing := none, "?"
	if f.Spec.DistinguisherMethod != nil {
		by = string(f.Spec.DistinguisherMethod.Type)
	}
	for _, c := range f.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			missing = string(c.Status)
		}
	}
	return []any{f.Name, f.Spec.PriorityLevelConfiguration.Name, int64(f.Spec.MatchingPrecedence), by, f.CreationTimestamp, missing}
}

func priorityLevelColumns() []Column {
	return []Column{
		nameColumn,
		text("Type", "Limited or Exempt."),
		text("NominalConcurrencyShares", "Its share of the seats."),
		text("Queues", "How many queues."),
		text("HandSize", "Queues dealt to a flow."),
		text("QueueLengthLimit", "Requests in a queue."),
		ageColumn,
	}
}

func priorityLevelRow(l *flowcontrolv1.PriorityLevelConfiguration) []any {
	var shares, queues, hand, length any = none, none, none, none
	if limited := l.Spec.Limited; limited != nil {
		if limited.NominalConcurrencyShares != nil {
			shares = int64(*limited.NominalConcurrencyShares)
		}
		if q := limited.LimitResponse.Queuing; q != nil {
			queues, hand, length = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
		}
	}
	return []any{l.Name, string(l.Spec.Type), shares, queues, hand, length, l.CreationTimestamp}
}

func migrationColumns() []Column {
	name := nameColumn
	name.Format = ""
	return []Column{name, text("Resource", "What is rewritten."), text("Status", "How far it is.")}
}

func migrationRow(m *migrationv1.StorageVersionMigration) []any {
	state := "Unknown"
	for _, c := range m.Status.Conditions {
		if c.Status == metav1.ConditionTrue {
			state = c.Type
		}
	}
	resource := m.Spec.Resource.Resource
	if m.Spec.Resource.Group != "" {
		resource += "." + m.Spec.Resource.Group
	}
	return []any{m.Name, resource, state}
}
