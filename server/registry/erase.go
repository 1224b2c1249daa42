package registry

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
)

// kind is a row in its typed form, as the files of the groups write it: T is
// the object, L its list. erase turns it into a Kind, so that the only place
// that knows about types and their erasure is this file.
type kind[T, L any] struct {
	Name             string // default: the name of T
	Plural, Singular string // Singular's default: Name in lower case
	Short            []string
	In               []string // categories
	Cluster          bool     // cluster-scoped
	Verbs            []string

	Prefix string // default: Plural
	TTL    time.Duration
	JSON   bool

	Store                *Kind
	ToStored, FromStored func(runtime.Object) (runtime.Object, error)

	Default   func(*T)
	Decoded   func(*T)
	Prepare   func(obj, old *T)
	Author    func(obj *T, u user.Info) // stamps the creator's identity
	Sync      func(obj *T) []string
	Fixed     []string
	Validate  func(obj, old *T) field.ErrorList
	Warn      func(obj, old *T) []string
	ValidName func(name string, prefix bool) []string
	NamedBy   func(*T) func(name string, prefix bool) []string

	OwnMeta, NamedByPrefix bool

	NeedsRevision   bool // an update must carry a resourceVersion
	CreateOnUpdate  bool
	OrphanByDefault bool
	GracePeriod     func(obj *T, asked *int64) int64
	Ungarbaged      bool
	DeleteWarning   string

	FieldAnnotations []string

	Fields       func(*T) fields.Set
	UnknownField string
	Columns      []Column
	Row          func(*T) []any
	Marks        func(*T) []metav1.TableRowCondition
	Order        func(a, b *T) int
	Sub          map[string]Subresource

	Deprecated string // what clients are warned of
}

// erase makes the row of a group and version.
func (k kind[T, L]) erase(gv schema.GroupVersion) *Kind {
	name := k.Name
	if name == "" {
		name = reflect.TypeFor[T]().Name()
	}
	row := &Kind{
		GroupVersionKind: gv.WithKind(name), Deprecated: k.Deprecated,
		Plural: k.Plural, Singular: orElse(k.Singular, lower(name)),
		Short: k.Short, Categories: k.In, Namespaced: !k.Cluster, Verbs: k.Verbs,
		New: newObject[T], NewList: newObject[L], typed: true,
		Store: k.Store, ToStored: k.ToStored, FromStored: k.FromStored,
		Prefix: orElse(k.Prefix, k.Plural), TTL: k.TTL, JSON: k.JSON,
		ValidName: k.ValidName, OwnMeta: k.OwnMeta, NamedByPrefix: k.NamedByPrefix,
		NoUnconditionalUpdate: k.NeedsRevision, CreateOnUpdate: k.CreateOnUpdate, OrphanByDefault: k.OrphanByDefault,
		Columns: k.Columns, Sub: k.Sub, Fixed: k.Fixed, FieldAnnotations: k.FieldAnnotations, Ungarbaged: k.Ungarbaged, DeleteWarning: k.DeleteWarning, UnknownField: k.UnknownField,
	}
	k.eraseFuncs(row)
	return row
}

func (k kind[T, L]) eraseFuncs(row *Kind) {
	if k.Default != nil {
		row.Default = func(obj runtime.Object) { k.Default(as[T](obj)) }
	}
	if k.Decoded != nil {
		row.Decoded = func(obj runtime.Object) { k.Decoded(as[T](obj)) }
	}
	if k.Prepare != nil || k.Author != nil {
		row.Prepare = k.prepare
	}
	if k.Sync != nil {
		row.Sync = func(obj runtime.Object) []string { return k.Sync(as[T](obj)) }
	}
	if k.Validate != nil {
		row.Validate = func(obj, old runtime.Object) field.ErrorList { return k.Validate(as[T](obj), as[T](old)) }
	}
	if k.NamedBy != nil {
		row.NamedBy = func(obj runtime.Object) func(string, bool) []string { return k.NamedBy(as[T](obj)) }
	}
	if k.Warn != nil {
		row.Warn = func(obj, old runtime.Object) []string { return k.Warn(as[T](obj), as[T](old)) }
	}
	if k.GracePeriod != nil {
		row.GracePeriod = func(obj runtime.Object, asked *int64) int64 { return k.GracePeriod(as[T](obj), asked) }
	}
	if k.Fields != nil {
		row.Fields = func(obj runtime.Object) fields.Set { return k.Fields(as[T](obj)) }
	}
	if k.Row != nil {
		row.Row = func(obj runtime.Object) []any { return k.Row(as[T](obj)) }
	}
	if k.Marks != nil {
		row.Marks = func(obj runtime.Object) []metav1.TableRowCondition { return k.Marks(as[T](obj)) }
	}
	if k.Order != nil {
		row.Order = func(a, b runtime.Object) int { return k.Order(as[T](a), as[T](b)) }
	}
	if k.Columns == nil {
		row.Columns, row.Row = plainColumns, plainRow
	}
}

