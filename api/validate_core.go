package api

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"github.com/robfig/cron/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateConfigMap names the faults of a ConfigMap.
func ValidateConfigMap(c, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	total := 0
	for key, value := range c.Data {
		at := field.NewPath("data").Key(key)
		errs = append(errs, invalid(at, key, validation.IsConfigMapKey(key))...)
		if _, both := c.BinaryData[key]; both {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		total += len(value)
	}
	for key, value := range c.BinaryData {
		errs = append(errs, invalid(field.NewPath("binaryData").Key(key), key, validation.IsConfigMapKey(key))...)
		total += len(value)
	}
	if total > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), c, corev1.MaxSecretSize))
	}
	if old != nil && old.Immutable != nil && *old.Immutable {
		errs = append(errs, validSeal(c.Immutable, equality.Semantic.DeepEqual(c.Data, old.Data), "data")...)
		errs = append(errs, validSeal(nil, equality.Semantic.DeepEqual(c.BinaryData, old.BinaryData), "binaryData")...)
	}
	return errs
}

// validSeal says what may not change once an object is immutable. A nil flag
// with the field "binaryData" was reported already.
func validSeal(flag *bool, same bool, name string) field.ErrorList {
	var errs field.ErrorList
	if name == "data" && (flag == nil || !*flag) {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), "field is immutable when `immutable` is set"))
	}
	if !same {
		errs = append(errs, field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set"))
	}
	return errs
}

// ValidateSecret names the faults of a Secret.
func ValidateSecret(s, old *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data := field.NewPath("data")
	total := 0
	for key, value := range s.Data {
		errs = append(errs, invalid(data.Key(key), key, validation.IsConfigMapKey(key))...)
		total += len(value)
	}
	if total > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	errs = append(errs, validSecretType(s)...)
	if old == nil {
		return errs
	}
	errs = append(errs, unchanged(s.Type, old.Type, field.NewPath("type"))...)
	if old.Immutable != nil && *old.Immutable {
		errs = append(errs, validSeal(s.Immutable, equality.Semantic.DeepEqual(s.Data, old.Data), "data")...)
	}
	return errs
}

