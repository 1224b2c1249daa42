package nodeagent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// allotment is what the node has promised to a pod, which is not always what the
// pod asks for now, and what its containers really have. It is in a file beside
// the pod's volumes, since nothing else tells it after a restart of the agent:
// the specification may ask for more by then.
type allotment struct {
	// Pod is what the pod as a whole was promised, if it asks as a whole.
	Pod *corev1.ResourceRequirements `json:"pod,omitempty"`
	// Containers is what its containers were promised, by name.
	Containers map[string]corev1.ResourceRequirements `json:"containers"`
	// Applied is what running containers have, by id, and the pod as a whole, by
	// the empty string.
	Applied map[string]corev1.ResourceRequirements `json:"applied,omitempty"`
}

// allot promises a pod what it asks for.
func allot(pod *corev1.Pod) *allotment {
	al := &allotment{Pod: pod.Spec.Resources.DeepCopy(), Containers: map[string]corev1.ResourceRequirements{}}
	for _, c := range containersOf(pod) {
		if !isEphemeral(pod, c.Name) {
			al.Containers[c.Name] = *c.Resources.DeepCopy()
		}
	}
	return al
}

// fits says whether a pod asks for no more and no less than it was promised.
func (al *allotment) fits(pod *corev1.Pod) bool {
	for _, c := range containersOf(pod) {
		promised, ok := al.Containers[c.Name]
		if ok && !equality.Semantic.DeepEqual(promised, c.Resources) {
			return false
		}
	}
	return equality.Semantic.DeepEqual(al.Pod, pod.Spec.Resources)
}

// podOf is the pod as it would be if it asked for what it was promised.
func (al *allotment) podOf(pod *corev1.Pod) *corev1.Pod {
	if al == nil || al.fits(pod) {
		return pod
	}
	pod = pod.DeepCopy()
	pod.Spec.Resources = al.Pod.DeepCopy()
	for _, c := range containersOf(pod) {
		if promised, ok := al.Containers[c.Name]; ok {
			c.Resources = *promised.DeepCopy()
		}
	}
	return pod
}

// applied notes what a container was started or updated with, and forgets the
// containers that are no longer known.
func (al *allotment) applied(id string, r corev1.ResourceRequirements, h have) {
	kept := map[string]corev1.ResourceRequirements{}
	if whole, ok := al.Applied[wholePod]; ok {
		kept[wholePod] = whole
	}
	for _, all := range h.containers {
		for _, c := range all {
			if had, ok := al.Applied[c.id]; ok {
				kept[c.id] = had
			}
		}
	}
	kept[id] = *r.DeepCopy()
	al.Applied = kept
}

// wholePod stands for the pod where else there is a container's id.
const wholePod = ""

// sizeOf is what a container gets: where it has no limit of its own, the pod's
// holds.
func sizeOf(pod *corev1.Pod, c *corev1.Container) corev1.ResourceRequirements {
	r := *c.Resources.DeepCopy()
	if pod.Spec.Resources == nil {
		return r
	}
	for name, q := range pod.Spec.Resources.Limits {
		if _, own := r.Limits[name]; own {
			continue
		}
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[name] = q
	}
	return r
}

func (a *Agent) allotmentPath(pod *corev1.Pod) string {
	return filepath.Join(a.podDir(pod), "resources.json")
}

// readAllotment reads what a former agent promised; nil if there is nothing.
func (a *Agent) readAllotment(pod *corev1.Pod) (*allotment, error) {
	data, err := os.ReadFile(a.allotmentPath(pod))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	al := &allotment{}
	if err := json.Unmarshal(data, al); err != nil {
		return nil, err
	}
	return al, nil
}

// writeAllotment replaces the file in one go.
func (a *Agent) writeAllotment(pod *corev1.Pod, al *allotment) error {
	if a.cfg.Simulated {
		return nil
	}
	data, err := json.Marshal(al)
	if err != nil {
		return err
	}
	path := a.allotmentPath(pod)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
