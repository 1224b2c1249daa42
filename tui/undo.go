package tui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const revisionAnnotation = "deployment.kubernetes.io/revision"

// ownAnnotations of a Deployment stay as they are when it is rolled back; the
// others come from the revision's ReplicaSet.
var ownAnnotations = []string{
	revisionAnnotation, "deployment.kubernetes.io/revision-history", "deployment.kubernetes.io/desired-replicas",
	"deployment.kubernetes.io/max-replicas", "deprecated.deployment.rollback.to", corev1.LastAppliedConfigAnnotation,
}

// pastTemplate is a pod template that a workload had, and the patch that brings
// it back.
type pastTemplate struct {
	name     string // of the object that keeps it
	revision int64
	template any
	kind     types.PatchType
	patch    any
}

// askRollback rolls the Deployment of a ReplicaSet back to it.
func (a *app) askRollback(t target) {
	kindName, name, _ := strings.Cut(t.owner, "/")
	k, known := a.kinds.byKind(kindName)
	if kindName != "Deployment" || !known {
		a.note("%s", a.words.say("%s is of no Deployment", t))
		return
	}
	a.askUndo(target{kind: k, namespace: t.namespace, name: name}, t.name)
}

// askUndo rolls a workload back to what the object named to keeps, or else to
// the revision before; what changes is shown first.
func (a *app) askUndo(t target, to string) {
	a.async(func(ctx context.Context) func() {
		past, changes, err := a.cluster.past(ctx, t, to)
		return func() {
			switch {
			case err != nil:
				a.fail(fmt.Errorf("%s: %s", t, a.words.say(err.Error())))
			case len(changes) == 0:
				a.note("%s", a.words.say("unchanged"))
			default:
				a.question(question{title: a.words.say("roll %s back to revision %d", t, past.revision), text: append(changes, ""), yes: "OK", do: func(string) {
					a.call(a.words.say("rolled back"), func(ctx context.Context) error { return a.cluster.patch(ctx, t, past.kind, past.patch) })
				}})
			}
		}
	})
}

// past finds a template of a workload's past, and how the present one differs.
func (c *cluster) past(ctx context.Context, t target, to string) (*pastTemplate, []string, error) {
	o, err := c.of(t.kind, t.namespace).Get(ctx, t.name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	if paused, _, _ := unstructured.NestedBool(o.Object, "spec", "paused"); paused && t.kind.plural == "deployments" {
		return nil, nil, errors.New("a paused Deployment cannot be rolled back")
	}
	all, err := c.history(ctx, t.kind, o)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(all, func(x, y pastTemplate) int { return cmp.Compare(x.revision, y.revision) })
	at := len(all) - 2
	if to != "" {
		at = slices.IndexFunc(all, func(p pastTemplate) bool { return p.name == to })
	}
	if at < 0 {
		return nil, nil, errors.New("there is no revision to go back to")
	}
	template, _, _ := unstructured.NestedMap(o.Object, "spec", "template")
	was, err := templateText(template)
	if err != nil {
		return nil, nil, err
	}
	now, err := templateText(all[at].template)
	return &all[at], shownChanges(was, now), err
}

// history lists the templates that a workload had and has: a Deployment's are in
// its ReplicaSets, others' in ControllerRevisions.
func (c *cluster) history(ctx context.Context, k kind, o *unstructured.Unstructured) (out []pastTemplate, err error) {
	if k.plural == "deployments" {
		list, err := c.kube.AppsV1().ReplicaSets(o.GetNamespace()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if rs := &list.Items[i]; metav1.IsControlledBy(rs, o) {
				out = append(out, deploymentPast(o, rs))
			}
		}
		return out, nil
	}
	list, err := c.kube.AppsV1().ControllerRevisions(o.GetNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		r := &list.Items[i]
		if !metav1.IsControlledBy(r, o) {
			continue
		}
		var data struct{ Spec struct{ Template fields } }
		if err := json.Unmarshal(r.Data.Raw, &data); err != nil {
			return nil, fmt.Errorf("%s: %w", r.Name, err)
		}
		out = append(out, pastTemplate{r.Name, r.Revision, data.Spec.Template, types.StrategicMergePatchType, json.RawMessage(r.Data.Raw)})
	}
	return out, nil
}

func deploymentPast(o metav1.Object, rs *appsv1.ReplicaSet) pastTemplate {
	annotations := map[string]string{}
	for k, v := range rs.Annotations {
		if !slices.Contains(ownAnnotations, k) {
			annotations[k] = v
		}
	}
	for _, k := range ownAnnotations {
		if v, ok := o.GetAnnotations()[k]; ok {
			annotations[k] = v
		}
	}
	delete(rs.Spec.Template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	revision, _ := strconv.ParseInt(rs.Annotations[revisionAnnotation], 10, 64)
	return pastTemplate{rs.Name, revision, rs.Spec.Template, types.JSONPatchType, []fields{
		{"op": "replace", "path": "/spec/template", "value": rs.Spec.Template}, {"op": "add", "path": "/metadata/annotations", "value": annotations}}}
}

// templateText is a pod template as YAML in which equal templates look alike.
func templateText(template any) (string, error) {
	data, err := json.Marshal(template)
	if err != nil {
		return "", err
	}
	var typed corev1.PodTemplateSpec
	if err := json.Unmarshal(data, &typed); err != nil {
		return "", err
	}
	text, err := yaml.Marshal(typed)
	return string(text), err
}
