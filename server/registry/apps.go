package registry

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
)

func appsKinds() []*Kind {
	gv := appsv1.SchemeGroupVersion
	return []*Kind{
		deploymentKind(gv), replicaSetKind(gv), statefulSetKind(gv), daemonSetKind(gv),
		kind[appsv1.ControllerRevision, appsv1.ControllerRevisionList]{
			Plural:   "controllerrevisions",
			Validate: api.ValidateControllerRevision,
			Columns:  controllerRevisionColumns(), Row: controllerRevisionRow,
		}.erase(gv),
	}
}

func deploymentKind(gv schema.GroupVersion) *Kind {
	parts := halves[appsv1.Deployment]{counted: true}
	return kind[appsv1.Deployment, appsv1.DeploymentList]{
		Plural: "deployments", Short: []string{"deploy"}, In: []string{"all"},
		Validate: api.ValidateDeployment, Warn: api.WarnDeployment,
		Columns: deploymentColumns(), Row: deploymentRow,
		Default: api.DefaultDeployment,
		Prepare: func(d, old *appsv1.Deployment) {
			parts.prepare(d, old)
			// The controller copies annotations to replica sets, so they count too.
			if old != nil && d.Generation == old.Generation && !equality.Semantic.DeepEqual(d.Annotations, old.Annotations) {
				d.Generation++
			}
		},
		Sub: Sub{
			"status": parts.sub(api.ValidateDeploymentStatus, func(d, old *appsv1.Deployment) { d.Labels = old.Labels }).resetting("spec", "metadata.labels"),
			"scale":  scale(func(d *appsv1.Deployment) (string, error) { return selectorText(d.Spec.Selector) }),
		},
	}.erase(gv)
}

func replicaSetKind(gv schema.GroupVersion) *Kind {
	parts := halves[appsv1.ReplicaSet]{counted: true}
	return kind[appsv1.ReplicaSet, appsv1.ReplicaSetList]{
		Plural: "replicasets", Short: []string{"rs"}, In: []string{"all"},
		Validate: api.ValidateReplicaSet, Warn: api.WarnReplicaSet,
		Columns: replicaColumns(), Row: replicaSetRow,
		Default: api.DefaultReplicaSet,
		Prepare: parts.prepare,
		Sub: Sub{
			"status": parts.sub(api.ValidateReplicaSetStatus),
			"scale":  scale(func(r *appsv1.ReplicaSet) (string, error) { return selectorText(r.Spec.Selector) }),
		},
	}.erase(gv)
}

func statefulSetKind(gv schema.GroupVersion) *Kind {
	parts := halves[appsv1.StatefulSet]{counted: true}
	return kind[appsv1.StatefulSet, appsv1.StatefulSetList]{
		Plural: "statefulsets", Short: []string{"sts"}, In: []string{"all"},
		Validate: api.ValidateStatefulSet, Warn: api.WarnStatefulSet,
		Columns: statefulSetColumns(), Row: statefulSetRow,
		Default:   api.DefaultStatefulSet,
		ValidName: apivalidation.NameIsDNSLabel,
		Decoded:   api.NameClaimTemplates,
		Prepare:   parts.prepare,
		Sub: Sub{
			"status": parts.sub(api.ValidateStatefulSetStatus),
			"scale":  scale(func(s *appsv1.StatefulSet) (string, error) { return selectorText(s.Spec.Selector) }),
		},
	}.erase(gv)
}

func daemonSetKind(gv schema.GroupVersion) *Kind {
	parts := halves[appsv1.DaemonSet]{counted: true}
	return kind[appsv1.DaemonSet, appsv1.DaemonSetList]{
		Plural: "daemonsets", Short: []string{"ds"}, In: []string{"all"},
		Validate: api.ValidateDaemonSet, Warn: api.WarnDaemonSet,
		Columns: daemonSetColumns(), Row: daemonSetRow,
		Default: api.DefaultDaemonSet,
		Prepare: func(d, old *appsv1.DaemonSet) {
			parts.prepare(d, old)
			countTemplates(d, old)
		},
		FieldAnnotations: []string{appsv1.DeprecatedTemplateGeneration},
		Sub:              Sub{"status": parts.sub(api.ValidateDaemonSetStatus)},
	}.erase(gv)
}

// countTemplates keeps the annotation that counts the templates that a set had.
// It is what is left of a field of old; clients may not change it.
func countTemplates(d, old *appsv1.DaemonSet) {
	count := int64(1)
	if old != nil {
		count, _ = strconv.ParseInt(old.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
		if !equality.Semantic.DeepEqual(d.Spec.Template, old.Spec.Template) {
			count++
		}
	}
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(count, 10)
}
