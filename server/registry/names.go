package registry

import (
	"k8s.io/apimachinery/pkg/api/validate/content"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
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

// validIPName wants an address in its one canonical spelling.
func validIPName(name string, _ bool) []string {
	var messages []string
	for _, e := range validation.IsValidIP(field.NewPath(""), name) {
		messages = append(messages, e.Detail)
	}
	return messages
}

// validFinalName is the usual rule for names, of which it is not asked what they are
// generated from.
func validFinalName(name string, prefix bool) []string {
	if prefix {
		return nil
	}
	return content.IsDNS1123Subdomain(name)
}
