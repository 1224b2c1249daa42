package api

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
)

// EventToCore is an event of events.k8s.io in the form in which it is stored.
func EventToCore(e *eventsv1.Event) *corev1.Event {
	e = e.DeepCopy()
	out := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Related: e.Related,
		Reason: e.Reason, Message: e.Note, Type: e.Type, Action: e.Action, EventTime: e.EventTime,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp,
		LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if e.Series != nil {
		out.Series = &corev1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	out.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Event"))
	return out
}

// EventFromCore is a stored event in the form of events.k8s.io.
func EventFromCore(e *corev1.Event) *eventsv1.Event {
	e = e.DeepCopy()
	out := &eventsv1.Event{
		ObjectMeta: e.ObjectMeta, Regarding: e.InvolvedObject, Related: e.Related,
		Reason: e.Reason, Note: e.Message, Type: e.Type, Action: e.Action, EventTime: e.EventTime,
		DeprecatedSource: e.Source, DeprecatedFirstTimestamp: e.FirstTimestamp,
		DeprecatedLastTimestamp: e.LastTimestamp, DeprecatedCount: e.Count,
		ReportingController: e.ReportingController, ReportingInstance: e.ReportingInstance,
	}
	if e.Series != nil {
		out.Series = &eventsv1.EventSeries{Count: e.Series.Count, LastObservedTime: e.Series.LastObservedTime}
	}
	out.SetGroupVersionKind(eventsv1.SchemeGroupVersion.WithKind("Event"))
	return out
}
