package registry

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"

	"orrery.dev/api"
)

func resourceKinds() []*Kind {
	gv := resourcev1.SchemeGroupVersion
	claims := halves[resourcev1.ResourceClaim, resourcev1.ResourceClaimSpec, resourcev1.ResourceClaimStatus]{
		spec:   func(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaimSpec { return &c.Spec },
		status: func(c *resourcev1.ResourceClaim) *resourcev1.ResourceClaimStatus { return &c.Status },
	}
	taints := halves[resourcev1.DeviceTaintRule, resourcev1.DeviceTaintRuleSpec, resourcev1.DeviceTaintRuleStatus]{
		spec:    func(t *resourcev1.DeviceTaintRule) *resourcev1.DeviceTaintRuleSpec { return &t.Spec },
		status:  func(t *resourcev1.DeviceTaintRule) *resourcev1.DeviceTaintRuleStatus { return &t.Status },
		counted: true,
	}
	return []*Kind{
		kind[resourcev1.DeviceClass, resourcev1.DeviceClassList]{
			Plural: "deviceclasses", Cluster: true,
			Columns: nameAgeColumns(), Row: deviceClassRow,
			Prepare: counted(func(c *resourcev1.DeviceClass) *resourcev1.DeviceClassSpec { return &c.Spec }),
		}.erase(gv),
		kind[resourcev1.DeviceTaintRule, resourcev1.DeviceTaintRuleList]{
			Plural: "devicetaintrules", Cluster: true, NeedsRevision: true,
			Columns: deviceTaintColumns(), Row: deviceTaintRow,
			Default: api.DefaultDeviceTaintRule,
			Prepare: taints.prepare,
			Sub:     Sub{"status": taints.sub(taints.keepRest)},
		}.erase(gv),
		kind[resourcev1.ResourceClaim, resourcev1.ResourceClaimList]{
			Plural:  "resourceclaims",
			Columns: resourceClaimColumns(), Row: resourceClaimRow,
			Default:  api.DefaultResourceClaim,
			Validate: api.ValidateResourceClaim,
			Prepare:  claims.prepare,
			Sub:      Sub{"status": claims.sub(claims.keepRest)},
		}.erase(gv),
		kind[resourcev1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplateList]{
			Plural:  "resourceclaimtemplates",
			Columns: nameAgeColumns(), Row: claimTemplateRow,
			Default: api.DefaultResourceClaimTemplate,
		}.erase(gv),
		kind[resourcev1.ResourceSlice, resourcev1.ResourceSliceList]{
			Plural: "resourceslices", Cluster: true,
			Columns: resourceSliceColumns(), Row: resourceSliceRow,
			Prepare: counted(func(s *resourcev1.ResourceSlice) *resourcev1.ResourceSliceSpec { return &s.Spec }),
			Fields: func(s *resourcev1.ResourceSlice) fields.Set {
				set := fields.Set{resourcev1.ResourceSliceSelectorDriver: s.Spec.Driver, resourcev1.ResourceSliceSelectorNodeName: ""}
				if s.Spec.NodeName != nil {
					set[resourcev1.ResourceSliceSelectorNodeName] = *s.Spec.NodeName
				}
				return set
			},
		}.erase(gv),
	}
}
