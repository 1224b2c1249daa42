package registry

import (
	"maps"
	"slices"

	nodev1 "k8s.io/api/node/v1"

	"orrery.dev/api"
)

func nodeKinds() []*Kind {
	return []*Kind{kind[nodev1.RuntimeClass, nodev1.RuntimeClassList]{
		Plural: "runtimeclasses", Cluster: true, NeedsRevision: true, CreateOnUpdate: true,
		Validate: api.ValidateRuntimeClass,
		Warn:     warnRuntimeClass,
		Columns:  runtimeClassColumns(), Row: runtimeClassRow,
	}.erase(nodev1.SchemeGroupVersion)}
}

// warnRuntimeClass points at labels of nodes that have other names now.
func warnRuntimeClass(c, _ *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	var warnings []string
	for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
		if text := api.OldNodeLabel(key); text != "" {
			warnings = append(warnings, "scheduling.nodeSelector: "+text)
		}
	}
	return warnings
}
