package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/cache"
)

// longestRevisionPrefix leaves room for the hash in a revision's name.
const longestRevisionPrefix = 223

// history keeps the ControllerRevisions of one DaemonSet or StatefulSet: the
// templates that it has had.
type history struct {
	*env
	owner    metav1.Object
	kind     schema.GroupVersionKind
	selector labels.Selector
	live     func(context.Context) (metav1.Object, error)
}

func (e *env) revisionInformer() cache.SharedIndexInformer {
	return e.factory.Apps().V1().ControllerRevisions().Informer()
}

// list returns the owner's revisions, oldest first.
func (h *history) list(ctx context.Context) ([]*appsv1.ControllerRevision, error) {
	c := claim[*appsv1.ControllerRevision]{
		owner: h.owner, kind: h.kind, selector: h.selector, live: h.live,
		patch: func(ctx context.Context, r *appsv1.ControllerRevision, data []byte) error {
			_, err := h.clients.AppsV1().ControllerRevisions(r.Namespace).Patch(ctx, r.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
			return err
		},
	}
	all, err := c.from(ctx, candidates[*appsv1.ControllerRevision](h.revisionInformer(), h.owner))
	sortRevisions(all)
	return all, err
}

func sortRevisions(all []*appsv1.ControllerRevision) {
	slices.SortFunc(all, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// templatePatch is what a revision stores: a patch that restores the template.
func templatePatch(template *corev1.PodTemplateSpec) []byte {
	data, err := json.Marshal(template)
	if err != nil {
		panic(err) // API types always encode
	}
	fields := map[string]any{}
	if err := json.Unmarshal(data, &fields); err != nil {
		panic(err)
	}
	fields["$patch"] = "replace"
	out, err := json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
	if err != nil {
		panic(err)
	}
	return out
}

// templateOf reads the template back from a revision.
func templateOf(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var stored struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Data.Raw, &stored); err != nil {
		return nil, fmt.Errorf("revision %s: %w", keyOf(r), err)
	}
	return &stored.Spec.Template, nil
}

// sameData compares the data of revisions; servers may have encoded it anew.
func sameData(a, b []byte) bool {
	if string(a) == string(b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// hashData is the hash in a StatefulSet's revision names.
func hashData(data []byte, collisions *int32) string {
	h := fnv.New32a()
	h.Write(data)
	if collisions != nil {
		h.Write([]byte(strconv.FormatInt(int64(*collisions), 10)))
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

// revision makes the object for data; it is not stored yet.
func (h *history) revision(name string, number int64, data []byte, labels, annotations map[string]string) *appsv1.ControllerRevision {
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: h.owner.GetNamespace(), Labels: labels, Annotations: maps.Clone(annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(h.owner, h.kind)},
		},
		Data:     runtime.RawExtension{Raw: data},
		Revision: number,
	}
}

// collision says that another object has the name that a revision's hash gives.
type collision struct{ name string }

func (c collision) Error() string { return "controller revision " + c.name + " exists with other data" }

// store creates a revision. If its name is taken it returns the very revision,
// or a collision.
func (h *history) store(ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	created, err := h.clients.AppsV1().ControllerRevisions(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return created, err
	}
	found, err := h.clients.AppsV1().ControllerRevisions(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if !sameData(found.Data.Raw, r.Data.Raw) || !metav1.IsControlledBy(found, h.owner) {
		return nil, collision{r.Name}
	}
	return found, nil
}

// renumber makes an old revision the newest again.
func (h *history) renumber(ctx context.Context, r *appsv1.ControllerRevision, number int64) (*appsv1.ControllerRevision, error) {
	if r.Revision == number {
		return r, nil
	}
	changed := r.DeepCopy()
	changed.Revision = number
	return h.clients.AppsV1().ControllerRevisions(r.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
}

// truncate deletes the oldest revisions beyond the limit that are not in use.
func (h *history) truncate(ctx context.Context, all []*appsv1.ControllerRevision, limit int, inUse func(*appsv1.ControllerRevision) bool) error {
	var idle []*appsv1.ControllerRevision
	for _, r := range all {
		if !inUse(r) {
			idle = append(idle, r)
		}
	}
	if len(idle) <= limit {
		return nil
	}
	for _, r := range idle[:len(idle)-limit] {
		err := h.clients.AppsV1().ControllerRevisions(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{})
		if ignoreNotFound(err) != nil {
			return fmt.Errorf("delete revision %s: %w", keyOf(r), err)
		}
	}
	return nil
}
