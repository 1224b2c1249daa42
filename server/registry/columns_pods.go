package registry

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"orrery.dev/api"
)

func podColumns() []Column {
	return []Column{
		nameColumn,
		text("Ready", "Containers that are ready, of all that the pod has."),
		text("Status", "The state of the pod and its containers in one word."),
		text("Restarts", "How often containers were restarted, and when last."),
		ageColumn,
		wide(text("IP", "The pod's address.")),
		wide(text("Node", "The node that the pod runs on.")),
		wide(text("Nominated Node", "The node on which room is being made for the pod.")),
		wide(text("Readiness Gates", "Further conditions that are met, of all that the pod needs to be ready.")),
	}
}

func podRow(p *corev1.Pod) []any {
	w := api.WordsOfPod(p)
	ip := p.Status.PodIP
	if len(p.Status.PodIPs) > 0 {
		ip = p.Status.PodIPs[0].IP
	}
	return []any{
		p.Name, fmt.Sprintf("%d/%d", w.Ready, w.Total), w.Status, restarts(w), p.CreationTimestamp,
		orElse(ip, none), orElse(p.Spec.NodeName, none), orElse(p.Status.NominatedNodeName, none), readinessGates(p),
	}
}

// podMarks tells pods that have ended.
func podMarks(p *corev1.Pod) []metav1.TableRowCondition {
	text, ended := map[corev1.PodPhase]string{
		corev1.PodSucceeded: "The pod has completed successfully.", corev1.PodFailed: "The pod failed.",
	}[p.Status.Phase]
	if !ended {
		return nil
	}
	return []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(p.Status.Phase), Message: text}}
}

func restarts(w api.PodWords) any {
	if w.LastRestart.IsZero() {
		return w.RestartsText(time.Time{})
	}
	return Words(w.RestartsText)
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return none
	}
	met := 0
	for _, gate := range p.Spec.ReadinessGates {
		if c := api.PodCondition(p, gate.ConditionType); c != nil && c.Status == corev1.ConditionTrue {
			met++
		}
	}
	return fmt.Sprintf("%d/%d", met, len(p.Spec.ReadinessGates))
}

// templateColumns are the wide columns of what has a pod template.
func templateColumns(selector bool) []Column {
	columns := []Column{
		wide(text("Containers", "Names of the containers in the template.")),
		wide(text("Images", "Images of the containers in the template.")),
	}
	if selector {
		columns = append(columns, wide(text("Selector", "Label selector of the pods.")))
	}
	return columns
}

func templateCells(spec *corev1.PodSpec) (names, images string) {
	var n, i []string
	for _, c := range spec.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

func podTemplateColumns() []Column {
	return []Column{
		nameColumn,
		text("Containers", "Names of the containers in the template."),
		text("Images", "Images of the containers in the template."),
		text("Pod Labels", "Labels of the template."),
	}
}

func podTemplateRow(t *corev1.PodTemplate) []any {
	names, images := templateCells(&t.Template.Spec)
	return []any{t.Name, names, images, labels.FormatLabels(t.Template.Labels)}
}

func replicaColumns() []Column {
	return append([]Column{
		nameColumn,
		number("Desired", "Pods that are wanted."),
		number("Current", "Pods that exist."),
		number("Ready", "Pods that are ready."),
		ageColumn,
	}, templateColumns(true)...)
}

func replicationControllerRow(rc *corev1.ReplicationController) []any {
	var names, images string
	if rc.Spec.Template != nil {
		names, images = templateCells(&rc.Spec.Template.Spec)
	}
	return []any{
		rc.Name, wanted(rc.Spec.Replicas), int64(rc.Status.Replicas), int64(rc.Status.ReadyReplicas), rc.CreationTimestamp,
		names, images, labels.FormatLabels(rc.Spec.Selector),
	}
}

// wanted is a count of replicas that may be unset.
func wanted(n *int32) int64 {
	if n == nil {
		return 0
	}
	return int64(*n)
}
