package auth

import (
	"context"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/flowcontrol"
)

func flowResource(resource string) schema.GroupResource {
	return schema.GroupResource{Group: flowcontrolv1.GroupName, Resource: resource}
}

// bootstrapFlow keeps the objects of priority and fairness: the mandatory ones as
// they must be, the others for as long as nobody has made them their own. What an
// older version suggested and this one does not goes.
func bootstrapFlow(w writes, s Store) {
	levels, schemas := flowcontrol.Levels(), flowcontrol.Schemas()
	ensureEach(w, s, flowResource("prioritylevelconfigurations"), levels, func(have, o *flowcontrolv1.PriorityLevelConfiguration) {
		want := o.Spec
		if have.Spec.Exempt != nil && want.Exempt != nil {
			want.Exempt = have.Spec.Exempt // its shares are the administrator's business
		}
		if keepsSpec(&have.ObjectMeta) && !equality.Semantic.DeepEqual(have.Spec, want) {
			have.Spec = want
			have.Generation++
		}
	})
	ensureEach(w, s, flowResource("flowschemas"), schemas, func(have, want *flowcontrolv1.FlowSchema) {
		if keepsSpec(&have.ObjectMeta) && !equality.Semantic.DeepEqual(have.Spec, want.Spec) {
			have.Spec = want.Spec
			have.Generation++
		}
	})
	w(func(ctx context.Context) error {
		return dropSuggested(ctx, s, flowResource("prioritylevelconfigurations"), namesOf(levels))
	})
	w(func(ctx context.Context) error {
		return dropSuggested(ctx, s, flowResource("flowschemas"), namesOf(schemas))
	})
}

func namesOf[T metav1.Object](all []T) map[string]bool {
	names := map[string]bool{}
	for _, o := range all {
		names[o.GetName()] = true
	}
	return names
}

// keepsSpec reports whether an object is kept as it was suggested, and notes it in
// its annotation. One that does not say is, if it has never been changed.
func keepsSpec(m *metav1.ObjectMeta) bool {
	said := m.Annotations[flowcontrolv1.AutoUpdateAnnotationKey]
	keep, err := strconv.ParseBool(said)
	if err != nil {
		keep = m.Generation == 1
	}
	keep = keep || flowcontrol.IsMandatory(m.Name)
	if now, err := strconv.ParseBool(said); err != nil || now != keep {
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		m.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] = strconv.FormatBool(keep)
	}
	return keep
}

func dropSuggested(ctx context.Context, s Store, resource schema.GroupResource, wanted map[string]bool) error {
	all, err := s.List(ctx, resource, "")
	if err != nil {
		return err
	}
	for _, o := range all {
		m, ok := o.(metav1.Object)
		if !ok || wanted[m.GetName()] {
			continue
		}
		if mine, err := strconv.ParseBool(m.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]); err != nil || !mine {
			continue
		}
		if err := s.Delete(ctx, resource, "", m.GetName()); err != nil && !apierrors.IsNotFound(err) {
			return bootstrapError(resource, m, err)
		}
	}
	return nil
}
