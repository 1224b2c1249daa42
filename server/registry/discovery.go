package registry

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"orrery.dev/api"
)

func discoveryKinds() []*Kind {
	return []*Kind{kind[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList]{
		Plural:   "endpointslices",
		Validate: api.ValidateEndpointSlice, Warn: api.WarnEndpointSlice,
		Columns: endpointSliceColumns(), Row: endpointSliceRow,
		Default: api.DefaultEndpointSlice,
		Prepare: func(s, old *discoveryv1.EndpointSlice) {
			dropTopology(s, old)
			if old == nil {
				s.Generation = 1
				return
			}
			s.Generation = old.Generation
			if !equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) || !equality.Semantic.DeepEqual(s.Ports, old.Ports) ||
				!equality.Semantic.DeepEqual(s.Labels, old.Labels) {
				s.Generation++
			}
		},
	}.erase(discoveryv1.SchemeGroupVersion)}
}

// dropTopology empties a field that older versions had, unless nothing else changes
// either.
func dropTopology(s, old *discoveryv1.EndpointSlice) {
	if old != nil && equality.Semantic.DeepEqual(s.Endpoints, old.Endpoints) {
		return
	}
	for i := range s.Endpoints {
		s.Endpoints[i].DeprecatedTopology = nil
	}
}
