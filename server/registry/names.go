package registry

import (
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

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

// validTrustBundleName wants "signer.example.com:path:name" or a name without
// colons; which of them is for Validate to say, since it depends on the signer.
func validTrustBundleName(name string, prefix bool) []string {
	for _, part := range strings.Split(name, ":") {
		if bad := apivalidation.NameIsDNSSubdomain(part, prefix); len(bad) > 0 {
			return bad
		}
	}
	return nil
}
