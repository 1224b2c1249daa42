package auth

import (
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const autoUpdateSpec = "apf.kubernetes.io/autoupdate-spec"

// priorityLevels are those of a new cluster: name, shares, lendable percent, and
// queues, hand size and queue length (0 queues: rejects at once).
func priorityLevels() []*flowcontrolv1.PriorityLevelConfiguration {
	level := func(name string, shares, lendable, queues, hand int32) *flowcontrolv1.PriorityLevelConfiguration {
		limited := &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: &shares, LendablePercent: &lendable,
			LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
		}
		if queues > 0 {
			limited.LimitResponse = flowcontrolv1.LimitResponse{
				Type:    flowcontrolv1.LimitResponseTypeQueue,
				Queuing: &flowcontrolv1.QueuingConfiguration{Queues: queues, HandSize: hand, QueueLengthLimit: 50},
			}
		}
		return &flowcontrolv1.PriorityLevelConfiguration{
			ObjectMeta: flowMeta(name),
			Spec:       flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: limited},
		}
	}
	zero := int32(0)
	exempt := &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: flowMeta("exempt"),
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type:   flowcontrolv1.PriorityLevelEnablementExempt,
			Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: &zero, LendablePercent: &zero},
		},
	}
	return []*flowcontrolv1.PriorityLevelConfiguration{
		exempt,
		level("catch-all", 5, 0, 0, 0),
		level("system", 30, 33, 64, 6),
		level("node-high", 40, 25, 64, 6),
		level("leader-election", 10, 0, 16, 4),
		level("workload-high", 40, 50, 128, 6),
		level("workload-low", 100, 90, 128, 6),
		level("global-default", 20, 50, 128, 6),
	}
}

func flowMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Generation: 1, Annotations: map[string]string{autoUpdateSpec: "true"}}
}

const (
	byUser      = flowcontrolv1.FlowDistinguisherMethodByUserType
	byNamespace = flowcontrolv1.FlowDistinguisherMethodByNamespaceType
)

// flowSchemas are those of a new cluster, in the order in which they match.
func flowSchemas() []*flowcontrolv1.FlowSchema {
	all := []string{"*"}
	anything := flowcontrolv1.PolicyRulesWithSubjects{
		ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
	}
	probes := flowcontrolv1.PolicyRulesWithSubjects{
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/readyz", "/livez"}}},
	}
	election := flowcontrolv1.PolicyRulesWithSubjects{
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: []string{"get", "create", "update"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Namespaces: all}},
	}
	heartbeats := flowcontrolv1.PolicyRulesWithSubjects{
		ResourceRules: []flowcontrolv1.ResourcePolicyRule{
			{Verbs: all, APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, ClusterScope: true, Namespaces: all},
			{Verbs: all, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Namespaces: all},
		},
	}
	anyone := []flowcontrolv1.Subject{flowGroup("system:unauthenticated"), flowGroup("system:authenticated")}
	systemAccounts := flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: "kube-system", Name: "*"}}
	manager, scheduler := flowUser("system:kube-controller-manager"), flowUser("system:kube-scheduler")
	return []*flowcontrolv1.FlowSchema{
		flow("exempt", "exempt", 1, "", anything, flowGroup("system:masters")),
		flow("probes", "exempt", 2, "", probes, anyone...),
		flow("system-leader-election", "leader-election", 100, byUser, election, manager, scheduler, systemAccounts),
		flow("system-node-high", "node-high", 400, byUser, heartbeats, flowGroup("system:nodes")),
		flow("system-nodes", "system", 500, byUser, anything, flowGroup("system:nodes")),
		flow("kube-controller-manager", "workload-high", 800, byNamespace, anything, manager),
		flow("kube-scheduler", "workload-high", 800, byNamespace, anything, scheduler),
		flow("kube-system-service-accounts", "workload-high", 900, byNamespace, anything, systemAccounts),
		flow("service-accounts", "workload-low", 9000, byUser, anything, flowGroup("system:serviceaccounts")),
		flow("global-default", "global-default", 9900, byUser, anything, anyone...),
		flow("catch-all", "catch-all", 10000, byUser, anything, anyone...),
	}
}

func flow(name, level string, precedence int32, by flowcontrolv1.FlowDistinguisherMethodType, rules flowcontrolv1.PolicyRulesWithSubjects, subjects ...flowcontrolv1.Subject) *flowcontrolv1.FlowSchema {
	rules.Subjects = subjects
	f := &flowcontrolv1.FlowSchema{
		ObjectMeta: flowMeta(name),
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
			MatchingPrecedence:         precedence,
			Rules:                      []flowcontrolv1.PolicyRulesWithSubjects{rules},
		},
	}
	if by != "" {
		f.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: by}
	}
	return f
}

func flowGroup(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
}

func flowUser(name string) flowcontrolv1.Subject {
	return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}
}

func priorityClasses() []*schedulingv1.PriorityClass {
	preempt := corev1.PreemptLowerPriority
	return []*schedulingv1.PriorityClass{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "system-node-critical", Generation: 1}, Value: 2000001000, PreemptionPolicy: &preempt,
			Description: "Used for system critical pods that must not be moved from their current node.",
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: "system-cluster-critical", Generation: 1}, Value: 2000000000, PreemptionPolicy: &preempt,
			Description: "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
		},
	}
}

// systemNamespaces exist in every cluster.
func systemNamespaces() []*corev1.Namespace {
	var all []*corev1.Namespace
	for _, name := range []string{"kube-system", "kube-public", "kube-node-lease", "default"} {
		all = append(all, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		})
	}
	return all
}
