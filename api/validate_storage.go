package api

import (
	"fmt"
	"math"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validate"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateStorageClass names the faults of a StorageClass.
func ValidateStorageClass(c, old *storagev1.StorageClass) field.ErrorList {
	provisioner, parameters := field.NewPath("provisioner"), field.NewPath("parameters")
	reclaim, binding := field.NewPath("reclaimPolicy"), field.NewPath("volumeBindingMode")
	errs := requiredByRule(c.Provisioner, provisioner)
	errs = append(errs, validProvisioner(c.Provisioner, provisioner)...)
	errs = append(errs, validParameters(c.Parameters, parameters)...)
	if c.ReclaimPolicy != nil && *c.ReclaimPolicy != "" {
		errs = append(errs, among(*c.ReclaimPolicy, reclaim, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)...)
	}
	errs = append(errs, amongIfSet(c.VolumeBindingMode, binding, storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
	errs = append(errs, validTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
	if old == nil {
		return errs
	}
	errs = append(errs, sealed(c.Provisioner, old.Provisioner, provisioner)...)
	errs = append(errs, sealed(c.Parameters, old.Parameters, parameters)...)
	errs = append(errs, sealed(c.ReclaimPolicy, old.ReclaimPolicy, reclaim)...)
	return append(errs, sealed(c.VolumeBindingMode, old.VolumeBindingMode, binding)...)
}

func validProvisioner(name string, at *field.Path) field.ErrorList {
	return validIfSet(strings.ToLower(name), at, validation.IsQualifiedName)
}

// validParameters limits what a provisioner is told.
func validParameters(parameters map[string]string, at *field.Path) field.ErrorList {
	const most, mostBytes = 512, 256 << 10
	if len(parameters) > most {
		return field.ErrorList{field.TooLong(at, "", most)}
	}
	_, empty := parameters[""]
	return append(refuse(empty, at, "", "field can not be empty."), notAbove(mostBytes, parameters, at)...)
}

// notAbove limits the bytes of a map.
func notAbove(most int, m map[string]string, at *field.Path) field.ErrorList {
	size := 0
	for key, value := range m {
		size += len(key) + len(value)
	}
	if size > most {
		return field.ErrorList{field.TooLong(at, "", most)}
	}
	return nil
}

// validTopologies checks terms, no two of which may say the same.
func validTopologies(terms []corev1.TopologySelectorTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	// Upstream compares a term with as many empty ones as there are terms, too.
	before := make([]map[string]map[string]bool, len(terms))
	for i, term := range terms {
		here := at.Index(i).Child("matchLabelExpressions")
		meant := map[string]map[string]bool{}
		for j, e := range term.MatchLabelExpressions {
			one := here.Index(j)
			values := one.Child("values")
			errs = append(errs, need(len(e.Values) == 0, values, "")...)
			errs = append(errs, distinct(e.Values, values, func(v string) string { return v })...)
			errs = append(errs, metavalidation.ValidateLabelName(e.Key, one.Child("key"))...)
			if meant[e.Key] != nil {
				errs = append(errs, field.Duplicate(one.Child("key"), e.Key))
			}
			meant[e.Key] = map[string]bool{}
			for _, v := range e.Values {
				meant[e.Key][v] = true
			}
		}
		for _, b := range before {
			if reflect.DeepEqual(b, meant) || len(b)+len(meant) == 0 {
				errs = append(errs, field.Duplicate(here, ""))
			}
		}
		before = append(before, meant)
	}
	return errs
}

// ValidateAttributesClass names the faults of a VolumeAttributesClass.
func ValidateAttributesClass(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	driver, parameters := field.NewPath("driverName"), field.NewPath("parameters")
	var errs field.ErrorList
	if old != nil {
		errs = forbid(c.DriverName != old.DriverName, driver, "updates to driverName are forbidden.")
		errs = append(errs, forbid(!reflect.DeepEqual(c.Parameters, old.Parameters), parameters, "updates to parameters are forbidden.")...)
	}
	errs = append(errs, required(c.DriverName, driver)...)
	errs = append(errs, validProvisioner(c.DriverName, driver)...)
	errs = append(errs, validParameters(c.Parameters, parameters)...)
	return append(errs, need(len(c.Parameters) == 0, parameters, "must contain at least one key/value pair")...)
}

// ValidateCSIDriver names the faults of a CSIDriver, which has its defaults.
func ValidateCSIDriver(d, old *storagev1.CSIDriver) field.ErrorList {
	at, spec := specPath(), &d.Spec
	errs := amongIfSet(spec.FSGroupPolicy, at.Child("fsGroupPolicy"), storagev1.FileFSGroupPolicy, storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	errs = append(errs, validTokens(spec.TokenRequests, at.Child("tokenRequests"))...)
	for _, m := range spec.VolumeLifecycleModes {
		errs = append(errs, among(m, at.Child("volumeLifecycleModes"), storagev1.VolumeLifecyclePersistent, storagev1.VolumeLifecycleEphemeral)...)
	}
	if p := spec.NodeAllocatableUpdatePeriodSeconds; p != nil {
		errs = append(errs, refuse(*p < 10, at.Child("nodeAllocatableUpdatePeriodSeconds"), *p, "must be greater than or equal to 10 seconds")...)
	}
	errs = append(errs, refuse(spec.ServiceAccountTokenInSecrets != nil && len(spec.TokenRequests) == 0, at.Child("serviceAccountTokenInSecrets"), spec.ServiceAccountTokenInSecrets, "serviceAccountTokenInSecrets is set but no tokenRequests are specified")...)
	if old != nil {
		errs = append(errs, unchanged(spec.AttachRequired, old.Spec.AttachRequired, at.Child("attachedRequired"))...)
		errs = append(errs, unchanged(spec.VolumeLifecycleModes, old.Spec.VolumeLifecycleModes, at.Child("volumeLifecycleModes"))...)
	}
	return errs
}

// validTokens wants a token for each audience, of a sensible life.
func validTokens(requests []storagev1.TokenRequest, at *field.Path) field.ErrorList {
	const least, most = 600, 1 << 32 // seconds
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, r := range requests {
		here := at.Index(i)
		if seen[r.Audience] {
			errs = append(errs, field.Duplicate(here.Child("audience"), r.Audience))
			continue
		}
		seen[r.Audience] = true
		if s := r.ExpirationSeconds; s != nil {
			errs = append(errs, refuse(*s < least, here.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes")...)
			errs = append(errs, refuse(*s > most, here.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds")...)
		}
	}
	return errs
}

// ValidateCSINode names the faults of a CSINode, whose drivers may only change how
// much they can take.
func ValidateCSINode(n, old *storagev1.CSINode) field.ErrorList {
	at := specPath().Child("drivers")
	var errs field.ErrorList
	seen := map[string]bool{}
	for i := range n.Spec.Drivers {
		d, here := &n.Spec.Drivers[i], at.Index(i)
		errs = append(errs, validNodeDriver(d, here)...)
		if seen[d.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), d.Name))
		}
		seen[d.Name] = true
		errs = append(errs, validTopologyKeys(d.TopologyKeys, here)...)
	}
	if old == nil {
		return errs
	}
	for _, before := range old.Spec.Drivers {
		for _, now := range n.Spec.Drivers {
			if before.Name == now.Name {
				before, now := before, now
				before.Allocatable, now.Allocatable = nil, nil
				errs = append(errs, unchanged(&now, &before, at)...)
			}
		}
	}
	return errs
}

func validNodeDriver(d *storagev1.CSINodeDriver, at *field.Path) field.ErrorList {
	const most = 256
	errs := validDriverName(d.Name, at.Child("name"))
	errs = append(errs, required(d.NodeID, at.Child("nodeID"))...)
	errs = append(errs, refuse(len(d.NodeID) > most, at.Child("nodeID"), d.NodeID, fmt.Sprintf("must be %d characters or less", most))...)
	if d.Allocatable != nil {
		errs = append(errs, nonNegativePtr(d.Allocatable.Count, at.Child("allocatable", "count"))...)
	}
	return errs
}

func validTopologyKeys(keys []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for _, key := range keys {
		errs = append(errs, required(key, at)...)
		if seen[key] {
			errs = append(errs, field.Duplicate(at, key))
		}
		seen[key] = true
		errs = append(errs, invalid(at, key, validation.IsQualifiedName(key))...)
	}
	return errs
}

// ValidateStorageCapacity names the faults of a CSIStorageCapacity.
func ValidateStorageCapacity(c, old *storagev1.CSIStorageCapacity) field.ErrorList {
	topology, class := field.NewPath("nodeTopology"), field.NewPath("storageClassName")
	lenient := metavalidation.LabelSelectorValidationOptions{AllowInvalidLabelValueInSelector: old != nil && hasBadSelector(old.NodeTopology)}
	errs := metavalidation.ValidateLabelSelector(c.NodeTopology, lenient, topology)
	errs = append(errs, invalid(class, c.StorageClassName, apivalidation.NameIsDNSSubdomain(c.StorageClassName, false))...)
	if q := c.Capacity; q != nil {
		errs = append(errs, refuse(q.Sign() < 0, field.NewPath("capacity"), q.String(), notNegative)...)
	}
	if old == nil {
		return errs
	}
	errs = append(errs, unchanged(c.NodeTopology, old.NodeTopology, topology)...)
	return append(errs, unchanged(c.StorageClassName, old.StorageClassName, class)...)
}

// hasBadSelector tells selectors that came before the rules they break.
func hasBadSelector(selectors ...*metav1.LabelSelector) bool {
	for _, s := range selectors {
		if s != nil && len(metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, nil)) > 0 {
			return true
		}
	}
	return false
}

// ValidateVolumeAttachment names the faults of a VolumeAttachment.
func ValidateVolumeAttachment(a, old *storagev1.VolumeAttachment) field.ErrorList {
	at, spec := specPath(), &a.Spec
	var errs field.ErrorList
	if old == nil {
		errs = requiredByRule(spec.Attacher, at.Child("attacher"), validate.LongNameCaseless, maxLength[string](validation.DNS1123LabelMaxLength))
	} else {
		errs = append(validDriverName(spec.Attacher, at.Child("attacher")), sealed(spec, &old.Spec, at)...)
	}
	source, inline, name := at.Child("source"), spec.Source.InlineVolumeSpec, spec.Source.PersistentVolumeName
	const either = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
	switch {
	case inline == nil && name == nil:
		errs = append(errs, field.Required(source, either))
	case inline != nil && name != nil:
		errs = append(errs, field.Forbidden(source, either))
	case name != nil:
		errs = append(errs, need(*name == "", source.Child("persistentVolumeName"), "must specify non empty persistentVolumeName")...)
	default:
		errs = append(errs, validInlineVolume(inline, source.Child("inlineVolumeSpec"))...)
	}
	errs = append(errs, validNodeName(spec.NodeName, at.Child("nodeName"))...)
	errs = append(errs, validAttachmentStatus(&a.Status)...)
	return append(errs, validPtr(name, field.NewPath("spec.source.persistentVolumeName"), subdomain)...)
}

// validInlineVolume checks a volume that is nothing but what a CSI driver attaches.
func validInlineVolume(spec *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	const context = " in the context of inline volumes"
	const none = "may not be specified" + context
	errs := forbid(spec.ClaimRef != nil, at.Child("claimRef"), none)
	errs = append(errs, forbid(len(spec.Capacity) > 0, at.Child("capacity"), none)...)
	errs = append(errs, need(spec.CSI == nil, at.Child("csi"), "has to be specified"+context)...)
	errs = append(errs, need(len(spec.AccessModes) == 0, at.Child("accessModes"), "")...)
	errs = append(errs, validAccessModes(spec.AccessModes, at.Child("accessModes"))...)
	policy := spec.PersistentVolumeReclaimPolicy
	errs = append(errs, forbid(policy != "" && policy != corev1.PersistentVolumeReclaimRetain, at.Child("persistentVolumeReclaimPolicy"), "may only be Retain"+context)...)
	errs = append(errs, forbid(spec.NodeAffinity != nil, at.Child("nodeAffinity"), none)...)
	errs = append(errs, validSource(&spec.PersistentVolumeSource, pvTypes, volumeIn{}, at)...)
	errs = append(errs, forbid(spec.StorageClassName != "", at.Child("storageClassName"), none)...)
	mode := spec.VolumeMode
	return append(errs, forbid(mode != nil && *mode != corev1.PersistentVolumeFilesystem, at.Child("volumeMode"), "may not specify volumeMode other than Filesystem"+context)...)
}

func validAttachmentStatus(s *storagev1.VolumeAttachmentStatus) field.ErrorList {
	const mostBytes = 256 << 10
	at := field.NewPath("status")
	errs := notAbove(mostBytes, s.AttachmentMetadata, at.Child("attachmentMetadata"))
	errs = append(errs, validVolumeError(s.AttachError, at.Child("attachError"))...)
	return append(errs, validVolumeError(s.DetachError, at.Child("detachError"))...)
}

func validVolumeError(e *storagev1.VolumeError, at *field.Path) field.ErrorList {
	const most = 1024
	if e == nil {
		return nil
	}
	var errs field.ErrorList
	if len(e.Message) > most {
		errs = append(errs, field.TooLong(at.Child("message"), "", most))
	}
	if c := e.ErrorCode; c != nil {
		errs = append(errs, refuse(*c < 0, at.Child("errorCode"), *c, validation.InclusiveRangeError(0, math.MaxInt32))...)
	}
	return errs
}
