package nodeagent

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A patch of the status leaves alone what others say, even where the agent has
// an older idea of it.
func TestPatchSaysOnlyWhatIsTheNodes(t *testing.T) {
	is := func(kind corev1.PodConditionType, value corev1.ConditionStatus, reason string) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: value, Reason: reason}
	}
	ready := is(corev1.PodReady, corev1.ConditionTrue, "")
	evicted := is(corev1.DisruptionTarget, corev1.ConditionTrue, "EvictionByEvictionAPI")
	for name, tc := range map[string]struct {
		sent, now corev1.PodStatus
		want      string
	}{
		"a mark of the API came": {
			sent: corev1.PodStatus{Conditions: []corev1.PodCondition{ready}},
			now:  corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{ready, evicted}},
			want: `{"metadata":{"uid":"u"},"status":{"phase":"Failed"}}`,
		},
		"a mark of the API went": {
			sent: corev1.PodStatus{Conditions: []corev1.PodCondition{ready, evicted}},
			now:  corev1.PodStatus{Phase: corev1.PodFailed, Conditions: []corev1.PodCondition{ready}},
			want: `{"metadata":{"uid":"u"},"status":{"phase":"Failed"}}`,
		},
		"the node evicts": {
			sent: corev1.PodStatus{},
			now:  corev1.PodStatus{Conditions: []corev1.PodCondition{is(corev1.DisruptionTarget, corev1.ConditionTrue, corev1.PodReasonTerminationByKubelet)}},
			want: `{"metadata":{"uid":"u"},"status":{"conditions":[{"lastProbeTime":null,"lastTransitionTime":null,"reason":"TerminationByKubelet","status":"True","type":"DisruptionTarget"}]}}`,
		},
		"claims are the controller's": {
			sent: corev1.PodStatus{},
			now:  corev1.PodStatus{Phase: corev1.PodRunning, ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "gpu"}}, NominatedNodeName: "n"},
			want: `{"metadata":{"uid":"u"},"status":{"phase":"Running"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := statusPatch("u", ours(&tc.sent), ours(&tc.now))
			if err != nil || string(got) != tc.want {
				t.Errorf("got  %s\nwant %s\n%v", got, tc.want, err)
			}
		})
	}
}
