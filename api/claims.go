package api

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ClaimedDevices is how many devices of each class a claim may come to hold, as
// quotas count them: a request for all takes the most that a claim can have, and
// of alternatives the largest counts for each class.
func ClaimedDevices(claim *resourcev1.ResourceClaim) corev1.ResourceList {
	all := corev1.ResourceList{}
	add := func(class corev1.ResourceName, n int64) {
		q := all[class]
		q.Add(*resource.NewQuantity(n, resource.DecimalSI))
		all[class] = q
	}
	for _, request := range claim.Spec.Devices.Requests {
		if exact := request.Exactly; exact != nil && len(request.FirstAvailable) == 0 {
			add(devicesOfClass(exact.DeviceClassName), devicesAsked(exact.AllocationMode, exact.Count))
			continue
		}
		most := map[corev1.ResourceName]int64{}
		for _, one := range request.FirstAvailable {
			class := devicesOfClass(one.DeviceClassName)
			most[class] = max(most[class], devicesAsked(one.AllocationMode, one.Count))
		}
		for class, n := range most {
			add(class, n)
		}
	}
	return all
}

// devicesOfClass is the name in quotas: gold.deviceclass.resource.k8s.io/devices.
func devicesOfClass(class string) corev1.ResourceName {
	return corev1.ResourceName(class + corev1.ResourceClaimsPerClass)
}

func devicesAsked(mode resourcev1.DeviceAllocationMode, count int64) int64 {
	switch mode {
	case resourcev1.DeviceAllocationModeExactCount:
		return count
	case resourcev1.DeviceAllocationModeAll:
		return resourcev1.AllocationResultsMaxSize
	}
	return 0
}
