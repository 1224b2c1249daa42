package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	podresource "k8s.io/component-helpers/resource"
)

const limitRangerAnnotation = "kubernetes.io/limit-ranger"

// limitRanger fills in requests and limits of containers and holds pods and
// claims to the ranges of their namespace.
func limitRanger(reader Reader) Plugin {
	ranges := func(ctx context.Context, r *Request) ([]*corev1.LimitRange, error) {
		all, err := list[*corev1.LimitRange](ctx, reader, core("limitranges"), r.Namespace)
		if err != nil {
			return nil, r.forbid("unable to %s %v at this time because there was an error enforcing limit ranges", r.Operation, r.Resource)
		}
		return all, nil
	}
	return Plugin{
		Name: "LimitRanger",
		On:   either(on("", "pods", Create), on("", "pods/resize", Update), on("", "persistentvolumeclaims", Create, Update)),
		Mutate: func(ctx context.Context, r *Request) error {
			pod, ok := r.Object.(*corev1.Pod)
			if !ok || r.Subresource != "" {
				return nil
			}
			all, err := ranges(ctx, r)
			if err != nil {
				return err
			}
			for _, lr := range all {
				fillContainers(pod, lr)
			}
			return nil
		},
		Validate: func(ctx context.Context, r *Request) error {
			if m := r.Meta(); m != nil && m.GetDeletionTimestamp() != nil {
				return nil
			}
			all, err := ranges(ctx, r)
			if err != nil {
				return err
			}
			for _, lr := range all {
				var errs []error
				switch o := r.Object.(type) {
				case *corev1.Pod:
					errs = checkPodLimits(o, lr)
				case *corev1.PersistentVolumeClaim:
					errs = checkClaimLimits(o, lr)
				}
				if len(errs) > 0 {
					return r.forbid("%w", utilerrors.NewAggregate(errs))
				}
			}
			return nil
		},
	}
}

// fillContainers sets what a range says about containers that say nothing, and
// notes it in an annotation.
func fillContainers(pod *corev1.Pod, lr *corev1.LimitRange) {
	limits, requests := corev1.ResourceList{}, corev1.ResourceList{}
	for _, item := range lr.Spec.Limits {
		if item.Type != corev1.LimitTypeContainer {
			continue
		}
		for name, q := range item.Default {
			limits[name] = q
		}
		for name, q := range item.DefaultRequest {
			requests[name] = q
		}
	}
	var notes []string
	fill := func(c *corev1.Container, kind string) {
		if names := fillMissing(&c.Resources.Requests, requests); len(names) > 0 {
			notes = append(notes, fmt.Sprintf("%s request for %s %s", strings.Join(names, ", "), kind, c.Name))
		}
		if names := fillMissing(&c.Resources.Limits, limits); len(names) > 0 {
			notes = append(notes, fmt.Sprintf("%s limit for %s %s", strings.Join(names, ", "), kind, c.Name))
		}
	}
	for i := range pod.Spec.Containers {
		fill(&pod.Spec.Containers[i], "container")
	}
	for i := range pod.Spec.InitContainers {
		fill(&pod.Spec.InitContainers[i], "init container")
	}
	if len(notes) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[limitRangerAnnotation] = "LimitRanger plugin set: " + strings.Join(notes, "; ")
}

func fillMissing(have *corev1.ResourceList, defaults corev1.ResourceList) []string {
	var names []string
	for name, q := range defaults {
		if _, ok := (*have)[name]; ok {
			continue
		}
		if *have == nil {
			*have = corev1.ResourceList{}
		}
		(*have)[name] = q.DeepCopy()
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names
}

func checkPodLimits(pod *corev1.Pod, lr *corev1.LimitRange) []error {
	var errs []error
	for _, item := range lr.Spec.Limits {
		switch item.Type {
		case corev1.LimitTypeContainer:
			for _, c := range append(slices.Clone(pod.Spec.Containers), pod.Spec.InitContainers...) {
				errs = append(errs, checkItem(item, c.Resources.Requests, c.Resources.Limits)...)
			}
		case corev1.LimitTypePod:
			options := podresource.PodResourcesOptions{}
			errs = append(errs, checkItem(item, podresource.PodRequests(pod, options), podresource.PodLimits(pod, options))...)
		}
	}
	return errs
}

func checkItem(item corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range resourceNames(item.Min) {
		add(atLeast(item.Type, name, item.Min[name], requests, limits))
	}
	for _, name := range resourceNames(item.Max) {
		add(atMost(item.Type, name, item.Max[name], requests, limits))
	}
	for _, name := range resourceNames(item.MaxLimitRequestRatio) {
		add(ratioAtMost(item.Type, name, item.MaxLimitRequestRatio[name], requests, limits))
	}
	return errs
}

func checkClaimLimits(claim *corev1.PersistentVolumeClaim, lr *corev1.LimitRange) []error {
	var errs []error
	requests := claim.Spec.Resources.Requests
	for _, item := range lr.Spec.Limits {
		if item.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		for _, name := range resourceNames(item.Min) {
			if err := atLeast(item.Type, name, item.Min[name], requests, nil); err != nil {
				errs = append(errs, err)
			}
		}
		for _, name := range resourceNames(item.Max) {
			limit, request := item.Max[name], requests[name]
			if _, ok := requests[name]; !ok {
				errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, item.Type, limit.String()))
			} else if request.Cmp(limit) > 0 {
				errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, item.Type, limit.String(), request.String()))
			}
		}
	}
	return errs
}

func atLeast(kind corev1.LimitType, name corev1.ResourceName, least resource.Quantity, requests, limits corev1.ResourceList) error {
	request, ok := requests[name]
	limit, limited := limits[name]
	switch {
	case !ok:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, kind, least.String())
	case request.Cmp(least) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, kind, least.String(), request.String())
	case limited && limit.Cmp(least) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, kind, least.String(), limit.String())
	}
	return nil
}

func atMost(kind corev1.LimitType, name corev1.ResourceName, most resource.Quantity, requests, limits corev1.ResourceList) error {
	limit, ok := limits[name]
	request, requested := requests[name]
	switch {
	case !ok:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, kind, most.String())
	case limit.Cmp(most) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, kind, most.String(), limit.String())
	case requested && request.Cmp(most) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, kind, most.String(), request.String())
	}
	return nil
}

func ratioAtMost(kind corev1.LimitType, name corev1.ResourceName, most resource.Quantity, requests, limits corev1.ResourceList) error {
	request, limit := requests[name], limits[name]
	if request.IsZero() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, kind, most.String())
	}
	if limit.IsZero() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, kind, most.String())
	}
	if ratio := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); ratio > most.AsApproximateFloat64() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, kind, most.String(), ratio)
	}
	return nil
}

func resourceNames(l corev1.ResourceList) []corev1.ResourceName {
	names := sets.New[corev1.ResourceName]()
	for name := range l {
		names.Insert(name)
	}
	return sets.List(names)
}
