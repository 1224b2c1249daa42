package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// claim is how a controller gets hold of the objects that are its own: those
// that name it as their controller and match its selector. Matching orphans are
// adopted; owned objects that no longer match are released.
type claim[T metav1.Object] struct {
	owner    metav1.Object
	kind     schema.GroupVersionKind
	selector labels.Selector
	// live reads the owner from the server: adopting on behalf of an owner that
	// is being deleted would cross the garbage collector.
	live func(ctx context.Context) (metav1.Object, error)
	// patch applies a strategic merge patch to a dependent.
	patch func(ctx context.Context, obj T, patch []byte) error
	// drops names a finalizer that is removed together with the owner.
	drops string
}

// patchPod is the patch of those who claim pods.
func (e *env) patchPod(ctx context.Context, pod *corev1.Pod, data []byte) error {
	_, err := e.clients.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, data, metav1.PatchOptions{})
	return err
}

// candidates are the objects that claim has to look at.
func candidates[T metav1.Object](informer cache.SharedIndexInformer, owner metav1.Object) []T {
	return append(indexed[T](informer, byController, string(owner.GetUID())), indexed[T](informer, orphans, owner.GetNamespace())...)
}

// from returns the objects that belong to the owner, after adopting and
// releasing among objs.
func (c *claim[T]) from(ctx context.Context, objs []T) ([]T, error) {
	var mine []T
	var errs []error
	var alive error
	checked := false
	for _, obj := range objs {
		switch claimStep(c.owner, c.selector, obj) {
		case claimKeep:
			mine = append(mine, obj)
		case claimRelease:
			errs = append(errs, ignoreGone(c.release(ctx, obj)))
		case claimAdopt:
			if !checked {
				alive, checked = c.ownerAlive(ctx), true
			}
			if alive != nil {
				errs = append(errs, alive)
				continue
			}
			err := c.adopt(ctx, obj)
			if err == nil {
				mine = append(mine, obj)
			}
			errs = append(errs, ignoreGone(err))
		}
	}
	return mine, errors.Join(errs...)
}

type claimAction int

const (
	claimLeave claimAction = iota
	claimKeep
	claimAdopt
	claimRelease
)

// claimStep decides what owner does with obj.
func claimStep(owner metav1.Object, selector labels.Selector, obj metav1.Object) claimAction {
	matches := selector.Matches(labels.Set(obj.GetLabels()))
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		switch {
		case ref.UID != owner.GetUID():
			return claimLeave
		case matches:
			return claimKeep
		case owner.GetDeletionTimestamp() != nil:
			return claimLeave
		}
		return claimRelease
	}
	if owner.GetDeletionTimestamp() != nil || !matches || obj.GetDeletionTimestamp() != nil || obj.GetNamespace() != owner.GetNamespace() {
		return claimLeave
	}
	return claimAdopt
}

func (c *claim[T]) ownerAlive(ctx context.Context) error {
	live, err := c.live(ctx)
	if err != nil {
		return fmt.Errorf("adopt: %w", err)
	}
	if live.GetUID() != c.owner.GetUID() {
		return fmt.Errorf("adopt: original %s %s is gone: got uid %s, wanted %s", c.kind.Kind, keyOf(c.owner), live.GetUID(), c.owner.GetUID())
	}
	if live.GetDeletionTimestamp() != nil {
		return fmt.Errorf("adopt: %s has just been deleted at %s", keyOf(c.owner), live.GetDeletionTimestamp())
	}
	return nil
}

func (c *claim[T]) adopt(ctx context.Context, obj T) error {
	meta := map[string]any{
		"uid":             obj.GetUID(),
		"ownerReferences": []metav1.OwnerReference{*metav1.NewControllerRef(c.owner, c.kind)},
	}
	if c.drops != "" {
		meta["finalizers"] = []string{c.drops}
	}
	return c.patch(ctx, obj, metadataPatch(meta))
}

func (c *claim[T]) release(ctx context.Context, obj T) error {
	meta := map[string]any{
		"uid":             obj.GetUID(),
		"ownerReferences": []map[string]any{{"$patch": "delete", "uid": c.owner.GetUID()}},
	}
	if c.drops != "" {
		meta["$deleteFromPrimitiveList/finalizers"] = []string{c.drops}
	}
	return c.patch(ctx, obj, metadataPatch(meta))
}

func metadataPatch(meta map[string]any) []byte {
	data, err := json.Marshal(map[string]any{"metadata": meta})
	if err != nil {
		panic(err) // maps of strings always encode
	}
	return data
}

// ignoreGone forgives that an object vanished, or became another one, before it
// could be changed.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
