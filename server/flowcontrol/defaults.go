package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsMandatory tells the objects that are always as they are here; the others are
// suggestions, which administrators may change.
func IsMandatory(name string) bool {
	return name == flowcontrolv1.FlowSchemaNameExempt || name == flowcontrolv1.FlowSchemaNameCatchAll
}

// Levels are those of a new cluster: name, shares, lendable percent, and queues,
// hand size and queue length (0 queues: rejects at once).
func Levels() []*flowcontrolv1.PriorityLevelConfiguration {
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
	return metav1.ObjectMeta{Name: name, Generation: 1, Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}}
}

const (
	byUser      = flowcontrolv1.FlowDistinguisherMethodByUserType
	byNamespace = flowcontrolv1.FlowDistinguisherMethodByNamespaceType
)

// Schemas are those of a new cluster, in the order in which they match.
func Schemas() []*flowcontrolv1.FlowSchema {
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
		flowSchema("exempt", "exempt", 1, "", anything, flowGroup("system:masters")),
		flowSchema("probes", "exempt", 2, "", probes, anyone...),
		flowSchema("system-leader-election", "leader-election", 100, byUser, election, manager, scheduler, systemAccounts),
		flowSchema("system-node-high", "node-high", 400, byUser, heartbeats, flowGroup("system:nodes")),
		flowSchema("system-nodes", "system", 500, byUser, anything, flowGroup("system:nodes")),
		flowSchema("kube-controller-manager", "workload-high", 800, byNamespace, anything, manager),
		flowSchema("kube-scheduler", "workload-high", 800, byNamespace, anything, scheduler),
		flowSchema("kube-system-service-accounts", "workload-high", 900, byNamespace, anything, systemAccounts),
		flowSchema("service-accounts", "workload-low", 9000, byUser, anything, flowGroup("system:serviceaccounts")),
		flowSchema("global-default", "global-default", 9900, byUser, anything, anyone...),
		flowSchema("catch-all", "catch-all", 10000, byUser, anything, anyone...),
	}
}

func flowSchema(name, level string, precedence int32, by flowcontrolv1.FlowDistinguisherMethodType, rules flowcontrolv1.PolicyRulesWithSubjects, subjects ...flowcontrolv1.Subject) *flowcontrolv1.FlowSchema {
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
