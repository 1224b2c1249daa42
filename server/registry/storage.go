package registry

import (
	"fmt"
	"maps"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/api"
)

func storageKinds() []*Kind {
	gv := storagev1.SchemeGroupVersion
	csiNodes := halves[storagev1.CSINode]{}
	return []*Kind{
		csiDriverKind(gv),
		kind[storagev1.CSINode, storagev1.CSINodeList]{
			Plural: "csinodes", Cluster: true, NeedsRevision: true,
			Validate: api.ValidateCSINode,
			Columns:  csiNodeColumns(), Row: csiNodeRow,
			Prepare: csiNodes.prepare,
			Sub:     Sub{"status": csiNodes.pure(nil)},
		}.erase(gv),
		kind[storagev1.CSIStorageCapacity, storagev1.CSIStorageCapacityList]{
			Plural: "csistoragecapacities", NeedsRevision: true,
			Validate: api.ValidateStorageCapacity,
			Warn: func(c, _ *storagev1.CSIStorageCapacity) []string {
				return warnSelector(c.NodeTopology, field.NewPath("nodeTopology"))
			},
		}.erase(gv),
		kind[storagev1.StorageClass, storagev1.StorageClassList]{
			Plural: "storageclasses", Short: []string{"sc"}, Cluster: true,
			Validate: api.ValidateStorageClass,
			Warn:     warnStorageClass,
			Columns:  storageClassColumns(), Row: storageClassRow,
			Default: api.DefaultStorageClass,
		}.erase(gv),
		volumeAttachmentKind(gv),
		kind[storagev1.VolumeAttributesClass, storagev1.VolumeAttributesClassList]{
			Plural: "volumeattributesclasses", Short: []string{"vac"}, Cluster: true,
			Validate: api.ValidateAttributesClass,
			Columns:  attributesClassColumns(), Row: attributesClassRow,
		}.erase(gv),
	}
}

// warnStorageClass and warnSelector point at labels of nodes that have other names
// now.
func warnStorageClass(c, _ *storagev1.StorageClass) []string {
	var warnings []string
	for i, term := range c.AllowedTopologies {
		for j, e := range term.MatchLabelExpressions {
			if text := api.OldNodeLabel(e.Key); text != "" {
				warnings = append(warnings, fmt.Sprintf("%s: %s", field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key"), text))
			}
		}
	}
	return warnings
}

func warnSelector(s *metav1.LabelSelector, at *field.Path) []string {
	if s == nil {
		return nil
	}
	var warnings []string
	for i, e := range s.MatchExpressions {
		if text := api.OldNodeLabel(e.Key); text != "" {
			warnings = append(warnings, fmt.Sprintf("%s: %s is %s", at.Child("matchExpressions").Index(i).Child("key"), e.Key, text))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		if text := api.OldNodeLabel(key); text != "" {
			warnings = append(warnings, fmt.Sprintf("%s: %s", at.Child("matchLabels").Child(key), text))
		}
	}
	return warnings
}

func csiDriverKind(gv schema.GroupVersion) *Kind {
	return kind[storagev1.CSIDriver, storagev1.CSIDriverList]{
		Plural: "csidrivers", Cluster: true, NeedsRevision: true,
		Prepare: func(d, old *storagev1.CSIDriver) { // its generation counts from nothing
			if d.Generation = 0; old == nil {
				return
			}
			if d.Generation = old.Generation; !equality.Semantic.DeepEqual(d.Spec, old.Spec) {
				d.Generation++
			}
		},
		Validate: api.ValidateCSIDriver,
		Warn:     warnCSIDriver,
		Columns:  csiDriverColumns(), Row: csiDriverRow,
		Default: api.DefaultCSIDriver,
	}.erase(gv)
}

// warnCSIDriver points at tokens that end up where they may be logged, when they
// are asked for.
func warnCSIDriver(d, old *storagev1.CSIDriver) []string {
	if old != nil && equality.Semantic.DeepEqual(d.Spec.TokenRequests, old.Spec.TokenRequests) {
		return nil
	}
	if len(d.Spec.TokenRequests) > 0 && d.Spec.ServiceAccountTokenInSecrets == nil {
		return []string{"spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"}
	}
	return nil
}

func volumeAttachmentKind(gv schema.GroupVersion) *Kind {
	parts := halves[storagev1.VolumeAttachment]{}
	return kind[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList]{
		Plural: "volumeattachments", Cluster: true, NeedsRevision: true,
		Validate: api.ValidateVolumeAttachment,
		Columns:  volumeAttachmentColumns(), Row: volumeAttachmentRow,
		Prepare: parts.prepare,
		Sub:     Sub{"status": parts.pure(nil)},
	}.erase(gv)
}
