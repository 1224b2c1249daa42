package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"

	"orrery.dev/api"
)

// quotaDelta is what a write adds to what a namespace uses.
func quotaDelta(r *Request) corev1.ResourceList {
	switch {
	case r.Operation == Create && r.Subresource == "":
		return usageOf(r)
	case r.Is("", "pods/resize"), r.Is("", "services"), r.Is("", "persistentvolumeclaims"), r.Is(resourcev1.GroupName, "resourceclaims"):
		return subtract(api.QuotaUsage(r.Object), api.QuotaUsage(r.Old))
	}
	return nil
}

// usageOf is all that an object uses.
func usageOf(r *Request) corev1.ResourceList {
	usage := api.QuotaUsage(r.Object)
	usage[objectCount(r)] = one()
	if old, ok := plainCounts[r.Resource.Resource]; ok && r.Resource.Group == "" {
		usage[old] = one()
	}
	return usage
}

// entered is what an update adds to a quota that the object was not in before,
// and is now that it has a deadline, or none: all that it uses.
func entered(r *Request) corev1.ResourceList {
	pod, ok1 := r.Object.(*corev1.Pod)
	old, ok2 := r.Old.(*corev1.Pod)
	if r.Operation != Update || r.Subresource != "" || !ok1 || !ok2 || (pod.Spec.ActiveDeadlineSeconds == nil) == (old.Spec.ActiveDeadlineSeconds == nil) {
		return nil
	}
	return api.QuotaUsage(pod)
}

// plainCounts are the kinds that had a name in quotas before count/ came.
var plainCounts = map[string]corev1.ResourceName{
	"pods":                   corev1.ResourcePods,
	"services":               corev1.ResourceServices,
	"configmaps":             corev1.ResourceConfigMaps,
	"secrets":                corev1.ResourceSecrets,
	"resourcequotas":         corev1.ResourceQuotas,
	"replicationcontrollers": corev1.ResourceReplicationControllers,
	"persistentvolumeclaims": corev1.ResourcePersistentVolumeClaims,
}

func objectCount(r *Request) corev1.ResourceName {
	name := "count/" + r.Resource.Resource
	if r.Resource.Group != "" {
		name += "." + r.Resource.Group
	}
	return corev1.ResourceName(name)
}

func one() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

func subtract(a, b corev1.ResourceList) corev1.ResourceList {
	rest := corev1.ResourceList{}
	for name, q := range a {
		q = q.DeepCopy()
		q.Sub(b[name])
		rest[name] = q
	}
	for name, q := range b {
		if _, ok := a[name]; !ok {
			q = q.DeepCopy()
			q.Neg()
			rest[name] = q
		}
	}
	for name, q := range rest {
		if q.IsZero() {
			delete(rest, name)
		}
	}
	return rest
}

// mustSpecify: under a quota on cpu or memory each container must say what it
// needs, or the sum would mean nothing.
func mustSpecify(pod *corev1.Pod, hard corev1.ResourceList) error {
	missing := map[string]sets.Set[string]{}
	for _, c := range append(slices.Clone(pod.Spec.Containers), pod.Spec.InitContainers...) {
		for _, name := range []corev1.ResourceName{"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"} {
			if _, limited := hard[name]; !limited {
				continue
			}
			list, bare := c.Resources.Requests, strings.TrimPrefix(string(name), "requests.")
			podLevel := podLevelResources(pod).Requests
			if rest, ok := strings.CutPrefix(string(name), "limits."); ok {
				list, bare, podLevel = c.Resources.Limits, rest, podLevelResources(pod).Limits
			}
			_, said := list[corev1.ResourceName(bare)]
			_, saidForAll := podLevel[corev1.ResourceName(bare)]
			if said || saidForAll {
				continue
			}
			if missing[string(name)] == nil {
				missing[string(name)] = sets.New[string]()
			}
			missing[string(name)].Insert(c.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	var parts []string
	for _, name := range sets.List(sets.KeySet(missing)) {
		parts = append(parts, fmt.Sprintf("%s for: %s", name, strings.Join(sets.List(missing[name]), ",")))
	}
	return fmt.Errorf("must specify %s", strings.Join(parts, "; "))
}

func podLevelResources(pod *corev1.Pod) corev1.ResourceRequirements {
	if pod.Spec.Resources == nil {
		return corev1.ResourceRequirements{}
	}
	return *pod.Spec.Resources
}

func sortedStrings(s []string) []string {
	slices.Sort(s)
	return s
}
