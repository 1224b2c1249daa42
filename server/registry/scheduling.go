package registry

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"orrery.dev/api"
)

func schedulingKinds() []*Kind {
	return []*Kind{kind[schedulingv1.PriorityClass, schedulingv1.PriorityClassList]{
		Plural: "priorityclasses", Short: []string{"pc"}, Cluster: true,
		Validate: api.ValidatePriorityClass,
		Columns:  priorityClassColumns(), Row: priorityClassRow,
		Default: api.DefaultPriorityClass,
		Prepare: func(c, old *schedulingv1.PriorityClass) {
			if old == nil {
				c.Generation = 1
			}
		},
	}.erase(schedulingv1.SchemeGroupVersion)}
}
