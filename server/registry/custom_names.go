package registry

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Accept decides which names a definition gets, next to those that the other
// definitions of its group have got already, and says so in its status: each
// name by itself, so that the status is the best that can be had. A definition
// is established the first time that it gets all it asks for, and stays so. It
// reports whether the status has changed.
func Accept(crd *apiextensionsv1.CustomResourceDefinition, others []*apiextensionsv1.CustomResourceDefinition) bool {
	before := crd.Status.DeepCopy()
	resources, kinds := namesInUse(crd, others)
	n := negotiation{want: crd.Spec.Names, got: &crd.Status.AcceptedNames}
	n.settle("PluralConflict", n.want.Plural, &n.got.Plural, resources)
	n.settle("SingularConflict", n.want.Singular, &n.got.Singular, resources)
	n.settleShort(resources)
	n.settle("KindConflict", n.want.Kind, &n.got.Kind, kinds)
	n.settle("ListKindConflict", n.want.ListKind, &n.got.ListKind, kinds)
	n.got.Categories = n.want.Categories

	accepted := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue,
		Reason: "NoConflicts", Message: "no conflicts found",
	}
	if n.reason != "" {
		accepted.Status, accepted.Reason, accepted.Message = apiextensionsv1.ConditionFalse, n.reason, n.message
	}
	setCondition(crd, accepted)
	establish(crd, n.reason == "")
	approve(crd)
	return !equality.Semantic.DeepEqual(before, &crd.Status)
}

// setCondition leaves a condition that says the same already as it is.
func setCondition(crd *apiextensionsv1.CustomResourceDefinition, c apiextensionsv1.CustomResourceDefinitionCondition) {
	if !apihelpers.IsCRDConditionEquivalent(&c, apihelpers.FindCRDCondition(crd, c.Type)) {
		apihelpers.SetCRDCondition(crd, c)
	}
}

func establish(crd *apiextensionsv1.CustomResourceDefinition, accepted bool) {
	if apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return
	}
	c := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse,
		Reason: "NotAccepted", Message: "not all names are accepted",
	}
	if accepted {
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionTrue, "InitialNamesAccepted", "the initial names have been accepted"
	}
	setCondition(crd, c)
}

// approve tells whether a definition in one of the project's own groups has been
// through API review, as its annotation says.
func approve(crd *apiextensionsv1.CustomResourceDefinition) {
	if !apihelpers.IsProtectedCommunityGroup(crd.Spec.Group) {
		return
	}
	c := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse,
	}
	state, message := apihelpers.GetAPIApprovalState(crd.Annotations)
	c.Message = message
	switch state {
	case apihelpers.APIApproved:
		c.Status, c.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		c.Reason = "UnapprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		c.Reason = "MissingAnnotation"
	case apihelpers.APIApprovalInvalid:
		c.Reason = "InvalidAnnotation"
	default:
		c.Status, c.Reason = apiextensionsv1.ConditionUnknown, "UnknownAnnotation"
	}
	setCondition(crd, c)
}

// negotiation is between the names that a definition wants and the ones it got.
type negotiation struct {
	want            apiextensionsv1.CustomResourceDefinitionNames
	got             *apiextensionsv1.CustomResourceDefinitionNames
	reason, message string // of the last refusal
}

func (n *negotiation) settle(reason, want string, got *string, used sets.Set[string]) {
	if want == *got {
		return
	}
	if used.Has(want) {
		n.reason, n.message = reason, errInUse(want).Error()
		return
	}
	*got = want
}

// settleShort accepts all short names or none.
func (n *negotiation) settleShort(used sets.Set[string]) {
	var refused []error
	for _, short := range n.want.ShortNames {
		if !slices.Contains(n.got.ShortNames, short) && used.Has(short) {
			refused = append(refused, errInUse(short))
		}
	}
	switch {
	case len(refused) == 0:
		n.got.ShortNames = n.want.ShortNames
	case len(refused) == 1:
		n.reason, n.message = "ShortNamesConflict", refused[0].Error()
	default:
		n.reason, n.message = "ShortNamesConflict", fmt.Sprintf("%v", joined(refused))
	}
}

// joined puts several refusals in one line: "[a, b]".
func joined(errs []error) error {
	text := "["
	for i, e := range errs {
		if i > 0 {
			text += ", "
		}
		text += e.Error()
	}
	return errors.New(text + "]")
}

func errInUse(name string) error { return fmt.Errorf("%q is already in use", name) }

// namesInUse are the names that the other definitions of the group have got.
func namesInUse(crd *apiextensionsv1.CustomResourceDefinition, others []*apiextensionsv1.CustomResourceDefinition) (resources, kinds sets.Set[string]) {
	resources, kinds = sets.New[string](), sets.New[string]()
	for _, other := range others {
		if other.Spec.Group != crd.Spec.Group || other.Name == crd.Name {
			continue
		}
		names := other.Status.AcceptedNames
		resources.Insert(names.Plural, names.Singular).Insert(names.ShortNames...)
		kinds.Insert(names.Kind, names.ListKind)
	}
	resources.Delete("")
	kinds.Delete("")
	return resources, kinds
}
