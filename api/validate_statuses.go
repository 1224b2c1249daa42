package api

import (
	"fmt"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"
	netutils "k8s.io/utils/net"
)

// What controllers and node agents write into a status is checked by functions
// ValidateXStatus(obj, old). Those of pods, jobs and claims of devices have files of
// their own.

func statusPath() *field.Path { return field.NewPath("status") }

// numbers wants fields of a status not to be negative; they are named as in JSON.
func numbers(status any, names ...string) field.ErrorList {
	var errs field.ErrorList
	for _, name := range names {
		errs = append(errs, nonNegative(numberOf(status, name), statusPath().Child(name))...)
	}
	return errs
}

// noneAbove wants fields of a status not to be above another.
func noneAbove(status any, most, called string, names ...string) field.ErrorList {
	var errs field.ErrorList
	for _, name := range names {
		n := numberOf(status, name)
		errs = append(errs, refuse(n > numberOf(status, most), statusPath().Child(name), n, "cannot be greater than "+called)...)
	}
	return errs
}

// numberOf is the value of a field, 0 if there is none.
func numberOf(status any, name string) int64 {
	v := reflect.ValueOf(status).Elem().FieldByNameFunc(func(have string) bool { return strings.EqualFold(have, name) })
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return 0
		}
		v = v.Elem()
	}
	return v.Int()
}

// growing wants the count of collisions not to go down.
func growing(status, old any) field.ErrorList {
	const name = "collisionCount"
	n, before := numberOf(status, name), numberOf(old, name)
	return refuse(before > 0 && n < before, statusPath().Child(name), n, "cannot be decremented")
}

// ValidateDeploymentStatus names the faults of a Deployment's new status.
func ValidateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	s := &d.Status
	errs := numbers(s, "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas", "terminatingReplicas", "collisionCount")
	errs = append(errs, noneAbove(s, "replicas", "status.replicas", "updatedReplicas", "readyReplicas", "availableReplicas")...)
	errs = append(errs, noneAbove(s, "readyReplicas", "readyReplicas", "availableReplicas")...)
	return append(errs, growing(s, &old.Status)...)
}

// ValidateReplicaSetStatus names the faults of a ReplicaSet's new status.
func ValidateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	errs := numbers(&r.Status, "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration", "terminatingReplicas")
	return append(errs, replicasAbove(&r.Status)...)
}

// ValidateReplicationControllerStatus names the faults of a ReplicationController's
// new status.
func ValidateReplicationControllerStatus(rc, _ *corev1.ReplicationController) field.ErrorList {
	errs := numbers(&rc.Status, "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration")
	return append(errs, replicasAbove(&rc.Status)...)
}

func replicasAbove(status any) field.ErrorList {
	errs := noneAbove(status, "replicas", "status.replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")
	return append(errs, noneAbove(status, "readyReplicas", "readyReplicas", "availableReplicas")...)
}

// ValidateStatefulSetStatus names the faults of a StatefulSet's new status.
func ValidateStatefulSetStatus(set, old *appsv1.StatefulSet) field.ErrorList {
	s := &set.Status
	errs := numbers(s, "replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas", "observedGeneration", "collisionCount")
	errs = append(errs, noneAbove(s, "replicas", "status.replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas")...)
	errs = append(errs, noneAbove(s, "readyReplicas", "status.readyReplicas", "availableReplicas")...)
	return append(errs, growing(s, &old.Status)...)
}

// ValidateDaemonSetStatus names the faults of a DaemonSet's new status.
func ValidateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	errs := numbers(&d.Status, "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "observedGeneration",
		"updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount")
	return append(errs, growing(&d.Status, &old.Status)...)
}

// ValidateHorizontalPodAutoscalerStatus names the faults of an autoscaler's new
// status.
func ValidateHorizontalPodAutoscalerStatus(h, _ *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	var errs field.ErrorList
	for i, c := range h.Status.Conditions {
		errs = append(errs, nonNegativePtr(c.ObservedGeneration, statusPath().Child("conditions").Index(i).Child("observedGeneration"))...)
	}
	return append(errs, numbers(&h.Status, "currentReplicas", "desiredReplicas")...)
}

// ValidatePodDisruptionBudgetStatus names the faults of a budget's new status.
func ValidatePodDisruptionBudgetStatus(b, _ *policyv1.PodDisruptionBudget) field.ErrorList {
	errs := metavalidation.ValidateConditions(b.Status.Conditions, statusPath().Child("conditions"))
	return append(errs, numbers(&b.Status, "disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")...)
}

// ValidateValidatingPolicyStatus names the faults of what was found in a policy.
func ValidateValidatingPolicyStatus(p, _ *admissionv1.ValidatingAdmissionPolicy) field.ErrorList {
	var errs field.ErrorList
	if t := p.Status.TypeChecking; t != nil {
		for i, w := range t.ExpressionWarnings {
			at := statusPath().Child("typeChecking", "expressionWarnings").Index(i)
			errs = append(errs, requiredFields(at, "warning", w.Warning)...)
			errs = append(errs, validPathTo(strings.TrimSpace(w.FieldRef), at.Child("fieldRef"))...)
		}
	}
	return append(errs, metavalidation.ValidateConditions(p.Status.Conditions, statusPath().Child("conditions"))...)
}

