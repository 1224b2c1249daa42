package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"orrery.dev/api"
)

// Plugins about pods that only run if they are asked for.

// onPods calls f with the pods that are created or updated.
func onPods(f func(context.Context, *Request, *corev1.Pod) error) func(context.Context, *Request) error {
	return func(ctx context.Context, r *Request) error {
		if pod, ok := r.Object.(*corev1.Pod); ok {
			return f(ctx, r, pod)
		}
		return nil
	}
}

// pulled is a place in a pod that names an image.
type pulled struct {
	path   *field.Path
	image  string
	policy *corev1.PullPolicy
}

func pulls(spec *corev1.PodSpec) (all []pulled) {
	path := field.NewPath("spec")
	for i := range spec.InitContainers {
		all = append(all, pulled{path.Child("initContainers").Index(i).Child("imagePullPolicy"), spec.InitContainers[i].Image, &spec.InitContainers[i].ImagePullPolicy})
	}
	for i := range spec.Containers {
		all = append(all, pulled{path.Child("containers").Index(i).Child("imagePullPolicy"), spec.Containers[i].Image, &spec.Containers[i].ImagePullPolicy})
	}
	for i := range spec.EphemeralContainers {
		all = append(all, pulled{path.Child("ephemeralContainers").Index(i).Child("imagePullPolicy"), spec.EphemeralContainers[i].Image, &spec.EphemeralContainers[i].ImagePullPolicy})
	}
	return all
}

// alwaysPullImages makes every start of a container ask the registry, so that
// nobody uses an image of others that is on the node.
func alwaysPullImages() Plugin {
	all := func(pod *corev1.Pod) []pulled {
		all := pulls(&pod.Spec)
		for i, v := range pod.Spec.Volumes {
			if v.Image != nil {
				all = append(all, pulled{field.NewPath("spec", "volumes").Index(i).Child("image", "pullPolicy"), v.Image.Reference, &v.Image.PullPolicy})
			}
		}
		return all
	}
	return Plugin{
		Name: "AlwaysPullImages",
		On: func(r *Request) bool {
			return on("", "pods", Create, Update)(r) && !(r.Operation == Update && knownImages(r))
		},
		Mutate: onPods(func(_ context.Context, _ *Request, pod *corev1.Pod) error {
			for _, p := range all(pod) {
				*p.policy = corev1.PullAlways
			}
			return nil
		}),
		Validate: onPods(func(_ context.Context, r *Request, pod *corev1.Pod) error {
			var errs []error
			for _, p := range all(pod) {
				if *p.policy != corev1.PullAlways {
					errs = append(errs, r.forbid("%w", field.NotSupported(p.path, *p.policy, []corev1.PullPolicy{corev1.PullAlways})))
				}
			}
			return utilerrors.NewAggregate(errs)
		}),
	}
}

// knownImages reports whether an update names no image that the pod did not have.
func knownImages(r *Request) bool {
	pod, ok1 := r.Object.(*corev1.Pod)
	old, ok2 := r.Old.(*corev1.Pod)
	if !ok1 || !ok2 {
		return false
	}
	had := pulls(&old.Spec)
	return !slices.ContainsFunc(pulls(&pod.Spec), func(p pulled) bool {
		return !slices.ContainsFunc(had, func(h pulled) bool { return h.image == p.image })
	})
}

// limitAntiAffinity lets pods keep others away from their node, not from more.
func limitAntiAffinity() Plugin {
	return Plugin{
		Name: "LimitPodHardAntiAffinityTopology", On: on("", "pods", Create, Update),
		Validate: onPods(func(_ context.Context, r *Request, pod *corev1.Pod) error {
			if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
				return nil
			}
			for _, term := range pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				if term.TopologyKey != corev1.LabelHostname {
					return r.forbid("affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey %v but only key %v is allowed", term.TopologyKey, corev1.LabelHostname)
				}
			}
			return nil
		}),
	}
}

