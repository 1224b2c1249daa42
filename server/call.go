package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// call is one request about objects on its way through a verb.
type call struct {
	*requestInfo
	s    *Server
	w    http.ResponseWriter
	r    *http.Request
	user user.Info
	kind *registry.Kind        // the row that the URL names
	sub  *registry.Subresource // nil: the object itself
	out  mediaType

	asJSON, asBinary encoding // asBinary: protobuf or CBOR, as negotiated

	mu       sync.Mutex // protects warnings: admission may warn from goroutines
	warnings []string
}

// collection is where the objects are stored.
func (c *call) collection() (*storage.Collection, error) {
	if col := c.s.Store.Collection(c.kind.Stored().GroupResource()); col != nil {
		return col, nil
	}
	return nil, errMethodNotAllowed()
}

// served converts an object from the stored version to the one that is served.
func (c *call) served(obj runtime.Object) (runtime.Object, error) { return fromStored(c.kind, obj) }

func fromStored(k *registry.Kind, obj runtime.Object) (runtime.Object, error) {
	if k.FromStored == nil {
		return obj, nil
	}
	return k.FromStored(obj)
}

// stored converts an object from the served version to the one that writes are
// worked on in (see Kind.Hub), and fills in both versions' defaults.
func (c *call) stored(obj runtime.Object) (runtime.Object, error) { return toStored(c.kind, obj) }

func toStored(k *registry.Kind, obj runtime.Object) (runtime.Object, error) {
	if k.Default != nil {
		k.Default(obj)
	}
	if k.Hub() == k {
		return obj, nil
	}
	obj, err := k.ToStored(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	stored := k.Stored()
	if stored.Default != nil {
		stored.Default(obj)
	}
	obj.GetObjectKind().SetGroupVersionKind(stored.GroupVersionKind)
	return obj, nil
}

// unpacked is what storage holds, in the version that writes are worked on in;
// packed is the way back. For built-in kinds the two are the same.
func (c *call) unpacked(obj runtime.Object) (runtime.Object, error) {
	return fromStored(c.kind.Hub(), obj)
}

func (c *call) packed(obj runtime.Object) (runtime.Object, error) {
	if hub := c.kind.Hub(); hub.ToStored != nil {
		return hub.ToStored(obj)
	}
	return obj, nil
}

// warn adds a Warning header to the reply, once per text.
func (c *call) warn(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, known := range c.warnings {
		if known == text {
			return
		}
	}
	c.warnings = append(c.warnings, text)
}

// flushWarnings writes the Warning headers; after the first byte of the body it
// would be too late. Headers are bounded, as some proxies refuse large ones.
func (c *call) flushWarnings() {
	c.mu.Lock()
	defer c.mu.Unlock()
	total := 0
	for _, text := range c.warnings {
		if len(text) > 1024 {
			cut := 1024
			for !utf8.RuneStart(text[cut]) {
				cut--
			}
			text = text[:cut]
		}
		header, err := utilnet.NewWarningHeader(299, "-", text)
		if total += len(text); err != nil || total > 4096 {
			continue
		}
		c.w.Header().Add("Warning", header)
	}
	c.warnings = nil
}

// reply answers with an object of the served version, in the form asked for.
func (c *call) reply(code int, obj runtime.Object, kind schema.GroupVersionKind) error {
	c.flushWarnings()
	if c.out.as != "" {
		return c.replyAs(code, obj)
	}
	return writeObject(c.w, c.r, c.out, code, obj, kind)
}

// replyStored answers with an object of the stored version.
func (c *call) replyStored(code int, obj runtime.Object) error {
	obj, err := c.served(obj)
	if err != nil {
		return err
	}
	return c.reply(code, obj, c.kind.GroupVersionKind)
}

// body reads and decodes the request's body into an object of a kind, or of others
// that have the same form. What fieldValidation makes of unknown and duplicate fields
// is settled here.
func (c *call) body(into runtime.Object, kind schema.GroupVersionKind, fieldValidation string, also ...schema.GroupVersionKind) error {
	offered := c.s.encodings(c.kind)
	contentType, err := inputType(c.r, offered)
	if err != nil {
		return err
	}
	body, err := c.readBody()
	if err != nil {
		return err
	}
	strict, err := decode(body, contentType, kind, into, also...)
	if err != nil {
		return err
	}
	c.auditRequest(into, kind)
	unknown, err := c.coerce(into)
	if err != nil {
		return undecodable(err, kind, kind, nil)
	}
	if contentType != typeCBOR { // which upstream looks for no unknown fields in
		strict = append(strict, unknown...)
	}
	if len(strict) == 0 {
		return nil
	}
	switch fieldValidation {
	case metav1.FieldValidationStrict:
		return undecodable(strictError(strict), kind, kind, nil)
	case metav1.FieldValidationIgnore:
	default:
		c.warnOf(strict)
	}
	return nil
}

// coerce drops what a custom object has and its schema hasn't.
func (c *call) coerce(obj runtime.Object) ([]error, error) {
	if _, ok := obj.(runtime.Unstructured); !ok || c.kind.Coerce == nil {
		return nil, nil
	}
	paths, err := c.kind.Coerce(obj)
	var unknown []error
	for _, path := range paths {
		unknown = append(unknown, fmt.Errorf("unknown field %q", path))
	}
	return unknown, err
}

// query converts the query parameters into an options struct.
func query[T any, O interface{ *T }](c *call, convert func(*url.Values, O, conversion.Scope) error) (O, error) {
	values := c.r.URL.Query()
	options := O(new(T))
	if err := convert(&values, options, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return options, nil
}

// checkIdentity wants an object to be the one that the URL names.
func (c *call) checkIdentity(obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := checkNamespace(m, c.objectNamespace()); err != nil {
		return err
	}
	return checkName(m, c.Name)
}

// checkNamespace fits an object's namespace to the one of the URL.
func checkNamespace(obj metav1.Object, namespace string) error {
	switch own := obj.GetNamespace(); {
	case own == namespace:
	case own == "", namespace == "":
		obj.SetNamespace(namespace)
	default:
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return nil
}

// checkName refuses an object that is not the one that the URL names.
func checkName(obj metav1.Object, name string) error {
	own := obj.GetName()
	if own == "" {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s based on URL) was undeterminable: name must be provided", name))
	}
	if own != name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", own, name))
	}
	return nil
}

// manager is the name that field ownership is recorded under.
func (c *call) manager(asked string) string {
	if asked != "" {
		return asked
	}
	agent, _, _ := strings.Cut(c.r.UserAgent(), "/")
	var name strings.Builder
	for _, r := range agent {
		if !unicode.IsPrint(r) {
			continue
		}
		if name.Len()+utf8.RuneLen(r) > metav1validation.FieldManagerMaxLength {
			break
		}
		name.WriteRune(r)
	}
	return name.String()
}

// contextKey keys what middleware leaves in a request's context.
type contextKey int

const (
	keyUser contextKey = iota
	keyInfo
	keyReceived // when the request came in
	keyDelay    // how long it has waited for others (*delay)
	keyPass     // of a watch that has not begun
)

func userFrom(ctx context.Context) user.Info {
	u, _ := ctx.Value(keyUser).(user.Info)
	return u
}

func infoFrom(ctx context.Context) *requestInfo {
	i, _ := ctx.Value(keyInfo).(*requestInfo)
	return i
}
