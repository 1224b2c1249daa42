package admission

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// deviceRights keeps devices from whom they are not meant for: claims that look after
// devices in use are for namespaces that are labelled so, giving devices out is for
// who may bind claims, and telling how devices are for their drivers.
func deviceRights(reader Reader, authz authorizer.UnconditionalAuthorizer) Plugin {
	return Plugin{
		Name: "DeviceRights",
		On: func(r *Request) bool {
			if r.Resource.Group != resourcev1.GroupName {
				return false
			}
			made := r.Operation == Create && slices.Contains([]string{"resourceclaims", "resourceclaimtemplates"}, r.Resource.Resource)
			return made || r.Operation == Update && r.Resource.Resource == "resourceclaims" && r.Subresource == "status"
		},
		Validate: func(ctx context.Context, r *Request) error {
			d := deviceCheck{reader, authz, r}
			errs := d.looksAfter(ctx)
			if claim, ok := r.Object.(*resourcev1.ResourceClaim); ok && r.Operation == Update {
				errs = append(errs, d.status(ctx, &claim.Status, &r.Old.(*resourcev1.ResourceClaim).Status)...)
			}
			if len(errs) == 0 {
				return nil
			}
			return apierrors.NewInvalid(r.Kind.GroupKind(), r.Name, errs)
		},
	}
}

type deviceCheck struct {
	reader Reader
	authz  authorizer.UnconditionalAuthorizer
	*Request
}

// looksAfter wants a namespace for it, if devices in use are asked for, or given.
func (d deviceCheck) looksAfter(ctx context.Context) field.ErrorList {
	at := d.adminPath()
	if at == nil {
		return nil
	}
	const label = resourcev1.DRAAdminNamespaceLabelKey
	ns, err := get[*corev1.Namespace](ctx, d.reader, core("namespaces"), "", d.Namespace)
	switch {
	case err != nil:
		return field.ErrorList{field.InternalError(at, fmt.Errorf("could not retrieve namespace to verify admin access: %w", err))}
	case ns.Labels[label] != "true":
		return field.ErrorList{field.Forbidden(at, fmt.Sprintf("admin access to devices requires the `%s: true` label on the containing namespace", label))}
	}
	return nil
}

// adminPath is where such devices are named first; nil: nowhere.
func (d deviceCheck) adminPath() *field.Path {
	asks := func(r resourcev1.DeviceRequest) bool {
		return r.Exactly != nil && r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess
	}
	requests := field.NewPath("spec", "devices", "requests")
	switch o := d.Object.(type) {
	case *resourcev1.ResourceClaimTemplate:
		return firstPath(requests, slices.IndexFunc(o.Spec.Spec.Devices.Requests, asks))
	case *resourcev1.ResourceClaim:
		if d.Operation == Create {
			return firstPath(requests, slices.IndexFunc(o.Spec.Devices.Requests, asks))
		}
		if givenToAdmin(d.Old.(*resourcev1.ResourceClaim)) >= 0 {
			return nil // which was asked about
		}
		return firstPath(field.NewPath("status", "allocation", "devices", "results"), givenToAdmin(o))
	}
	return nil
}

func firstPath(list *field.Path, i int) *field.Path {
	if i < 0 {
		return nil
	}
	return list.Index(i).Child("adminAccess")
}

func givenToAdmin(c *resourcev1.ResourceClaim) int {
	if c.Status.Allocation == nil {
		return -1
	}
	return slices.IndexFunc(c.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool {
		return r.AdminAccess != nil && *r.AdminAccess
	})
}

// status asks for the rights to what changes in a claim's status.
func (d deviceCheck) status(ctx context.Context, is, was *resourcev1.ResourceClaimStatus) field.ErrorList {
	verb := "update"
	if _, ok := d.Options.(*metav1.PatchOptions); ok {
		verb = "patch"
	}
	var errs field.ErrorList
	at := field.NewPath("status")
	if !equality.Semantic.DeepEqual(is.Allocation, was.Allocation) || !equality.Semantic.DeepEqual(is.ReservedFor, was.ReservedFor) {
		if err := d.may(ctx, verb, resourcev1.SubresourceBinding, "", ""); err != nil {
			errs = append(errs, field.Forbidden(at.Child("allocation"), fmt.Sprintf(`changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="%s" permission: %s`, verb, err)))
		}
	}
	if is.Allocation == nil {
		return errs
	}
	verbs := []string{resourcev1.VerbPrefixArbitraryNode + verb}
	if d.onNodeOf(is.Allocation) {
		verbs = []string{resourcev1.VerbPrefixAssociatedNode + verb, verbs[0]}
	}
	for _, driver := range changedDrivers(is.Devices, was.Devices) {
		var refused error
		for _, verb := range verbs {
			err := d.may(ctx, verb, resourcev1.SubresourceDriver, d.Namespace, driver)
			if err == nil {
				refused = nil
				break
			}
			if refused == nil {
				refused = err
			}
		}
		if refused != nil {
			errs = append(errs, field.Forbidden(at.Child("devices"), fmt.Sprintf(`changing status.devices requires resource="resourceclaims/driver", verb="%s" permission: %s`, verbs, refused)))
		}
	}
	return errs
}

// may asks for a right to a subresource that there is in rules only.
func (d deviceCheck) may(ctx context.Context, verb, subresource, namespace, name string) error {
	decision, reason, err := d.authz.Authorize(ctx, authorizer.AttributesRecord{
		User: d.User, Verb: verb, Namespace: namespace, Name: name, APIGroup: d.Resource.Group, APIVersion: d.Resource.Version,
		Resource: d.Resource.Resource, Subresource: subresource, ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return nil
	}
	scope := "at the cluster scope"
	if namespace != "" {
		scope = fmt.Sprintf("in the namespace %q", namespace)
	}
	text := fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", d.User.GetName(), verb, d.Resource.Resource+"/"+subresource, d.Resource.Group, scope)
	if err != nil {
		reason = err.Error()
	}
	if reason != "" {
		text += ": " + reason
	}
	return apierrors.NewForbidden(d.Resource.GroupResource(), name, fmt.Errorf("%s", text))
}

// onNodeOf tells service accounts of pods on the node that a claim's devices are on.
func (d deviceCheck) onNodeOf(a *resourcev1.AllocationResult) bool {
	if _, _, err := serviceaccount.SplitUsername(d.User.GetName()); err != nil || a.NodeSelector == nil || len(a.NodeSelector.NodeSelectorTerms) != 1 {
		return false
	}
	term, nodes := a.NodeSelector.NodeSelectorTerms[0], d.User.GetExtra()[serviceaccount.NodeNameKey]
	if len(term.MatchExpressions) > 0 || len(term.MatchFields) != 1 || len(nodes) != 1 {
		return false
	}
	f := term.MatchFields[0]
	return f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && slices.Equal(f.Values, nodes)
}

// changedDrivers are those of devices of which other things are said than before.
func changedDrivers(is, was []resourcev1.AllocatedDeviceStatus) []string {
	var drivers []string
	for _, pair := range [][2][]resourcev1.AllocatedDeviceStatus{{is, was}, {was, is}} {
		for _, one := range pair[0] {
			same := slices.ContainsFunc(pair[1], func(other resourcev1.AllocatedDeviceStatus) bool { return equality.Semantic.DeepEqual(one, other) })
			if !same && !slices.Contains(drivers, one.Driver) {
				drivers = append(drivers, one.Driver)
			}
		}
	}
	slices.Sort(drivers)
	return drivers
}
