package registry

import (
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"orrery.dev/api"
)

// coreKinds are the kinds of the group without a name. Pods, nodes and services
// have files of their own.
func coreKinds(events *Kind) []*Kind {
	gv := corev1.SchemeGroupVersion
	return []*Kind{
		podKind(gv), nodeKind(gv), serviceKind(gv), endpointsKind(gv), events,
		kind[corev1.Binding, corev1.Binding]{Plural: "bindings", Verbs: createOnly}.erase(gv),
		kind[corev1.ComponentStatus, corev1.ComponentStatusList]{
			Plural: "componentstatuses", Short: []string{"cs"}, Cluster: true, Verbs: []string{"get", "list"},
			Columns: componentStatusColumns(), Row: componentStatusRow,
		}.erase(gv),
		configMapKind(gv), secretKind(gv), namespaceKind(gv), serviceAccountKind(gv),
		kind[corev1.LimitRange, corev1.LimitRangeList]{
			Plural: "limitranges", Short: []string{"limits"}, CreateOnUpdate: true,
			Validate: api.ValidateLimitRange,
			Default:  api.DefaultLimitRange,
			Prepare: func(r, old *corev1.LimitRange) {
				if old == nil && r.Name == "" && r.GenerateName == "" {
					r.Name = string(uuid.NewUUID())
				}
			},
		}.erase(gv),
		resourceQuotaKind(gv), podTemplateKind(gv), replicationControllerKind(gv),
		persistentVolumeKind(gv), persistentVolumeClaimKind(gv),
	}
}

func configMapKind(gv schema.GroupVersion) *Kind {
	return kind[corev1.ConfigMap, corev1.ConfigMapList]{
		Plural: "configmaps", Short: []string{"cm"},
		Validate: api.ValidateConfigMap,
		Columns:  configMapColumns(), Row: configMapRow,
	}.erase(gv)
}

func secretKind(gv schema.GroupVersion) *Kind {
	return kind[corev1.Secret, corev1.SecretList]{
		Plural:   "secrets",
		Validate: api.ValidateSecret, Warn: api.WarnSecret,
		Columns: secretColumns(), Row: secretRow,
		Default: api.DefaultSecret,
		Prepare: func(s, old *corev1.Secret) {
			// A write without a type keeps the one it has.
			if old != nil && s.Type == "" {
				s.Type = old.Type
			}
		},
		Fields: func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} },
	}.erase(gv)
}

