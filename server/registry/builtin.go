package registry

// Builtin lists the built-in kinds by group, in the order of discovery. One
// line a group; the rows are in the group's file.
func Builtin() [][]*Kind {
	events := coreEvents()
	hpas := autoscalingV2()
	return [][]*Kind{
		coreKinds(events),
		apiregistrationKinds(),
		appsKinds(),
		eventsKinds(events),
		authenticationKinds(),
		authorizationKinds(),
		hpas,
		autoscalingV1(hpas[0]),
		batchKinds(),
		certificatesKinds(),
		networkingKinds(),
		policyKinds(),
		rbacKinds(),
		storageKinds(),
		admissionregistrationKinds(),
		apiextensionsKinds(),
		schedulingKinds(),
		coordinationKinds(),
		nodeKinds(),
		discoveryKinds(),
		resourceKinds(),
		flowcontrolKinds(),
		storagemigrationKinds(),
	}
}

// NewBuiltinTable makes a table of the built-in kinds.
func NewBuiltinTable() *Table { return NewTable(Builtin()...) }
