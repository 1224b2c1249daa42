package registry

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"orrery.dev/api"
)

func apiextensionsKinds() []*Kind {
	type crd = apiextensionsv1.CustomResourceDefinition
	parts := halves[crd, apiextensionsv1.CustomResourceDefinitionSpec, apiextensionsv1.CustomResourceDefinitionStatus]{
		spec:    func(c *crd) *apiextensionsv1.CustomResourceDefinitionSpec { return &c.Spec },
		status:  func(c *crd) *apiextensionsv1.CustomResourceDefinitionStatus { return &c.Status },
		counted: true,
	}
	return []*Kind{kind[crd, apiextensionsv1.CustomResourceDefinitionList]{
		Plural: "customresourcedefinitions", Short: []string{"crd", "crds"}, In: []string{"api-extensions"}, Cluster: true,
		Columns: crdColumns(), Row: crdRow,
		Default:  api.DefaultCustomResourceDefinition,
		Validate: validateDefinition,
		Prefix:   "apiextensions.k8s.io/customresourcedefinitions", JSON: true, NeedsRevision: true,
		Prepare: func(c, old *crd) {
			parts.prepare(c, old)
			if old == nil {
				// What is stored in etcd is the storage version and nothing else yet.
				for _, v := range c.Spec.Versions {
					if v.Storage {
						c.Status.StoredVersions = []string{v.Name}
					}
				}
				return
			}
			for _, v := range c.Spec.Versions {
				if v.Storage && !contains(c.Status.StoredVersions, v.Name) {
					c.Status.StoredVersions = append(c.Status.StoredVersions[:len(c.Status.StoredVersions):len(c.Status.StoredVersions)], v.Name)
				}
			}
		},
		Sub: Sub{"status": parts.sub()},
	}.erase(apiextensionsv1.SchemeGroupVersion)}
}

func contains(all []string, s string) bool {
	for _, a := range all {
		if a == s {
			return true
		}
	}
	return false
}
