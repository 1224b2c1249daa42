package registry

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kind is one row of the table: all that the server knows about a kind of
// object. Nil functions mean "nothing special". Built-in kinds are declared
// with the typed form (see kind.erase); a CustomResourceDefinition makes the
// same struct at run time. A Kind is never changed once it is in a Table.
type Kind struct {
	schema.GroupVersionKind        // as served
	Plural, Singular        string // "pods", "pod"
	Short                   []string
	Categories              []string // "all", "api-extensions"
	Namespaced              bool
	Verbs                   []string // nil: all of create delete deletecollection get list patch update watch

	// New and NewList make empty objects of this version.
	New, NewList func() runtime.Object
	typed        bool // they are of a Go type

	// Store names the kind that is stored when this row is another served
	// version of it (autoscaling/v1 of autoscaling/v2, events.k8s.io of core
	// events). ToStored and FromStored convert; both nil when New is stored.
	Store                *Kind
	ToStored, FromStored func(runtime.Object) (runtime.Object, error)

	// Prefix is the etcd path below /registry, without slashes at its ends:
	// "pods", "services/specs", "minions", "apiregistration.k8s.io/apiservices".
	Prefix string
	// TTL is how long an object lives unless it is written again; 0: for ever.
	TTL time.Duration
	// JSON kinds are stored as JSON, as upstream does: custom resources (whose
	// New gives unstructured objects), and CustomResourceDefinition and
	// APIService (which are typed, see Unstructured). All others are stored as
	// protobuf in the "k8s\x00" envelope.
	JSON bool

	// Default fills in unset fields of the served version, on every write and
	// before Prepare. It must be idempotent.
	Default func(obj runtime.Object)
	// Prepare runs after decoding and defaulting, before admission and after what that
	// changes. old is nil
	// on create. It resets what clients may not set (status on the main
	// resource, on create and on update) and bumps metadata.generation. The
	// metadata that the server fills in (uid, name, creationTimestamp) is already
	// there; the user comes in ctx, see WithUser.
	Prepare func(ctx context.Context, obj, old runtime.Object)
	// Sync makes older and newer fields of a new object say the same, after admission
	// and before Prepare, and returns what the client is to be warned of.
	Sync func(obj runtime.Object) []string
	// Fixed are fields that an update leaves as they are, and that nobody comes to
	// own by writing the object.
	Fixed []string
	// Validate runs after admission. old is nil on create. Metadata is
	// validated by the server for every kind; this is the rest. It gets objects of
	// the version that writes are worked on in (see Hub), whose Validate counts
	// where this is nil.
	Validate func(obj, old runtime.Object) field.ErrorList
	// Warn returns the Warning headers for a write. old is nil on create.
	Warn func(obj, old runtime.Object) []string
	// ValidName checks metadata.name; nil: DNS-1123 subdomain. It has the
	// form of apimachinery's ValidateNameFunc.
	ValidName func(name string, prefix bool) []string
	// NamedBy is what ValidName is where it depends on the rest of the object.
	NamedBy func(obj runtime.Object) func(name string, prefix bool) []string
	// OwnMeta kinds check the metadata of what is created in Validate, if at all; the
	// server only sees to it that the rest may be stored.
	OwnMeta bool
	// NamedByPrefix kinds have generateName for a name as it is.
	NamedByPrefix bool

	// UnconditionalUpdate lets an update carry no resourceVersion;
	// CreateOnUpdate lets PUT create (and apply create, which all kinds allow).
	NoUnconditionalUpdate bool
	CreateOnUpdate        bool
	// GracePeriod gives the seconds that a delete grants when the object needs
	// a graceful deletion; nil or 0 result: deleted at once. asked is nil when
	// the client did not say. Only pods have one.
	GracePeriod func(obj runtime.Object, asked *int64) int64
	// OrphanByDefault keeps dependents when a delete names no propagation
	// policy (ReplicationController, Job, by long-standing behaviour).
	OrphanByDefault bool

	// FieldAnnotations are annotations that hold what was a field: forms of the metadata
	// alone are without them.
	FieldAnnotations []string

	// Fields are the selectable fields beyond metadata.name and
	// metadata.namespace. The set's keys are the same for every object.
	Fields func(obj runtime.Object) fields.Set
	// UnknownField is how a selection by another field is refused, if not in the
	// usual words; it has a verb for the field.
	UnknownField string
	// Selectable are the paths of Fields of a custom resource, as its author has
	// them.
	Selectable []string

	// Ungarbaged kinds have no dependents: how they are deleted says nothing about such.
	Ungarbaged bool
	// DeleteWarning is what clients are told who delete without a word on dependents.
	DeleteWarning string

	// Columns and Row are the Table form, kubectl's own. Row returns one cell
	// per column. A cell of an age column is the metav1.Time itself: the server
	// writes it out as kubectl does ("5m"), the faces keep it ticking.
	Columns []Column
	Row     func(obj runtime.Object) []any
	// Marks are what a row says of an object beside its cells: that it is done. Order
	// is the order of rows, where that is not by name.
	Marks func(obj runtime.Object) []metav1.TableRowCondition
	Order func(a, b runtime.Object) int

	// Decoded restores what protobuf loses, as the kind of an object within
	// another; nil: nothing.
	Decoded func(obj runtime.Object)

	// Coerce gives an unstructured object, as a client sent it, the form that
	// decoding gives typed ones, and returns the paths of the fields that it
	// dropped because the kind doesn't have them. Nil for built-in kinds.
	Coerce func(obj runtime.Object) (unknown []string, err error)
	// Deprecated is the warning that clients of this version get; "": none.
	Deprecated string

	// Schema is the version's openAPIV3Schema of a custom resource, as JSON, for
	// OpenAPI. Built-in kinds have theirs in package openapi.
	Schema []byte

	// Sub holds the subresources by name: "status", "scale", "exec".
	Sub map[string]Subresource
}