func serviceAccountKind(gv schema.GroupVersion) *Kind {
	return kind[corev1.ServiceAccount, corev1.ServiceAccountList]{
		Plural: "serviceaccounts", Short: []string{"sa"}, Warn: api.WarnServiceAccount,
		Columns: serviceAccountColumns(), Row: serviceAccountRow,
		Sub: Sub{"token": handled[authenticationv1.TokenRequest](authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"), "create")},
	}.erase(gv)
}

func namespaceKind(gv schema.GroupVersion) *Kind {
	return kind[corev1.Namespace, corev1.NamespaceList]{
		Plural: "namespaces", Short: []string{"ns"}, Cluster: true,
		Validate: api.ValidateNamespace,
		Columns:  namespaceColumns(), Row: namespaceRow,
		Default:   api.DefaultNamespace,
		Verbs:     []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		ValidName: apivalidation.NameIsDNSLabel,
		Prepare:   prepareNamespace,
		Fields: func(ns *corev1.Namespace) fields.Set {
			return fields.Set{"name": ns.Name, "status.phase": string(ns.Status.Phase)}
		},
		Sub: Sub{
			"status": view(readWrite, func(ns, old *corev1.Namespace) { ns.Spec = old.Spec }, api.ValidateNamespaceStatus),
			"finalize": view([]string{"update"}, func(ns, old *corev1.Namespace) {
				spec, owners := ns.Spec, ns.ManagedFields
				*ns = *old.DeepCopy()
				ns.Spec, ns.ManagedFields = spec, owners
			}, api.ValidateNamespaceFinalize).resetting("status"),
		},
	}.erase(gv)
}

// prepareNamespace gives a namespace its finalizer, which only /finalize takes
// away, so that its deletion waits until it is empty.
func prepareNamespace(ns, old *corev1.Namespace) {
	if old != nil {
		ns.Spec.Finalizers, ns.Status = old.Spec.Finalizers, old.Status
		return
	}
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	for _, f := range ns.Spec.Finalizers {
		if f == corev1.FinalizerKubernetes {
			return
		}
	}
	ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
}

func resourceQuotaKind(gv schema.GroupVersion) *Kind {
	parts := halves[corev1.ResourceQuota]{}
	return kind[corev1.ResourceQuota, corev1.ResourceQuotaList]{
		Plural: "resourcequotas", Short: []string{"quota"},
		Validate: api.ValidateResourceQuota, Warn: api.WarnResourceQuota,
		Columns: quotaColumns(), Row: quotaRow,
		Prepare: parts.prepare,
		Sub:     Sub{"status": parts.sub(api.ValidateResourceQuotaStatus)},
	}.erase(gv)
}

func podTemplateKind(gv schema.GroupVersion) *Kind {
	return kind[corev1.PodTemplate, corev1.PodTemplateList]{
		Plural:   "podtemplates",
		Validate: api.ValidatePodTemplate, Warn: api.WarnPodTemplate,
		Columns: podTemplateColumns(), Row: podTemplateRow,
		Default: api.DefaultPodTemplate,
		Prepare: halves[corev1.PodTemplate]{spec: "Template", counted: true}.prepare,
	}.erase(gv)
}

func replicationControllerKind(gv schema.GroupVersion) *Kind {
	parts := halves[corev1.ReplicationController]{counted: true}
	return kind[corev1.ReplicationController, corev1.ReplicationControllerList]{
		Plural: "replicationcontrollers", Short: []string{"rc"}, In: []string{"all"}, Prefix: "controllers",
		Validate: api.ValidateReplicationController, Warn: api.WarnReplicationController, ValidName: validFinalName,
		Columns: replicaColumns(), Row: replicationControllerRow,
		Default:         api.DefaultReplicationController,
		OrphanByDefault: true,
		Prepare:         parts.prepare,
		Fields: func(rc *corev1.ReplicationController) fields.Set {
			return fields.Set{"status.replicas": itoa(rc.Status.Replicas)}
		},
		Sub: Sub{
			"status": parts.sub(api.ValidateReplicationControllerStatus),
			"scale": scale(func(rc *corev1.ReplicationController) (string, error) {
				return labels.SelectorFromSet(rc.Spec.Selector).String(), nil
			}),
		},
	}.erase(gv)
}

func persistentVolumeKind(gv schema.GroupVersion) *Kind {
	parts := halves[corev1.PersistentVolume]{}
	return kind[corev1.PersistentVolume, corev1.PersistentVolumeList]{
		Plural: "persistentvolumes", Short: []string{"pv"}, Cluster: true,
		Validate: api.ValidatePersistentVolume, Warn: api.WarnPersistentVolume,
		Columns: volumeColumns(), Row: volumeRow,
		Default: api.DefaultPersistentVolume,
		Prepare: func(v, old *corev1.PersistentVolume) {
			parts.prepare(v, old)
			if old == nil {
				now := metav1.Now()
				v.Status.Phase, v.Status.LastPhaseTransitionTime = corev1.VolumePending, &now
			}
		},
		Sub: Sub{"status": parts.sub(nil, func(v, old *corev1.PersistentVolume) {
			if v.Status.Phase != old.Status.Phase && sameTime(v.Status.LastPhaseTransitionTime, old.Status.LastPhaseTransitionTime) {
				now := metav1.Now()
				v.Status.LastPhaseTransitionTime = &now
			}
		})},
	}.erase(gv)
}

func persistentVolumeClaimKind(gv schema.GroupVersion) *Kind {
	parts := halves[corev1.PersistentVolumeClaim]{}
	return kind[corev1.PersistentVolumeClaim, corev1.PersistentVolumeClaimList]{
		Plural: "persistentvolumeclaims", Short: []string{"pvc"},
		Validate: api.ValidatePersistentVolumeClaim, Warn: api.WarnPersistentVolumeClaim,
		Columns: claimColumns(), Row: claimRow,
		Default: api.DefaultPersistentVolumeClaim,
		Prepare: func(c, old *corev1.PersistentVolumeClaim) {
			parts.prepare(c, old)
			api.SetClaimSource(c, old)
			if old == nil {
				c.Status.Phase = corev1.ClaimPending
			}
		},
		Sub: Sub{"status": parts.sub(api.ValidateClaimStatus)},
	}.erase(gv)
}

// eventTTL is how long events are kept.
const eventTTL = time.Hour

// coreEvents is the stored form of events, which events.k8s.io shows in another.
func coreEvents() *Kind {
	return kind[corev1.Event, corev1.EventList]{
		Plural: "events", Short: []string{"ev"}, TTL: eventTTL, CreateOnUpdate: true,
		Ungarbaged: true, OwnMeta: true,
		Validate: api.ValidateEvent,
		Columns:  eventColumns(), Row: eventRow,
		Fields: eventFields,
	}.erase(corev1.SchemeGroupVersion)
}

func eventFields(e *corev1.Event) fields.Set {
	component := e.Source.Component
	if component == "" {
		component = e.ReportingController
	}
	o := e.InvolvedObject
	return fields.Set{
		"involvedObject.kind": o.Kind, "involvedObject.namespace": o.Namespace, "involvedObject.name": o.Name,
		"involvedObject.uid": string(o.UID), "involvedObject.apiVersion": o.APIVersion,
		"involvedObject.resourceVersion": o.ResourceVersion, "involvedObject.fieldPath": o.FieldPath,
		"reason": e.Reason, "reportingComponent": e.ReportingController, "source": component, "type": e.Type,
	}
}

func sameTime(a, b *metav1.Time) bool { return a == b || a != nil && a.Equal(b) }
