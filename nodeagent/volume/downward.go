package volume

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// downwardAPI is a directory with facts about the pod.
func (h *Host) downwardAPI(_ context.Context, r request) (Mounted, error) {
	s := r.vol.DownwardAPI
	files := payload{}
	if err := h.addDownward(r.pod, s.Items, ptr.Deref(s.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode), files); err != nil {
		return Mounted{}, err
	}
	return h.fill(r, files, true)
}

func (h *Host) addDownward(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode int32, files payload) error {
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = FieldValue(pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = ResourceValue(pod, item.ResourceFieldRef, item.ResourceFieldRef.ContainerName, h.NodeAllocatable())
		}
		if err != nil {
			return err
		}
		files[item.Path] = file{data: []byte(value), mode: ptr.Deref(item.Mode, mode)}
	}
	return nil
}

// FieldValue is the value of a field that the downward API offers.
func FieldValue(pod *corev1.Pod, path string) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.annotations":
			return pod.Annotations[key], nil
		case "metadata.labels":
			return pod.Labels[key], nil
		}
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
	switch path {
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "spec.restartPolicy":
		return string(pod.Spec.RestartPolicy), nil
	case "status.phase":
		return string(pod.Status.Phase), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

// subscript splits metadata.labels['key'].
func subscript(path string) (name, key string, ok bool) {
	rest, ok := strings.CutSuffix(path, "']")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "['")
}

func formatMap(m map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s=%q\n", k, m[k])
	}
	return b.String()
}

// ResourceValue is a container's request or limit, in units of the divisor and
// rounded up. A limit that is not set is what the node can give.
func ResourceValue(pod *corev1.Pod, ref *corev1.ResourceFieldSelector, container string, allocatable corev1.ResourceList) (string, error) {
	if ref.ContainerName != "" {
		container = ref.ContainerName
	}
	var c *corev1.Container
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == container {
				c = &list[i]
			}
		}
	}
	if c == nil {
		return "", fmt.Errorf("container %s not found", container)
	}
	which, name, _ := strings.Cut(ref.Resource, ".")
	var q resource.Quantity
	switch which {
	case "limits":
		limit, ok := c.Resources.Limits[corev1.ResourceName(name)]
		if !ok || limit.IsZero() {
			limit = allocatable[corev1.ResourceName(name)]
			if podresources.IsPodLevelLimitsSet(pod) {
				if l, ok := pod.Spec.Resources.Limits[corev1.ResourceName(name)]; ok {
					limit = l
				}
			}
		}
		q = limit
	case "requests":
		q = c.Resources.Requests[corev1.ResourceName(name)]
	default:
		return "", fmt.Errorf("unsupported container resource : %v", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if name == "cpu" {
		return strconv.FormatInt(int64(math.Ceil(float64(q.MilliValue())/float64(divisor.MilliValue()))), 10), nil
	}
	return strconv.FormatInt(int64(math.Ceil(float64(q.Value())/float64(divisor.Value()))), 10), nil
}

// FileKey reads a variable from a file of NAME=value lines in a volume.
func FileKey(m Mounted, ref *corev1.FileKeySelector) (string, bool, error) {
	optional := ref.Optional != nil && *ref.Optional
	root, err := os.OpenRoot(filepath.Clean(m.Path))
	if err != nil {
		return "", false, err
	}
	defer root.Close()
	data, err := root.ReadFile(ref.Path)
	if os.IsNotExist(err) && optional {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	for _, l := range strings.Split(string(data), "\n") {
		name, value, ok := strings.Cut(strings.TrimRight(l, "\r"), "=")
		if ok && strings.TrimSpace(name) == ref.Key {
			value = strings.TrimSpace(value)
			if n := len(value); n >= 2 && value[0] == value[n-1] && (value[0] == '\'' || value[0] == '"') {
				value = value[1 : n-1]
			}
			return value, true, nil
		}
	}
	if optional {
		return "", false, nil
	}
	return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
}