// validSecretType wants what the readers of a type expect to find.
func validSecretType(s *corev1.Secret) field.ErrorList {
	data := field.NewPath("data")
	need := func(keys ...string) field.ErrorList {
		var errs field.ErrorList
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
		return errs
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			return field.ErrorList{field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")}
		}
	case corev1.SecretTypeDockercfg:
		return validJSONKey(s, corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		return validJSONKey(s, corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			return need(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			return field.ErrorList{field.Required(data.Key(corev1.SSHAuthPrivateKey), "")}
		}
	case corev1.SecretTypeTLS:
		return need(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return nil
}

func validJSONKey(s *corev1.Secret, key string) field.ErrorList {
	at := field.NewPath("data").Key(key)
	value, ok := s.Data[key]
	if !ok {
		return field.ErrorList{field.Required(at, "")}
	}
	var parsed map[string]any
	if err := json.Unmarshal(value, &parsed); err != nil {
		return field.ErrorList{field.Invalid(at, "<secret contents redacted>", err.Error())}
	}
	return nil
}

// ValidateNamespace names the faults of a namespace.
func ValidateNamespace(ns, _ *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for i, f := range ns.Spec.Finalizers {
		at := specPath().Child("finalizers").Index(i)
		errs = append(errs, invalid(at, string(f), validation.IsQualifiedName(string(f)))...)
	}
	return errs
}

// ValidateNode names the faults of a node.
func ValidateNode(n, old *corev1.Node) field.ErrorList {
	path := specPath()
	errs := validTaints(n.Spec.Taints, path.Child("taints"))
	for i, cidr := range n.Spec.PodCIDRs {
		errs = append(errs, validation.IsValidCIDRForLegacyField(path.Child("podCIDRs").Index(i), cidr, false, nil)...)
	}
	if len(n.Spec.PodCIDRs) > 0 && n.Spec.PodCIDR != n.Spec.PodCIDRs[0] && n.Spec.PodCIDR != "" {
		errs = append(errs, field.Invalid(path.Child("podCIDRs").Index(0), n.Spec.PodCIDRs, "the first element of podCIDRs must match podCIDR"))
	}
	if old == nil {
		return errs
	}
	if len(old.Spec.PodCIDRs) > 0 && !equality.Semantic.DeepEqual(n.Spec.PodCIDRs, old.Spec.PodCIDRs) {
		errs = append(errs, field.Forbidden(path.Child("podCIDRs"), "node updates may not change podCIDR except from \"\" to valid"))
	}
	if old.Spec.ProviderID != "" && n.Spec.ProviderID != old.Spec.ProviderID {
		errs = append(errs, field.Forbidden(path.Child("providerID"), "node updates may not change providerID except from \"\" to valid"))
	}
	return errs
}

func validTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, t := range taints {
		at := path.Index(i)
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
		errs = append(errs, invalid(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))...)
		errs = append(errs, oneOf(t.Effect, at.Child("effect"), corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		key := t.Key + ":" + string(t.Effect)
		if seen[key] {
			err := field.Duplicate(at, t)
			err.Detail = "taints must be unique by key and effect pair"
			errs = append(errs, err)
		}
		seen[key] = true
	}
	return errs
}

// ValidatePersistentVolume names the faults of a volume.
func ValidatePersistentVolume(v, old *corev1.PersistentVolume) field.ErrorList {
	path := specPath()
	errs := validAccessModes(v.Spec.AccessModes, path.Child("accessModes"))
	size, ok := v.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case len(v.Spec.Capacity) == 0:
		errs = append(errs, field.Required(path.Child("capacity"), ""))
	case !ok || len(v.Spec.Capacity) > 1:
		errs = append(errs, field.NotSupported(path.Child("capacity"), v.Spec.Capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	case size.Sign() <= 0:
		errs = append(errs, field.Invalid(path.Child("capacity").Key("storage"), size.String(), "must be greater than zero"))
	}
	errs = append(errs, oneOf(v.Spec.PersistentVolumeReclaimPolicy, path.Child("persistentVolumeReclaimPolicy"), corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
	switch n, second := countSources(&v.Spec.PersistentVolumeSource); {
	case n == 0:
		errs = append(errs, field.Required(path, "must specify a volume type"))
	case n > 1:
		errs = append(errs, field.Forbidden(path.Child(second), "may not specify more than 1 volume type"))
	}
	if v.Spec.HostPath != nil {
		errs = append(errs, validHostPath(v.Spec.HostPath, path.Child("hostPath"))...)
	}
	if v.Spec.NFS != nil {
		errs = append(errs, validNFS(v.Spec.NFS, path.Child("nfs"))...)
	}
	if c := v.Spec.CSI; c != nil {
		errs = append(errs, required(c.Driver, path.Child("csi", "driver"))...)
		errs = append(errs, required(c.VolumeHandle, path.Child("csi", "volumeHandle"))...)
	}
	if v.Spec.Local != nil {
		errs = append(errs, required(v.Spec.Local.Path, path.Child("local", "path"))...)
		if v.Spec.NodeAffinity == nil {
			errs = append(errs, field.Required(path.Child("nodeAffinity"), "Local volume requires node affinity"))
		}
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		errs = append(errs, ValidateNodeSelector(a.Required, path.Child("nodeAffinity", "required"))...)
	}
	errs = append(errs, subdomainIfSet(v.Spec.StorageClassName, path.Child("storageClassName"))...)
	if old == nil {
		return errs
	}
	if !equality.Semantic.DeepEqual(v.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(path.Child("persistentvolumesource"), "spec.persistentvolumesource is immutable after creation"))
	}
	return append(errs, unchanged(v.Spec.VolumeMode, old.Spec.VolumeMode, path.Child("volumeMode"))...)
}

func validAccessModes(modes []corev1.PersistentVolumeAccessMode, path *field.Path) field.ErrorList {
	if len(modes) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	alone := false
	for _, m := range modes {
		errs = append(errs, oneOf(m, path, corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOncePod)...)
		alone = alone || m == corev1.ReadWriteOncePod
	}
	if alone && len(modes) > 1 {
		errs = append(errs, field.Forbidden(path, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

// ValidatePersistentVolumeClaim names the faults of a claim.
func ValidatePersistentVolumeClaim(c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	path := specPath()
	errs := validClaimSpec(&c.Spec, path)
	if old == nil {
		return errs
	}
	same := *c.Spec.DeepCopy()
	size, before := same.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if old.Status.Phase == corev1.ClaimBound {
		if size.Cmp(before) < 0 {
			errs = append(errs, field.Forbidden(path.Child("resources", "requests", "storage"), "field can not be less than status.capacity"))
		}
		same.Resources = old.Spec.Resources
	}
	if old.Spec.VolumeName == "" {
		same.VolumeName = ""
	}
	if old.Spec.StorageClassName == nil {
		same.StorageClassName = nil
	}
	same.VolumeAttributesClassName = old.Spec.VolumeAttributesClassName
	if !equality.Semantic.DeepEqual(same, old.Spec) {
		errs = append(errs, field.Forbidden(path, "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"))
	}
	return errs
}

func validClaimSpec(spec *corev1.PersistentVolumeClaimSpec, path *field.Path) field.ErrorList {
	errs := validAccessModes(spec.AccessModes, path.Child("accessModes"))
	errs = append(errs, metavalidation.ValidateLabelSelector(spec.Selector, metavalidation.LabelSelectorValidationOptions{}, path.Child("selector"))...)
	at := path.Child("resources").Key(string(corev1.ResourceStorage))
	if size, ok := spec.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(at, ""))
	} else if size.Sign() <= 0 {
		errs = append(errs, field.Invalid(at, size.String(), "must be greater than zero"))
	}
	if spec.StorageClassName != nil && *spec.StorageClassName != "" {
		errs = append(errs, subdomainIfSet(*spec.StorageClassName, path.Child("storageClassName"))...)
	}
	return append(errs, oneOfIfSet(spec.VolumeMode, path.Child("volumeMode"), corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)...)
}

// ValidateResourceQuota names the faults of a quota.
func ValidateResourceQuota(q, old *corev1.ResourceQuota) field.ErrorList {
	path := specPath()
	var errs field.ErrorList
	for name, hard := range q.Spec.Hard {
		at := path.Child("hard").Key(string(name))
		errs = append(errs, validQuotaName(string(name), at)...)
		if hard.Sign() < 0 {
			errs = append(errs, field.Invalid(at, hard.String(), notNegative))
		}
		if wholeResource(string(name)) && hard.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at, hard.String(), "must be an integer"))
		}
	}
	if old != nil && !equality.Semantic.DeepEqual(q.Spec.Scopes, old.Spec.Scopes) {
		errs = append(errs, field.Invalid(path.Child("scopes"), q.Spec.Scopes, immutable))
	}
	return errs
}

// wholeResource reports whether a quota counts things rather than measures
// amounts.
func wholeResource(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourcePods, corev1.ResourceServices, corev1.ResourceReplicationControllers, corev1.ResourceQuotas,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		return true
	}
	return strings.HasPrefix(name, "count/")
}

func validQuotaName(name string, path *field.Path) field.ErrorList {
	if bad := validation.IsQualifiedName(name); len(bad) > 0 {
		return invalid(path, name, bad)
	}
	if strings.Contains(name, "/") || wholeResource(name) {
		return nil
	}
	base := strings.TrimPrefix(strings.TrimPrefix(name, "requests."), "limits.")
	if base == "cpu" || base == "memory" || base == "ephemeral-storage" || base == "storage" || strings.HasPrefix(base, corev1.ResourceHugePagesPrefix) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "must be a standard resource for quota")}
}

// ValidateLimitRange names the faults of a LimitRange.
func ValidateLimitRange(l, _ *corev1.LimitRange) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.LimitType]bool{}
	for i, item := range l.Spec.Limits {
		at := specPath().Child("limits").Index(i)
		errs = append(errs, invalid(at.Child("type"), string(item.Type), validation.IsQualifiedName(string(item.Type)))...)
		if seen[item.Type] {
			errs = append(errs, field.Duplicate(at.Child("type"), item.Type))
		}
		seen[item.Type] = true
		if item.Type == corev1.LimitTypePod {
			if len(item.Default) > 0 {
				errs = append(errs, field.Forbidden(at.Child("default"), "may not be specified when `type` is 'Pod'"))
			}
			if len(item.DefaultRequest) > 0 {
				errs = append(errs, field.Forbidden(at.Child("defaultRequest"), "may not be specified when `type` is 'Pod'"))
			}
		}
		errs = append(errs, validLimitOrder(item, at)...)
	}
	return errs
}