func (k kind[T, L]) prepare(ctx context.Context, obj, old runtime.Object) {
	if k.Prepare != nil {
		k.Prepare(as[T](obj), own[T](old))
	}
	if u := UserFrom(ctx); k.Author != nil && old == nil && u != nil {
		k.Author(as[T](obj), u)
	}
}

// as is the object as its own type, nil for nil. An object of another type
// under a row's name is a bug of ours, hence the panic.
func as[T any](obj runtime.Object) *T {
	if obj == nil {
		return nil
	}
	typed, ok := any(obj).(*T)
	if !ok {
		panic(fmt.Sprintf("registry: %T where %s belongs", obj, reflect.TypeFor[T]()))
	}
	return typed
}

// own is a copy of an old object: Prepare moves parts of it into the new one,
// and the old one may be shared with readers of the cache.
func own[T any](old runtime.Object) *T {
	if old == nil {
		return nil
	}
	return as[T](old.DeepCopyObject())
}

func newObject[T any]() runtime.Object { return any(new(T)).(runtime.Object) }

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

type userKey struct{}

// WithUser hands the requesting user to Prepare: a few kinds record who made
// them (CertificateSigningRequest).
func WithUser(ctx context.Context, u user.Info) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}

// UserFrom is the user that WithUser attached, or nil.
func UserFrom(ctx context.Context) user.Info {
	u, _ := ctx.Value(userKey{}).(user.Info)
	return u
}

// halves are a kind's fields for what the user wants and for what the cluster found.
// Writes of the main resource leave the status alone, writes of /status leave the spec
// alone.
type halves[T any] struct {
	spec string // the field's name; "": Spec
	// counted kinds bump metadata.generation when the spec changes; exactly: also
	// from nothing to something empty.
	counted, exactly bool
}

func (h halves[T]) specOf(obj *T) reflect.Value { return fieldOf(obj, orElse(h.spec, "Spec")) }

// fieldOf is a field of an object; the zero Value if there is none.
func fieldOf[T any](obj *T, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

func (h halves[T]) same(a, b *T) bool {
	now, before := h.specOf(a).Addr().Interface(), h.specOf(b).Addr().Interface()
	if h.exactly {
		return reflect.DeepEqual(now, before)
	}
	return equality.Semantic.DeepEqual(now, before)
}

// prepare is the Prepare of the main resource.
func (h halves[T]) prepare(obj, old *T) {
	if status := fieldOf(obj, "Status"); status.IsValid() {
		status.SetZero()
		if old != nil {
			status.Set(fieldOf(old, "Status"))
		}
	}
	if !h.counted {
		return
	}
	if old == nil {
		setGeneration(obj, 1)
		return
	}
	generation := generationOf(old)
	if !h.same(obj, old) {
		generation++
	}
	setGeneration(obj, generation)
}

// keepSpec is the Prepare of /status.
func (h halves[T]) keepSpec(obj, old *T) {
	h.specOf(obj).Set(h.specOf(old))
	setGeneration(obj, generationOf(old))
}

// keepRest is the Prepare of a /status that leaves all but the status alone, labels
// and annotations too.
func (h halves[T]) keepRest(obj, old *T) {
	h.keepSpec(obj, old)
	metav1.ResetObjectMetaForStatus(any(obj).(metav1.Object), any(old).(metav1.Object))
}

// sub is the /status row, with optional further steps.
func (h halves[T]) sub(validate func(obj, old *T) field.ErrorList, more ...func(obj, old *T)) Subresource {
	return view(readWrite, inSteps(append([]func(obj, old *T){h.keepSpec}, more...)), validate)
}

func inSteps[T any](steps []func(obj, old *T)) func(obj, old *T) {
	return func(obj, old *T) {
		for _, step := range steps {
			step(obj, old)
		}
	}
}

// pure is the /status row of kinds whose metadata it leaves alone too, with optional
// further steps.
func (h halves[T]) pure(validate func(obj, old *T) field.ErrorList, more ...func(obj, old *T)) Subresource {
	return view(readWrite, inSteps(append([]func(obj, old *T){h.keepRest}, more...)), validate).resetting("spec", "metadata")
}

// resetting is the subresource with its Resets.
func (s Subresource) resetting(paths ...string) Subresource {
	s.Resets = paths
	return s
}

func setGeneration[T any](obj *T, n int64) { any(obj).(metav1.Object).SetGeneration(n) }
func generationOf[T any](obj *T) int64     { return any(obj).(metav1.Object).GetGeneration() }

// counted is the Prepare of kinds that count changes of their spec.
func counted[T any]() func(obj, old *T) { return halves[T]{counted: true}.prepare }
