package admission

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/trace"
)

// Operation is what a request does, in the words of admission webhooks.
type Operation string

// The operations that are admitted. Reads are not.
const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Request is a write on its way to storage.
type Request struct {
	Operation   Operation
	Resource    schema.GroupVersionResource // as in the URL
	Subresource string
	Kind        schema.GroupVersionKind // of Object
	Namespace   string                  // "" for cluster-scoped kinds
	Name        string                  // "" on create with generateName
	// Object is the new state (create, update) or the options of a connect;
	// Mutate plugins change it in place. Old is the present state (update,
	// delete) and must not be changed.
	Object, Old runtime.Object
	// Options is the CreateOptions, UpdateOptions, PatchOptions or DeleteOptions.
	Options runtime.Object
	DryRun  bool
	User    user.Info

	// Warn adds a Warning header to the reply; Annotate an audit annotation.
	// Both may be nil.
	Warn     func(text string)
	Annotate func(key, value string)

	// Settle, if set, is called when only settled plugins have yet to see the object.
	Settle func()

	finish []func(ctx context.Context, stored runtime.Object)
	rounds
}

// rounds is what Mutate remembers of one request. Policies and webhooks change an
// object behind the backs of the plugins before them, so those see it once more,
// and of the policies and webhooks themselves those that asked for it.
type rounds struct {
	second  bool
	changed bool                      // by a policy or webhook
	left    map[string]runtime.Object // by steps that may run again: what they made of the object
}

// OnFinish is for plugins that keep books (service addresses): f runs when the
// fate of the write is known. stored is what the store holds now, nil if the
// write failed or the object is gone.
func (r *Request) OnFinish(f func(ctx context.Context, stored runtime.Object)) {
	r.finish = append(r.finish, f)
}

// Finish tells the plugins how the write ended. The verb calls it exactly once
// for every Request that went through Mutate, refused and dry-run ones included:
// stored is the new state, or nil after a failure. A delete passes nil once the
// object is gone, and the marked object if finalizers or grace keep it.
func (r *Request) Finish(ctx context.Context, stored runtime.Object) {
	for _, f := range r.finish {
		f(ctx, stored)
	}
	r.finish = nil
}

// Meta is the object metadata of Object, or of Old on delete; nil for
// objects without (options of a connect).
func (r *Request) Meta() metav1.Object {
	obj := r.Object
	if obj == nil {
		obj = r.Old
	}
	m, _ := obj.(metav1.Object)
	return m
}

// Is reports whether the request is about a resource of a group, main resource
// ("pods") or subresource ("pods/status").
func (r *Request) Is(group, resource string) bool {
	name := r.Resource.Resource
	if r.Subresource != "" {
		name += "/" + r.Subresource
	}
	return r.Resource.Group == group && name == resource
}

// Plugin is one step of admission. Mutate may change the object, Validate may
// only look; either may refuse by returning an error, which should be an
// *apierrors.StatusError (Forbidden for most). Either may be nil.
type Plugin struct {
	Name     string
	On       func(*Request) bool // nil: every request
	Settled  bool                // Mutate runs once, when the others are done with the object
	Mutate   func(context.Context, *Request) error
	Validate func(context.Context, *Request) error
}

// Chain is the plugins in running order.
type Chain []Plugin

// Observed is the chain with the time that each half of a plugin takes told of:
// "admit" or "validate".
func (c Chain) Observed(tell func(ctx context.Context, plugin, half string, r *Request, took time.Duration, err error)) Chain {
	timed := func(plugin, half string, run func(context.Context, *Request) error) func(context.Context, *Request) error {
		if run == nil {
			return nil
		}
		return func(ctx context.Context, r *Request) error {
			begin := time.Now()
			err := run(ctx, r)
			tell(ctx, plugin, half, r, time.Since(begin), err)
			return err
		}
	}
	observed := slices.Clone(c)
	for i, p := range c {
		observed[i].Mutate, observed[i].Validate = timed(p.Name, "admit", p.Mutate), timed(p.Name, "validate", p.Validate)
	}
	return observed
}

// Mutate runs the mutating halves in order, twice if the first round made it
// necessary, and those of settled plugins at the end.
func (c Chain) Mutate(ctx context.Context, r *Request) error {
	ctx, step := trace.Step(ctx, "admission: mutating")
	err := c.mutateAll(ctx, r)
	step.EndQuietly(err)
	return err
}

func (c Chain) mutateAll(ctx context.Context, r *Request) error {
	r.rounds = rounds{left: map[string]runtime.Object{}}
	if err := c.mutate(ctx, r, false); err != nil {
		return err
	}
	if r.changed {
		r.second = true
		if err := c.mutate(ctx, r, false); err != nil {
			return err
		}
	}
	if r.Settle != nil {
		r.Settle()
	}
	return c.mutate(ctx, r, true)
}

func (c Chain) mutate(ctx context.Context, r *Request, settled bool) error {
	for _, p := range c {
		if p.Settled != settled || p.Mutate == nil || p.On != nil && !p.On(r) {
			continue
		}
		if err := p.Mutate(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// round is 1 when the plugins see the object once more.
func (r *Request) round() int {
	if r.second {
		return 1
	}
	return 0
}

// due reports whether a step that somebody configured, a policy or a webhook, is
// to run: always in the first round; in the second if it wants to see objects
// again that others changed after it.
func (r *Request) due(step string) bool {
	if !r.second {
		return true
	}
	left, ran := r.left[step]
	return ran && !equality.Semantic.DeepEqual(left, r.Object)
}

// ran records that a step has run; again: it may do so once more.
func (r *Request) ran(step string, again bool) {
	if again && !r.second && r.Object != nil {
		r.left[step] = r.Object.DeepCopyObject()
	}
}

// Validate runs the validating halves in order.
func (c Chain) Validate(ctx context.Context, r *Request) error {
	ctx, step := trace.Step(ctx, "admission: validating")
	err := c.validateAll(ctx, r)
	step.EndQuietly(err)
	return err
}

func (c Chain) validateAll(ctx context.Context, r *Request) error {
	for _, p := range c {
		if p.Validate == nil || p.On != nil && !p.On(r) {
			continue
		}
		if err := p.Validate(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// Reader is how plugins read the cluster's state; storage satisfies it. Objects
// are shared and must not be changed. Get returns NotFound as a StatusError.
type Reader interface {
	Get(ctx context.Context, resource schema.GroupResource, namespace, name string) (runtime.Object, error)
	List(ctx context.Context, resource schema.GroupResource, namespace string) ([]runtime.Object, error)
}

// Writer is how the few plugins that keep books (quota, service addresses)
// write; storage satisfies it. change is as in storage's Update.
type Writer interface {
	Create(ctx context.Context, resource schema.GroupResource, obj runtime.Object) (runtime.Object, error)
	Update(ctx context.Context, resource schema.GroupResource, namespace, name string, change func(current runtime.Object) (runtime.Object, error)) (runtime.Object, error)
	Delete(ctx context.Context, resource schema.GroupResource, namespace, name string) error
}

// OwnWriter is how those write that keep objects for all to see: it notes whose these
// are.
type OwnWriter interface {
	Writer
	ApplyCondition(ctx context.Context, resource schema.GroupResource, name, manager string, condition any) error
}
