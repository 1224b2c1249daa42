package admission

import (
	"context"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"
)

func TestDeviceRights(t *testing.T) {
	claim := func(change func(*resourcev1.ResourceClaim)) *resourcev1.ResourceClaim {
		c := &resourcev1.ResourceClaim{ObjectMeta: named("ns", "c")}
		if change != nil {
			change(c)
		}
		return c
	}
	looking := claim(func(c *resourcev1.ResourceClaim) {
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{}, {Exactly: &resourcev1.ExactDeviceRequest{AdminAccess: ptr.To(true)}}}
	})
	given := claim(func(c *resourcev1.ResourceClaim) { c.Status.Allocation = &resourcev1.AllocationResult{} })
	told := claim(func(c *resourcev1.ResourceClaim) {
		c.Status.Allocation = given.Status.Allocation
		c.Status.Devices = []resourcev1.AllocatedDeviceStatus{{Driver: "d.example.org"}}
	})
	for name, c := range map[string]struct {
		obj, old *resourcev1.ResourceClaim
		label    string // of the namespace
		right    string // that ann has
		want     string // is in the refusal
	}{
		"plain":                    {claim(nil), nil, "", "", ""},
		"looks after devices":      {looking, nil, "false", "", "spec.devices.requests[1].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"},
		"may look after devices":   {looking, nil, "true", "", ""},
		"gives devices":            {given, claim(nil), "", "update binding ns c", `status.allocation: Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: resourceclaims.resource.k8s.io is forbidden: User "ann" cannot update resource "resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope`},
		"may give devices":         {given, claim(nil), "", "update binding  ", ""},
		"tells of devices":         {told, given, "", "update driver ns d.example.org", `status.devices: Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="[arbitrary-node:update]" permission: `},
		"may tell of devices":      {told, given, "", "arbitrary-node:update driver ns d.example.org", ""},
		"tells nothing of devices": {told, told, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace("ns")
			ns.Labels = map[string]string{resourcev1.DRAAdminNamespaceLabelKey: c.label}
			authz := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if strings.Join([]string{a.GetVerb(), a.GetSubresource(), a.GetNamespace(), a.GetName()}, " ") == c.right {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
			r := request(Create, "resourceclaims", c.obj, nil)
			if c.old != nil {
				r = request(Update, "resourceclaims", c.obj, c.old)
				r.Subresource = "status"
			}
			r.Resource.Group, r.Resource.Version = resourcev1.GroupName, "v1"
			r.by("ann")
			err := run(t, deviceRights(newFakeStore().with(core("namespaces"), ns), authz), r)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}