// validPathTo wants a path within an object.
func validPathTo(ref string, at *field.Path) field.ErrorList {
	if ref == "" {
		return required(ref, at)
	}
	err := jsonpath.New("").Parse("{" + ref + "}")
	return refuse(err != nil, at, ref, fmt.Sprintf("invalid JSONPath: %v", err))
}

// ValidateNamespaceStatus names the faults of a namespace's new status.
func ValidateNamespaceStatus(ns, _ *corev1.Namespace) field.ErrorList {
	phase, at := ns.Status.Phase, statusPath().Child("Phase")
	if ns.DeletionTimestamp.IsZero() {
		return refuse(phase != corev1.NamespaceActive, at, phase, "may only be 'Active' if `deletionTimestamp` is empty")
	}
	return refuse(phase != corev1.NamespaceTerminating, at, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")
}

// ValidateServiceStatus names the faults of a Service's new status.
func ValidateServiceStatus(s, old *corev1.Service) field.ErrorList {
	at := statusPath().Child("loadBalancer", "ingress")
	points := s.Status.LoadBalancer.Ingress
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && len(points) > 0 {
		return forbid(true, at, "may only be used when `spec.type` is 'LoadBalancer'")
	}
	var before []string
	for _, p := range old.Status.LoadBalancer.Ingress {
		before = append(before, p.IP)
	}
	var errs field.ErrorList
	for i, p := range points {
		here := at.Index(i)
		errs = append(errs, validEntry(p.IP, p.Hostname, before, here, validIPMode(p.IP, p.IPMode, here.Child("ipMode")))...)
	}
	return errs
}

// validEntry checks an address of what lets traffic into the cluster. Faults of what
// else is said of its IP come after those of that.
func validEntry(ip, hostname string, before []string, at *field.Path, more field.ErrorList) field.ErrorList {
	var errs field.ErrorList
	if ip != "" {
		errs = validLegacyIP(ip, at.Child("ip"), before)
	}
	errs = append(errs, more...)
	if hostname == "" {
		return errs
	}
	at = at.Child("hostname")
	errs = append(errs, invalid(at, hostname, validation.IsDNS1123Subdomain(hostname))...)
	return append(errs, refuse(netutils.ParseIPSloppy(hostname) != nil, at, hostname, "must be a DNS name, not an IP address")...)
}

func validIPMode(ip string, mode *corev1.LoadBalancerIPMode, at *field.Path) field.ErrorList {
	switch {
	case mode == nil:
		return need(ip != "", at, "must be specified when `ip` is set")
	case ip == "":
		return forbid(true, at, "may not be specified when `ip` is not set")
	}
	return among(*mode, at, corev1.LoadBalancerIPModeProxy, corev1.LoadBalancerIPModeVIP)
}

// ValidateIngressStatus names the faults of an Ingress's new status.
func ValidateIngressStatus(in, old *networkingv1.Ingress) field.ErrorList {
	var before []string
	for _, p := range old.Status.LoadBalancer.Ingress {
		before = append(before, p.IP)
	}
	var errs field.ErrorList
	for i, p := range in.Status.LoadBalancer.Ingress {
		errs = append(errs, validEntry(p.IP, p.Hostname, before, statusPath().Child("loadBalancer", "ingress").Index(i), nil)...)
	}
	return errs
}

// ValidateClaimStatus names the faults of a PersistentVolumeClaim's new status. Of a
// resize that is in a wrong state, the resource is named.
func ValidateClaimStatus(c, _ *corev1.PersistentVolumeClaim) field.ErrorList {
	var errs field.ErrorList
	s := &c.Status
	for _, name := range sortedKeys(s.Capacity) {
		errs = append(errs, validVolumeSize(s.Capacity[name], statusPath().Child("capacity").Key(string(name)))...)
	}
	at := statusPath().Child("allocatedResourceStatuses")
	for _, name := range sortedKeys(s.AllocatedResourceStatuses) {
		errs = append(errs, validClaimResource(name, at)...)
		if len(among(s.AllocatedResourceStatuses[name], at, resizeStates...)) > 0 {
			errs = append(errs, field.NotSupported(at, name, resizeStates))
		}
	}
	at = statusPath().Child("allocatedResources")
	for _, name := range sortedKeys(s.AllocatedResources) {
		bad := validClaimResource(name, at)
		if len(bad) == 0 {
			bad = validVolumeSize(s.AllocatedResources[name], at.Key(string(name)))
		}
		errs = append(errs, bad...)
	}
	return errs
}

// resizeStates are those of a claim that is made larger.
var resizeStates = []corev1.ClaimResourceStatus{
	corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimControllerResizeInfeasible,
	corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible, corev1.PersistentVolumeClaimNodeResizePending,
}

func validVolumeSize(q resource.Quantity, at *field.Path) field.ErrorList {
	return refuse(q.Value() < 0, at, q.Value(), "must be a valid resource quantity")
}

// validClaimResource wants the name of something of a volume's.
func validClaimResource(name corev1.ResourceName, at *field.Path) field.ErrorList {
	if errs := invalid(at, string(name), validation.IsQualifiedName(string(name))); len(errs) > 0 || !isNative(name) {
		return errs
	}
	return among(name, at, corev1.ResourceStorage)
}
