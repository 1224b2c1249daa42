package registry

import (
	policyv1 "k8s.io/api/policy/v1"

	"orrery.dev/api"
)

func policyKinds() []*Kind {
	type budget = policyv1.PodDisruptionBudget
	parts := halves[budget]{counted: true}
	return []*Kind{kind[budget, policyv1.PodDisruptionBudgetList]{
		Plural: "poddisruptionbudgets", Short: []string{"pdb"}, NeedsRevision: true,
		Validate: api.ValidatePodDisruptionBudget, OwnMeta: true,
		Columns: budgetColumns(), Row: budgetRow,
		Prepare: parts.prepare,
		Sub:     Sub{"status": parts.sub(api.ValidatePodDisruptionBudgetStatus)},
	}.erase(policyv1.SchemeGroupVersion)}
}