// validLimitOrder wants min <= defaultRequest <= default <= max.
func validLimitOrder(item corev1.LimitRangeItem, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	steps := []struct {
		name, words string
		list        corev1.ResourceList
	}{
		{"min", "min", item.Min}, {"defaultRequest", "default request", item.DefaultRequest},
		{"default", "default", item.Default}, {"max", "max", item.Max},
	}
	for low := range steps {
		for high := low + 1; high < len(steps); high++ {
			for name, a := range steps[low].list {
				if b, ok := steps[high].list[name]; ok && a.Cmp(b) > 0 {
					errs = append(errs, field.Invalid(path.Child(steps[low].name).Key(string(name)), a.String(),
						fmt.Sprintf("%s value %s is greater than %s value %s", steps[low].words, a.String(), steps[high].words, b.String())))
				}
			}
		}
	}
	return errs
}

// ValidatePodTemplate names the faults of a PodTemplate object.
func ValidatePodTemplate(t, _ *corev1.PodTemplate) field.ErrorList {
	return validTemplate("", &t.Template, field.NewPath("template"))
}

// ValidateEvent names the faults of an event.
func ValidateEvent(e, _ *corev1.Event) field.ErrorList {
	object := field.NewPath("involvedObject", "namespace")
	if e.InvolvedObject.Namespace == "" {
		if e.Namespace != corev1.NamespaceDefault && e.Namespace != "kube-system" && e.Namespace != "" {
			return field.ErrorList{field.Invalid(object, e.InvolvedObject.Namespace, "does not match event.namespace")}
		}
		return nil
	}
	if e.InvolvedObject.Namespace != e.Namespace {
		return field.ErrorList{field.Invalid(object, e.InvolvedObject.Namespace, "does not match event.namespace")}
	}
	return nil
}

// notSpecialIP refuses addresses that can not be another machine's.
func notSpecialIP(s string) []string {
	ip := net.ParseIP(s)
	switch {
	case ip == nil:
		return []string{"must be a valid IP address"}
	case ip.IsUnspecified():
		return []string{fmt.Sprintf("may not be unspecified (%v)", s)}
	case ip.IsLoopback():
		return []string{"may not be in the loopback range (127.0.0.0/8, ::1/128)"}
	case ip.IsLinkLocalUnicast():
		return []string{"may not be in the link-local range (169.254.0.0/16, fe80::/10)"}
	case ip.IsLinkLocalMulticast():
		return []string{"may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"}
	}
	return nil
}

func validSchedule(schedule string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if _, err := cron.ParseStandard(schedule); err != nil {
		errs = append(errs, field.Invalid(path, schedule, err.Error()))
	}
	if strings.Contains(schedule, "TZ") {
		errs = append(errs, field.Invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	}
	return errs
}