// extendedResourceToleration lets pods that ask for a device onto the nodes that
// are kept for those who need it.
func extendedResourceToleration() Plugin {
	return Plugin{
		Name: "ExtendedResourceToleration", On: on("", "pods", Create, Update),
		Mutate: onPods(func(_ context.Context, _ *Request, pod *corev1.Pod) error {
			asked := map[string]bool{}
			for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
				for name := range c.Resources.Requests {
					if isExtended(string(name)) {
						asked[string(name)] = true
					}
				}
			}
			for _, name := range slices.Sorted(maps.Keys(asked)) {
				t := corev1.Toleration{Key: name, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
				if !slices.ContainsFunc(pod.Spec.Tolerations, func(have corev1.Toleration) bool { return equality.Semantic.DeepEqual(have, t) }) {
					pod.Spec.Tolerations = append(pod.Spec.Tolerations, t)
				}
			}
			return nil
		}),
	}
}

// isExtended tells devices from what Kubernetes itself counts.
func isExtended(name string) bool {
	return strings.Contains(name, "/") && !strings.Contains(name, "kubernetes.io/") && !strings.HasPrefix(name, "requests.") &&
		len(validation.IsQualifiedName("requests."+name)) == 0
}

// nodeSelectorAnnotation is where namespaces say which nodes their pods run on.
const nodeSelectorAnnotation = "scheduler.alpha.kubernetes.io/node-selector"

// podNodeSelector adds the node selector of its namespace to a pod. The
// configuration has one for namespaces without, and for each namespace the labels
// that its pods may select by.
func podNodeSelector(reader Reader, raw []byte) (Plugin, error) {
	var config struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if err := yaml.Unmarshal(raw, &config); err != nil {
		return Plugin{}, err
	}
	wanted := func(ctx context.Context, r *Request, pod *corev1.Pod) (labels.Set, error) {
		ns, err := get[*corev1.Namespace](ctx, reader, core("namespaces"), "", r.Namespace)
		if err != nil {
			return nil, err
		}
		text, own := ns.Annotations[nodeSelectorAnnotation]
		if !own {
			text = config.Selectors["clusterDefaultNodeSelector"]
		}
		selector, err := labels.ConvertSelectorToLabelsMap(text)
		if err == nil && labels.Conflicts(selector, pod.Spec.NodeSelector) {
			err = r.forbid("pod node label selector conflicts with its namespace node label selector")
		}
		return selector, err
	}
	validate := func(ctx context.Context, r *Request, pod *corev1.Pod) error {
		if _, err := wanted(ctx, r, pod); err != nil {
			return err
		}
		allowed, err := labels.ConvertSelectorToLabelsMap(config.Selectors[r.Namespace])
		if err != nil {
			return err
		}
		for key, value := range pod.Spec.NodeSelector {
			if have, ok := allowed[key]; len(allowed) > 0 && (!ok || have != value) {
				return r.forbid("pod node label selector labels conflict with its namespace whitelist")
			}
		}
		return nil
	}
	return Plugin{
		On: on("", "pods", Create),
		Mutate: onPods(func(ctx context.Context, r *Request, pod *corev1.Pod) error {
			selector, err := wanted(ctx, r, pod)
			if err != nil {
				return err
			}
			pod.Spec.NodeSelector = labels.Merge(selector, pod.Spec.NodeSelector)
			return validate(ctx, r, pod)
		}),
		Validate: onPods(validate),
	}, nil
}

// The annotations by which namespaces decide over tolerations.
const (
	defaultTolerations = "scheduler.alpha.kubernetes.io/defaultTolerations"
	allowedTolerations = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

type tolerationConfig struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Default    []corev1.Toleration `json:"default"`
	Whitelist  []corev1.Toleration `json:"whitelist"`
}

