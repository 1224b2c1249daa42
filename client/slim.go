package client

import "k8s.io/apimachinery/pkg/api/meta"

// Slim is the transform of informers that drops managed fields, which are often
// half an object, and which no reader of caches asks for.
func Slim(obj any) (any, error) {
	if o, err := meta.Accessor(obj); err == nil {
		o.SetManagedFields(nil)
	}
	return obj, nil
}
