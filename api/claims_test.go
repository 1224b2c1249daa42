package api

import (
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
)

func TestClaimedDevices(t *testing.T) {
	exactly := func(class string, mode resourcev1.DeviceAllocationMode, n int64) resourcev1.DeviceRequest {
		return resourcev1.DeviceRequest{Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class, AllocationMode: mode, Count: n}}
	}
	claim := &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		exactly("gold", resourcev1.DeviceAllocationModeExactCount, 2), exactly("gold", resourcev1.DeviceAllocationModeExactCount, 1),
		exactly("tin", resourcev1.DeviceAllocationModeAll, 0),
		{FirstAvailable: []resourcev1.DeviceSubRequest{
			{DeviceClassName: "gold", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1},
			{DeviceClassName: "gold", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 4},
			{DeviceClassName: "lead", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 3},
		}},
	}}}}
	got := ClaimedDevices(claim)
	for class, want := range map[string]int64{"gold": 7, "tin": 32, "lead": 3} {
		if q := got[devicesOfClass(class)]; q.Value() != want {
			t.Errorf("%s: %v, want %d", class, q.Value(), want)
		}
	}
	if len(got) != 3 {
		t.Errorf("%v", got)
	}
}
