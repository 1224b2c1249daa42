package registry

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"orrery.dev/api"
)

func coordinationKinds() []*Kind {
	return []*Kind{kind[coordinationv1.Lease, coordinationv1.LeaseList]{
		Plural: "leases", CreateOnUpdate: true, NeedsRevision: true,
		Validate: api.ValidateLease,
		Prepare: func(l, _ *coordinationv1.Lease) { // leaders are not chosen for others
			l.Spec.Strategy, l.Spec.PreferredHolder = nil, nil
		},
		Columns: leaseColumns(), Row: leaseRow,
	}.erase(coordinationv1.SchemeGroupVersion)}
}
