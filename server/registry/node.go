package registry

import (
	nodev1 "k8s.io/api/node/v1"

	"orrery.dev/api"
)

func nodeKinds() []*Kind {
	return []*Kind{kind[nodev1.RuntimeClass, nodev1.RuntimeClassList]{
		Plural: "runtimeclasses", Cluster: true, NeedsRevision: true, CreateOnUpdate: true,
		Validate: api.ValidateRuntimeClass,
		Columns:  runtimeClassColumns(), Row: runtimeClassRow,
	}.erase(nodev1.SchemeGroupVersion)}
}
