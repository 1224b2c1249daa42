package api

import (
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// ValidateResourceClaimStatus names the faults of which devices a claim is given, for
// whom, and how they are.
func ValidateResourceClaimStatus(c, old *resourcev1.ResourceClaim) field.ErrorList {
	at, is, was := statusPath(), &c.Status, &old.Status
	errs := listByRule(is.ReservedFor, resourcev1.ResourceClaimReservedForMaxSize, at.Child("reservedFor"),
		func(a, b *resourcev1.ResourceClaimConsumerReference) bool { return a.UID == b.UID }, validConsumer)
	given := map[deviceKey]bool{}
	if a := is.Allocation; a != nil {
		for _, r := range a.Devices.Results {
			given[keyOfResult(&r)] = true
		}
	}
	errs = append(errs, listByRule(is.Devices, 0, at.Child("devices"),
		func(a, b *resourcev1.AllocatedDeviceStatus) bool { return keyOf(a) == keyOf(b) },
		func(d *resourcev1.AllocatedDeviceStatus, at *field.Path) field.ErrorList {
			return validDeviceStatus(d, given, at)
		})...)
	errs = append(errs, forbid(len(is.ReservedFor) > 0 && is.Allocation == nil, at.Child("reservedFor"), "may not be specified when `allocated` is not set")...)
	if is.Allocation == nil {
		return errs
	}
	added := slices.ContainsFunc(is.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return !slices.Contains(was.ReservedFor, r) })
	errs = append(errs, forbid(added && c.DeletionTimestamp != nil, at.Child("reservedFor"), "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set")...)
	if was.Allocation != nil {
		if !sameValue(is.Allocation, was.Allocation) {
			errs = append(errs, declared(field.Invalid(at.Child("allocation"), nil, "field cannot be modified once set").WithOrigin("update"))...)
		}
		return errs
	}
	return append(errs, claimCheck{nil, c.Spec.Devices.Requests}.allocation(is.Allocation, at.Child("allocation"))...)
}

func validConsumer(r *resourcev1.ResourceClaimConsumerReference, at *field.Path) field.ErrorList {
	return requiredFields(at, "resource", r.Resource, "name", r.Name, "uid", string(r.UID))
}

// deviceKey names a device, or a share of one.
type deviceKey struct{ Driver, Pool, Device, ShareID string }

func keyOf(d *resourcev1.AllocatedDeviceStatus) deviceKey {
	return deviceKey{d.Driver, d.Pool, d.Device, ptr.Deref(d.ShareID, "")}
}

func keyOfResult(r *resourcev1.DeviceRequestAllocationResult) deviceKey {
	return deviceKey{r.Driver, r.Pool, r.Device, string(ptr.Deref(r.ShareID, ""))}
}

// KeepGivenDevices drops what is said of devices that a claim has no more.
func KeepGivenDevices(is, was *resourcev1.ResourceClaimStatus) {
	taken := map[deviceKey]bool{}
	for _, s := range []*resourcev1.ResourceClaimStatus{was, is} {
		if s.Allocation == nil {
			continue
		}
		for _, r := range s.Allocation.Devices.Results {
			taken[keyOfResult(&r)] = s == was
		}
	}
	is.Devices = slices.DeleteFunc(is.Devices, func(d resourcev1.AllocatedDeviceStatus) bool { return taken[keyOf(&d)] })
	if len(is.Devices) == 0 {
		is.Devices = nil
	}
}

// allocation checks what devices a claim is given, by the requests that it has.
func (c claimCheck) allocation(a *resourcev1.AllocationResult, at *field.Path) field.ErrorList {
	errs := listByRule(a.Devices.Results, resourcev1.AllocationResultsMaxSize, at.Child("devices", "results"), nil, c.result)
	errs = append(errs, listByRule(a.Devices.Config, 2*resourcev1.DeviceConfigMaxSize, at.Child("devices", "config"), nil, c.givenConfig)...)
	if a.NodeSelector == nil {
		return errs
	}
	keep := func(_ string, errs field.ErrorList) field.ErrorList { return errs }
	return append(errs, validNodeSelector(a.NodeSelector, at.Child("nodeSelector"), keep)...)
}

func (c claimCheck) result(r *resourcev1.DeviceRequestAllocationResult, at *field.Path) field.ErrorList {
	errs := c.requestName(&r.Request, at.Child("request"))
	errs = append(errs, requiredByRule(r.Driver, at.Child("driver"), validate.LongNameCaseless, maxLength[string](validation.DNS1123LabelMaxLength))...)
	errs = append(errs, requiredByRule(r.Pool, at.Child("pool"), validate.ResourcePoolName)...)
	errs = append(errs, invalid(at.Child("device"), r.Device, label(r.Device))...)
	errs = append(errs, validBinding(r.BindingConditions, r.BindingFailureConditions, at)...)
	errs = append(errs, elements(r.Tolerations, at.Child("tolerations"), validDeviceToleration)...)
	return append(errs, byRuleIfSet(r.ShareID, at.Child("shareID"), validate.UUID)...)
}

func (c claimCheck) givenConfig(r *resourcev1.DeviceAllocationConfiguration, at *field.Path) field.ErrorList {
	errs := wordByRule(r.Source, at.Child("source"), resourcev1.AllocationConfigSourceClaim, resourcev1.AllocationConfigSourceClass)
	errs = append(errs, c.requestNames(r.Requests, at.Child("requests"))...)
	return append(errs, validOpaque(r.Opaque, at.Child("opaque"), true)...)
}

func validDeviceStatus(d *resourcev1.AllocatedDeviceStatus, given map[deviceKey]bool, at *field.Path) field.ErrorList {
	errs := validDriverName(d.Driver, at.Child("driver"))
	errs = append(errs, validPoolName(d.Pool, at.Child("pool"))...)
	errs = append(errs, invalid(at.Child("device"), d.Device, label(d.Device))...)
	errs = append(errs, byRuleIfSet(d.ShareID, at.Child("shareID"), validate.UUID)...)
	errs = append(errs, refuse(!given[keyOf(d)], at, keyOf(d), "must be an allocated device in the claim")...)
	errs = append(errs, tooMany(len(d.Conditions), resourcev1.AllocatedDeviceStatusMaxConditions, at.Child("conditions"))...)
	errs = append(errs, metavalidation.ValidateConditions(d.Conditions, at.Child("conditions"))...)
	if d.Data != nil && len(d.Data.Raw) > 0 {
		errs = append(errs, validRawObject(*d.Data, at.Child("data"), true)...)
	}
	return append(errs, validNetworkData(d.NetworkData, at.Child("networkData"))...)
}

func validNetworkData(d *resourcev1.NetworkDeviceData, at *field.Path) field.ErrorList {
	if d == nil {
		return nil
	}
	bytes := func(value, name string, most int) field.ErrorList {
		if len(value) <= most {
			return nil
		}
		return declared(field.TooLong(at.Child(name), "", most).WithOrigin("maxBytes"))
	}
	errs := bytes(d.InterfaceName, "interfaceName", resourcev1.NetworkDeviceDataInterfaceNameMaxLength)
	errs = append(errs, listByRule(d.IPs, resourcev1.NetworkDeviceDataMaxIPs, at.Child("ips"), func(a, b *string) bool { return *a == *b },
		func(ip *string, at *field.Path) field.ErrorList { return validation.IsValidInterfaceAddress(at, *ip) })...)
	return append(errs, bytes(d.HardwareAddress, "hardwareAddress", resourcev1.NetworkDeviceDataHardwareAddressMaxLength)...)
}
