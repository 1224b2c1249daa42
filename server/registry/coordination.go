package registry

import (
	coordinationv1 "k8s.io/api/coordination/v1"
)

func coordinationKinds() []*Kind {
	return []*Kind{kind[coordinationv1.Lease, coordinationv1.LeaseList]{
		Plural: "leases", CreateOnUpdate: true, NeedsRevision: true,
		Columns: leaseColumns(), Row: leaseRow,
	}.erase(coordinationv1.SchemeGroupVersion)}
}
