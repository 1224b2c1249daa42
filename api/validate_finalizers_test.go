package api

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestValidateFinalizerNames(t *testing.T) {
	names := []string{"kubernetes", "foregroundDeletion", "orphan", "example.org/f", "bad"}
	errs := ValidateFinalizerNames(schema.GroupResource{Resource: "pods"}, names)
	if want := `metadata.finalizers[4]: Invalid value: "bad": name is neither a standard finalizer name nor is it fully qualified`; len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("got %v, want %s", errs, want)
	}
	for _, group := range []string{"policy", APIRegistrationGroup} {
		if errs := ValidateFinalizerNames(schema.GroupResource{Group: group}, names); len(errs) > 0 {
			t.Errorf("in %s, which takes any: %v", group, errs)
		}
	}
}
