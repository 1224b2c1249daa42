package registry

import (
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NameRule is the check of an object's name.
func (k *Kind) NameRule(obj runtime.Object) apivalidation.ValidateNameFunc {
	switch {
	case k.NamedBy != nil:
		return k.NamedBy(obj)
	case k.ValidName != nil:
		return k.ValidName
	}
	return apivalidation.NameIsDNSSubdomain
}

// validLabelName wants names that are DNS labels.
func validLabelName(name string, prefix bool) []string {
	return apivalidation.NameIsDNSLabel(name, prefix)
}

// validIPName wants an address in its one canonical spelling.
func validIPName(name string, _ bool) []string {
	var messages []string
	for _, e := range validation.IsValidIP(field.NewPath(""), name) {
		messages = append(messages, e.Detail)
	}
	return messages
}

// anySegment takes every name that fits into a URL, whatever it is generated from.
func anySegment(name string, prefix bool) []string {
	if prefix {
		return nil
	}
	return path.IsValidPathSegmentName(name)
}
