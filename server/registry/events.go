package registry

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"orrery.dev/api"
)

// eventsKinds shows core events in the newer group.
func eventsKinds(stored *Kind) []*Kind {
	row := kind[eventsv1.Event, eventsv1.EventList]{
		Plural: "events", Short: []string{"ev"}, TTL: eventTTL, CreateOnUpdate: true,
		Columns: eventColumns(), Row: newEventRow,
		Store:      stored,
		ToStored:   func(o runtime.Object) (runtime.Object, error) { return api.EventToCore(as[eventsv1.Event](o)), nil },
		FromStored: func(o runtime.Object) (runtime.Object, error) { return api.EventFromCore(as[corev1.Event](o)), nil },
		Fields:     newEventFields,
	}.erase(eventsv1.SchemeGroupVersion)
	row.Validate = func(obj, old runtime.Object) field.ErrorList {
		return api.ValidateNewEvent(as[corev1.Event](obj), as[corev1.Event](old))
	}
	return []*Kind{row}
}

// newEventFields are the fields under the names of this group.
func newEventFields(e *eventsv1.Event) fields.Set {
	o := e.Regarding
	return fields.Set{
		"regarding.kind": o.Kind, "regarding.namespace": o.Namespace, "regarding.name": o.Name,
		"regarding.uid": string(o.UID), "regarding.apiVersion": o.APIVersion,
		"regarding.resourceVersion": o.ResourceVersion, "regarding.fieldPath": o.FieldPath,
		"reason": e.Reason, "reportingController": e.ReportingController, "type": e.Type,
	}
}
