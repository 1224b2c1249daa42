package api

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// step checks the way from one status to another of the same object.
func step[T any](check func(is, was *T) field.ErrorList, object, was, is string) func(*testing.T) field.ErrorList {
	return func(t *testing.T) field.ErrorList {
		return check(read[T](t, object+"\nstatus: "+is, nil), read[T](t, object+"\nstatus: "+was, nil))
	}
}

func TestStatusFaults(t *testing.T) {
	const (
		job     = "spec: {completions: 3, parallelism: 3, completionMode: Indexed, backoffLimitPerIndex: 1, template: {spec: {restartPolicy: Never}}}"
		running = "spec: {nodeName: n, restartPolicy: Never, containers: [{name: a, resources: {requests: {example.org/x: 1}}}, {name: b, restartPolicy: Always}]}"
		ended   = "{qosClass: Burstable, containerStatuses: [{name: a, state: {terminated: {exitCode: 0}}}, {name: b, state: {terminated: {exitCode: 0}}}]}"
		claim   = "spec: {devices: {requests: [{name: r}]}}"
		given   = "allocation: {devices: {results: [{request: r, driver: d.example, pool: p, device: e}]}}"
	)
	for name, c := range map[string]struct {
		run  func(*testing.T) field.ErrorList
		want string
	}{
		"deployment": {
			step(ValidateDeploymentStatus, "", "{collisionCount: 2}", "{replicas: 1, readyReplicas: 2, availableReplicas: -1, collisionCount: 1}"),
			"status.availableReplicas: Invalid value: -1: must be greater than or equal to 0\nstatus.readyReplicas: Invalid value: 2: cannot be greater than status.replicas\nstatus.collisionCount: Invalid value: 1: cannot be decremented",
		},
		"replica set": {
			step(ValidateReplicaSetStatus, "", "{}", "{replicas: 3, readyReplicas: 1, availableReplicas: 2, terminatingReplicas: -1}"),
			"status.terminatingReplicas: Invalid value: -1: must be greater than or equal to 0\nstatus.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas",
		},
		"stateful set": {
			step(ValidateStatefulSetStatus, "", "{}", "{replicas: 1, currentReplicas: 2}"),
			"status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas",
		},
		"daemon set": {
			step(ValidateDaemonSetStatus, "", "{}", "{numberReady: -1}"),
			"status.numberReady: Invalid value: -1: must be greater than or equal to 0",
		},
		"budget": {
			step(ValidatePodDisruptionBudgetStatus, "", "{}", "{expectedPods: -1}"),
			"status.expectedPods: Invalid value: -1: must be greater than or equal to 0",
		},
		"namespace": {
			step(ValidateNamespaceStatus, "", "{}", "{phase: Terminating}"),
			"status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty",
		},
		"service of no balancer": {
			step(ValidateServiceStatus, "spec: {type: ClusterIP}", "{}", "{loadBalancer: {ingress: [{ip: 192.0.2.1}]}}"),
			"status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'",
		},
		"balancer": {
			step(ValidateServiceStatus, "spec: {type: LoadBalancer}", "{loadBalancer: {ingress: [{ip: 010.0.0.1, ipMode: VIP}]}}", "{loadBalancer: {ingress: [{ip: 010.0.0.1, ipMode: VIP}, {hostname: 192.0.2.1}, {ip: x, ipMode: Q}]}}"),
			"status.loadBalancer.ingress[1].hostname: Invalid value: \"192.0.2.1\": must be a DNS name, not an IP address\n" +
				"status.loadBalancer.ingress[2].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)\n" +
				"status.loadBalancer.ingress[2].ipMode: Unsupported value: \"Q\": supported values: \"Proxy\", \"VIP\"",
		},
		"ingress": {
			step(ValidateIngressStatus, "", "{}", "{loadBalancer: {ingress: [{hostname: a_b}]}}"),
			"status.loadBalancer.ingress[0].hostname: Invalid value: \"a_b\": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
		},
		"claim": {
			step(ValidateClaimStatus, "", "{}", "{allocatedResources: {cpu: 1}, allocatedResourceStatuses: {storage: Growing}}"),
			"status.allocatedResourceStatuses: Unsupported value: \"storage\": supported values: \"ControllerResizeInProgress\", \"ControllerResizeInfeasible\", \"NodeResizeInProgress\", \"NodeResizeInfeasible\", \"NodeResizePending\"\n" +
				"status.allocatedResources: Unsupported value: \"cpu\": supported values: \"storage\"",
		},
		"job that goes on": {step(ValidateJobStatus, job, "{active: 1}", "{active: 1, ready: 1, completedIndexes: 0-1}"), ""},
		"job":              {step(ValidateJobStatus, job, "{}", "{ready: 1}"), "status.ready: Invalid value: 1: cannot set more ready pods than active"},
		"job that has ended too early": {
			step(ValidateJobStatus, job, "{}", `{active: 1, conditions: [{type: Complete, status: "True"}]}`),
			"status.completionTime: Required value: completionTime is required for Complete jobs\n" +
				"status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition\n" +
				"status.active: Invalid value: 1: active>0 is invalid for finished job\nstatus.startTime: Required value: startTime is required for finished job",
		},
		"job that ends no more": {
			step(ValidateJobStatus, job, `{failed: 2, conditions: [{type: FailureTarget, status: "True"}]}`, "{failed: 1}"),
			"status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition\nstatus.failed: Invalid value: 1: cannot decrease the failed counter",
		},
		"indexes of a job": {
			step(ValidateJobStatus, job, "{}", `{completedIndexes: "0-1", failedIndexes: "1,5"}`),
			"status.failedIndexes: Invalid value: \"1,5\": error parsing failedIndexes: too large index: \"5\"\nstatus.failedIndexes: Invalid value: \"1,5\": failedIndexes and completedIndexes overlap at index: 1",
		},
		"containers that start again": {
			step(ValidatePodStatus, running, ended, "{qosClass: Burstable, containerStatuses: [{name: a, state: {running: {}}}, {name: b, state: {running: {}}}]}"),
			"status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
		},
		"pod": {
			step(ValidatePodStatus, running, "{qosClass: Burstable}", "{qosClass: Guaranteed, nominatedNodeName: m, podIP: x, podIPs: [{ip: x}], conditions: [{type: a b}], resourceClaimStatuses: [{name: c}]}"),
			"status.conditions[0].Type: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\n" +
				"status.nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node\n" +
				"status.qosClass: Invalid value: \"Guaranteed\": field is immutable\n" +
				"status.resourceClaimStatuses[0].name: Invalid value: \"c\": must match the name of an entry in `spec.resourceClaims`\n" +
				"status.podIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
		},
		"devices of a pod": {
			step(ValidatePodStatus, running, "{}", "{containerStatuses: [{name: a, allocatedResourcesStatus: [{name: example.org/x, resources: [{resourceID: 1, health: Ill}]}, {name: other}]}]}"),
			"status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health: Unsupported value: \"Ill\": supported values: \"Healthy\", \"Unhealthy\", \"Unknown\"\n" +
				"status.containerStatuses[0].allocatedResourcesStatus[1].name: Invalid value: \"other\": must match one of the container's resource requests",
		},
		"devices of a claim": {
			step(ValidateResourceClaimStatus, claim, "{}", "{"+given+", devices: [{driver: d.example, pool: p, device: e}, {driver: d.example, pool: p, device: f}]}"),
			"status.devices[1]: Invalid value: {\"Driver\":\"d.example\",\"Pool\":\"p\",\"Device\":\"f\",\"ShareID\":\"\"}: must be an allocated device in the claim",
		},
		"other devices":      {step(ValidateResourceClaimStatus, claim, "{"+given+"}", "{allocation: {}}"), "status.allocation: Invalid value: null: field cannot be modified once set"},
		"devices for nobody": {step(ValidateResourceClaimStatus, claim, "{}", "{reservedFor: [{resource: pods, name: a, uid: b}]}"), "status.reservedFor: Forbidden: may not be specified when `allocated` is not set"},
	} {
		if got := faults(c.run(t)); got != c.want {
			t.Errorf("%s:\n got  %s\n want %s", name, got, c.want)
		}
	}
}