// Words is a cell whose text changes with the time, beyond an age.
type Words func(now time.Time) string

// Column is a column of the Table form.
type Column = metav1.TableColumnDefinition

// Subresource is what hangs below an object: /status, /scale, /exec.
//
// Kind is its own kind in discovery where it differs from the parent's (Scale,
// Eviction, TokenRequest, PodExecOptions). Exactly one of three forms:
//
//   - Prepare set: a view of the object itself (status, resize, approval,
//     ephemeralcontainers, finalize). PUT and PATCH take the whole object;
//     Prepare copies onto obj everything from old that this view may not change.
//   - Get and Put set: another kind converted to and from the object (scale).
//     Get may return an object along with an error that only matters to readers.
//     Path is where the object has what the other kind has in spec.replicas.
//   - neither: the server has a handler of that name (exec, attach, log,
//     portforward, proxy, eviction, binding, token).
type Subresource struct {
	Kind     schema.GroupVersionKind // zero: the parent's
	Verbs    []string
	Prepare  func(ctx context.Context, obj, old runtime.Object)
	Validate func(obj, old runtime.Object) field.ErrorList
	Warn     func(obj runtime.Object) []string // of a view
	Get      func(obj runtime.Object) (runtime.Object, error)
	Put      func(obj, sub runtime.Object) error // changes obj in place
	Path     []string
	New      func() runtime.Object
	// Resets are the paths of fields that the view leaves alone, and whose owner who
	// writes through it so does not become; nil: spec for a status.
	Resets []string
}

// ReturnsDeleted reports whether a delete answers with the object, by long
// standing; the others answer with a Status.
func (k *Kind) ReturnsDeleted() bool {
	switch k.Group {
	case "":
		return slices.Contains([]string{"pods", "podtemplates", "persistentvolumes", "persistentvolumeclaims", "resourcequotas", "services", "serviceaccounts"}, k.Plural)
	case "storage.k8s.io":
		return slices.Contains([]string{"storageclasses", "volumeattachments", "csidrivers", "csinodes", "volumeattributesclasses"}, k.Plural)
	}
	return k.Group == "resource.k8s.io" && k.Plural != "devicetaintrules"
}

// GroupResource is the key of the kind's collection in storage and in access
// rules: {"apps", "deployments"}.
func (k *Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.Plural}
}

// GroupVersionResource is the kind as a URL names it.
func (k *Kind) GroupVersionResource() schema.GroupVersionResource {
	return k.GroupVersion().WithResource(k.Plural)
}

// Stored is the row whose objects are in etcd: the kind itself, or what it is
// another version of.
func (k *Kind) Stored() *Kind {
	if k.Store != nil {
		return k.Store
	}
	return k
}

// Hub is the row in whose version a write is worked on, from decoding to
// validation: for built-in kinds that of the stored version. Versions of a custom
// kind have schemas of their own, so that each is worked on as it came, and
// converted only to be stored.
func (k *Kind) Hub() *Kind {
	if k.Unstructured() {
		return k
	}
	return k.Stored()
}

// Unstructured reports whether the kind's objects are unstructured: a custom
// resource.
func (k *Kind) Unstructured() bool {
	if k.typed {
		return false
	}
	_, ok := k.New().(runtime.Unstructured)
	return ok
}

// Can reports whether the kind serves a verb.
func (k *Kind) Can(verb string) bool {
	if k.Verbs == nil {
		return true
	}
	for _, v := range k.Verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// SelectableFields are all fields that a field selector can name, with the
// object's values.
func (k *Kind) SelectableFields(obj runtime.Object) fields.Set {
	set := fields.Set{}
	if m, err := meta.Accessor(obj); err == nil {
		set["metadata.name"] = m.GetName()
		if k.Namespaced {
			set["metadata.namespace"] = m.GetNamespace()
		}
	}
	if k.Fields != nil {
		for name, value := range k.Fields(obj) {
			set[name] = value
		}
	}
	return set
}
