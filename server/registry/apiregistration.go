package registry

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
)

func apiregistrationKinds() []*Kind {
	parts := halves[api.APIService]{}
	return []*Kind{kind[api.APIService, api.APIServiceList]{
		Plural: "apiservices", Cluster: true, In: []string{"api-extensions"},
		Validate: api.ValidateAPIService,
		Columns:  apiServiceColumns(), Row: apiServiceRow,
		Default: api.DefaultAPIService,
		Prefix:  "apiregistration.k8s.io/apiservices", JSON: true, NeedsRevision: true,
		NamedBy: api.APIServiceName,
		Prepare: func(a, old *api.APIService) {
			parts.prepare(a, old)
			if old == nil && a.Spec.Service == nil {
				api.SetAvailable(a, api.LocalAvailable())
			}
		},
		Sub: Sub{"status": parts.pure(api.ValidateAPIServiceStatus)},
	}.erase(schema.GroupVersion{Group: api.APIRegistrationGroup, Version: api.APIRegistrationVersion})}
}