// podTolerations adds the tolerations of its namespace, or of the cluster, to a
// pod, and refuses those that these do not allow.
func podTolerations(reader Reader, raw []byte) (Plugin, error) {
	var config tolerationConfig
	if raw != nil {
		kind := schema.GroupVersionKind{Group: "podtolerationrestriction.admission.k8s.io", Version: "v1alpha1", Kind: "Configuration"}
		if err := decodeConfiguration(raw, &config, kind); err != nil {
			return Plugin{}, err
		}
		path := field.NewPath("podtolerationrestriction")
		errs := append(api.ValidateTolerations(config.Default, path.Child("default")), api.ValidateTolerations(config.Whitelist, path.Child("whitelist"))...)
		if len(errs) > 0 {
			return Plugin{}, fmt.Errorf("invalid config: %v", errs)
		}
	}
	validate := func(ctx context.Context, r *Request, pod *corev1.Pod) error {
		if len(pod.Spec.Tolerations) == 0 {
			return nil
		}
		allowed, scope, err := ofNamespace(ctx, reader, r.Namespace, allowedTolerations)
		if err != nil {
			return err
		}
		if allowed == nil {
			allowed, scope = config.Whitelist, "cluster"
		}
		for _, t := range pod.Spec.Tolerations {
			if len(allowed) > 0 && !slices.ContainsFunc(allowed, func(a corev1.Toleration) bool { return tolerates(a, t) }) {
				return fmt.Errorf("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", scope)
			}
		}
		return nil
	}
	return Plugin{
		On: on("", "pods", Create, Update),
		Mutate: onPods(func(ctx context.Context, r *Request, pod *corev1.Pod) error {
			var more []corev1.Toleration
			if r.Operation == Create {
				var err error
				if more, _, err = ofNamespace(ctx, reader, r.Namespace, defaultTolerations); err != nil {
					return err
				}
				if more == nil {
					more = slices.Clone(config.Default)
				}
			}
			if api.PodQOS(pod) != corev1.PodQOSBestEffort {
				more = append(more, corev1.Toleration{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
			}
			if len(more) > 0 {
				pod.Spec.Tolerations = mergeTolerations(slices.Concat(pod.Spec.Tolerations, more))
			}
			return validate(ctx, r, pod)
		}),
		Validate: onPods(validate),
	}, nil
}

// ofNamespace reads tolerations from an annotation; nil: there is none.
func ofNamespace(ctx context.Context, reader Reader, name, annotation string) (all []corev1.Toleration, scope string, err error) {
	ns, err := get[*corev1.Namespace](ctx, reader, core("namespaces"), "", name)
	if err != nil {
		return nil, "", err
	}
	text, ok := ns.Annotations[annotation]
	if !ok {
		return nil, "", nil
	}
	all = []corev1.Toleration{}
	if text != "" {
		err = json.Unmarshal([]byte(text), &all)
	}
	return all, "namespace", err
}

// mergeTolerations leaves out those that another one includes; of equal ones the
// first stays.
func mergeTolerations(all []corev1.Toleration) (merged []corev1.Toleration) {
	for i, t := range all {
		included := slices.ContainsFunc(merged, func(m corev1.Toleration) bool { return tolerates(m, t) }) ||
			slices.ContainsFunc(all[i+1:], func(o corev1.Toleration) bool {
				return !equality.Semantic.DeepEqual(t, o) && tolerates(o, t)
			})
		if !included {
			merged = append(merged, t)
		}
	}
	return merged
}

// tolerates reports whether whatever t tolerates, whole does.
func tolerates(whole, t corev1.Toleration) bool {
	if equality.Semantic.DeepEqual(whole, t) {
		return true
	}
	if t.Key != whole.Key && (whole.Key != "" || whole.Operator != corev1.TolerationOpExists) {
		return false
	}
	if t.Effect != whole.Effect && whole.Effect != "" {
		return false
	}
	if whole.Effect == corev1.TaintEffectNoExecute && whole.TolerationSeconds != nil && (t.TolerationSeconds == nil || *t.TolerationSeconds > *whole.TolerationSeconds) {
		return false
	}
	switch whole.Operator {
	case corev1.TolerationOpEqual, "":
		return t.Operator == corev1.TolerationOpEqual && t.Value == whole.Value
	case corev1.TolerationOpExists:
		return true
	}
	return false
}
