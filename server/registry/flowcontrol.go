package registry

import (
	"cmp"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"orrery.dev/api"
)

func flowcontrolKinds() []*Kind {
	gv := flowcontrolv1.SchemeGroupVersion
	flows := halves[flowcontrolv1.FlowSchema]{counted: true}
	type level = flowcontrolv1.PriorityLevelConfiguration
	levels := halves[level]{counted: true}
	return []*Kind{
		kind[flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaList]{
			Plural: "flowschemas", Cluster: true,
			Validate: api.ValidateFlowSchema,
			Columns:  flowSchemaColumns(), Row: flowSchemaRow,
			Order: func(a, b *flowcontrolv1.FlowSchema) int { // as they are tried
				return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
			},
			Default: api.DefaultFlowSchema,
			Prepare: flows.prepare,
			Sub:     Sub{"status": flows.pure(api.ValidateFlowSchemaStatus)},
		}.erase(gv),
		kind[level, flowcontrolv1.PriorityLevelConfigurationList]{
			Plural: "prioritylevelconfigurations", Cluster: true,
			Validate: api.ValidatePriorityLevel,
			Columns:  priorityLevelColumns(), Row: priorityLevelRow,
			Default: api.DefaultPriorityLevel,
			Prepare: levels.prepare,
			Sub:     Sub{"status": levels.pure(api.ValidatePriorityLevelStatus)},
		}.erase(gv),
	}
}
