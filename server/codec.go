package server

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"orrery.dev/api"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
)

// protobufPrefix marks a protobuf envelope: it is followed by a runtime.Unknown.
var protobufPrefix = []byte("k8s\x00")

// protoMarshaler is what the generated protobuf code of k8s.io/api offers.
type protoMarshaler interface{ Marshal() ([]byte, error) }

type protoUnmarshaler interface{ Unmarshal([]byte) error }

// readBody reads the whole body of a write, up to the limit.
func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxBody {
		return nil, errTooLarge()
	}
	return body, nil
}

// readBody reads the body of the call, and measures it.
func (c *call) readBody() ([]byte, error) {
	body, err := readBody(c.r)
	if err == nil {
		c.s.metrics.bodies.WithLabelValues(c.GVR.Group, c.GVR.Resource, strings.Replace(c.Verb, "deletecollection", "delete_collection", 1)).Observe(float64(len(body)))
	}
	return body, err
}

// decode reads an object of the given kind. Strict errors (unknown and
// duplicate fields) are returned apart, with the object: whether they matter is
// the caller's decision.
func decode(body []byte, contentType string, want schema.GroupVersionKind, into runtime.Object, also ...schema.GroupVersionKind) (strict []error, err error) {
	got, strict, err := decodeKind(body, contentType, want, into)
	if err == nil && slices.Contains(also, got) {
		if _, strict, err = decodeKind(body, contentType, got, into); err == nil {
			got = want
		}
	}
	u, custom := into.(*unstructured.Unstructured)
	switch {
	case err != nil:
		return nil, undecodable(err, want, got, body)
	case !custom && got.Kind != want.Kind:
		return nil, undecodable(errOtherKind(got, want), want, got, body)
	case got.GroupVersion() != want.GroupVersion():
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", got.GroupVersion(), want.GroupVersion()))
	case got != want:
		return nil, errOtherCustomKind(u, want)
	}
	into.GetObjectKind().SetGroupVersionKind(want)
	return strict, nil
}

// errOtherKind is for a body of another kind than the URL is about. Upstream has kinds
// in Go packages by their groups.
func errOtherKind(got, want schema.GroupVersionKind) error {
	group, _, _ := strings.Cut(want.Group, ".")
	if group == "" || group == "events" {
		group = "core"
	}
	return fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", got.Version, got.Kind, group, want.Kind)
}

// errOtherCustomKind is the same for custom objects, which can be read as any kind.
func errOtherCustomKind(obj *unstructured.Unstructured, want schema.GroupVersionKind) error {
	kind := obj.GetKind()
	return apierrors.NewInvalid(schema.GroupKind{Group: want.Group, Kind: kind}, obj.GetName(),
		field.ErrorList{field.Invalid(field.NewPath("kind"), kind, "must be "+want.Kind)})
}

// decodeKind reads an object, and says of which kind it claims to be. into is filled
// in only if that is the wanted one, or unstructured.
func decodeKind(body []byte, contentType string, want schema.GroupVersionKind, into runtime.Object) (got schema.GroupVersionKind, strict []error, err error) {
	switch contentType {
	case typeProtobuf:
		got, err = decodeProtobuf(body, want, into)
	case typeYAML:
		got, strict, err = decodeYAML(body, want, into)
	case typeCBOR:
		got, strict, err = decodeCBOR(body, want, into)
	default:
		got, strict, err = decodeJSON(body, want, into)
	}
	if _, custom := into.(*unstructured.Unstructured); err == nil && !custom && got != want && !recognizes(want.Group, got) {
		err = fmt.Errorf("no kind %q is registered for version %q in scheme %q", got.Kind, got.GroupVersion(), schemeName)
	}
	return got, strict, err
}

// recognizes tells if a kind is known where those of a group are served: definitions
// and APIServices are by themselves.
func recognizes(group string, got schema.GroupVersionKind) bool {
	alone := group == apiextensionsv1.GroupName || group == api.APIRegistrationGroup
	return known().Recognizes(got) && (!alone || got.Group == group)
}

// known is the scheme of all built-in kinds; schemeName is what upstream calls
// its own in errors.
var known = sync.OnceValue(registry.Scheme)

const schemeName = "pkg/runtime/scheme.go:111"

// undecodable wraps a decoding error as upstream does: by the kind that the body
// claimed, or with a glimpse of it.
func undecodable(err error, want, got schema.GroupVersionKind, body []byte) error {
	if got.Kind != "" {
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", got.Kind, got.Version, want.Kind, err))
	}
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %v (%s)", want.Kind, err, glimpse(body, 30)))
}

func glimpse(body []byte, most int) string {
	text := string(body[:min(len(body), most)])
	if len(body) == 0 {
		return "<empty>"
	}
	if body[0] != '{' {
		text = hex.EncodeToString([]byte(text))
	}
	if len(body) > most {
		text += " ..."
	}
	return text
}

// strictError is upstream's wording for what Strict validation refuses.
func strictError(errs []error) error { return runtime.NewStrictDecodingError(errs) }

func decodeJSON(body []byte, want schema.GroupVersionKind, into runtime.Object) (schema.GroupVersionKind, []error, error) {
	var head struct { // as upstream has it, whose errors name the type
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, &head); err != nil {
		return schema.GroupVersionKind{}, nil, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	got, err := kindOf(metav1.TypeMeta{Kind: head.Kind, APIVersion: head.APIVersion}, want, into, body)
	if err != nil {
		return got, nil, err
	}
	if u, ok := into.(*unstructured.Unstructured); ok {
		object := map[string]any{}
		strict, err := kjson.UnmarshalStrict(body, &object)
		if err != nil {
			return got, nil, err
		}
		u.Object = object
		return got, strict, checkMetadata(u)
	}
	if got != want {
		return got, nil, nil // decode reports it
	}
	strict, err := kjson.UnmarshalStrict(body, into)
	if err != nil && strings.Contains(err.Error(), ownTypes) {
		err = errors.New(strings.ReplaceAll(err.Error(), ownTypes, " of type "+want.Version+"."))
	}
	return got, strict, err
}

// ownTypes is what errors say of Go types of package api, where upstream's packages
// are called as versions are.
const ownTypes = " of type api."

// kindOf completes what the body says of its kind with what the URL says. An
// unstructured object must say it itself; that it does not say its version, decode
// will find.
func kindOf(head metav1.TypeMeta, want schema.GroupVersionKind, into runtime.Object, body []byte) (schema.GroupVersionKind, error) {
	gv, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	got := gv.WithKind(head.Kind)
	if _, ok := into.(*unstructured.Unstructured); ok {
		if head.Kind == "" {
			return schema.GroupVersionKind{}, runtime.NewMissingKindErr(string(body))
		}
		return got, nil
	}
	if got.Kind == "" {
		got.Kind = want.Kind
	}
	if got.Version == "" {
		got.Group, got.Version = want.Group, want.Version
	}
	return got, nil
}

// checkMetadata refuses custom objects whose metadata has the wrong types, which
// a typed object would refuse by itself.
func checkMetadata(u *unstructured.Unstructured) error {
	_, _, err := objectmeta.GetObjectMeta(u.Object, false)
	return err
}

func decodeYAML(body []byte, want schema.GroupVersionKind, into runtime.Object) (schema.GroupVersionKind, []error, error) {
	asJSON, err := yaml.YAMLToJSON(body)
	if err != nil {
		return schema.GroupVersionKind{}, nil, fmt.Errorf("yaml: %w", err)
	}
	got, strict, err := decodeJSON(asJSON, want, into)
	if err != nil {
		return got, nil, err
	}
	// Duplicate keys are lost in the conversion: look for them here.
	if _, dupErr := yaml.YAMLToJSONStrict(body); dupErr != nil {
		strict = append([]error{dupErr}, strict...)
	}
	return got, strict, nil
}

// yamlProblems takes the YAML library's list of complaints apart.
func yamlProblems(err error) []error {
	text := err.Error()
	text = strings.TrimPrefix(text, "error converting YAML to JSON: ")
	text, isList := strings.CutPrefix(text, "yaml: unmarshal errors:\n")
	if !isList {
		return []error{err}
	}
	var problems []error
	for _, line := range strings.Split(text, "\n") {
		problems = append(problems, errors.New(strings.TrimSpace(line)))
	}
	return problems
}

func decodeProtobuf(body []byte, want schema.GroupVersionKind, into runtime.Object) (schema.GroupVersionKind, error) {
	raw, ok := bytes.CutPrefix(body, protobufPrefix)
	if !ok {
		return schema.GroupVersionKind{}, errors.New("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(raw); err != nil {
		return schema.GroupVersionKind{}, err
	}
	got, err := kindOf(metav1.TypeMeta{Kind: envelope.Kind, APIVersion: envelope.APIVersion}, want, into, body)
	if err != nil || got != want {
		return got, err
	}
	message, ok := into.(protoUnmarshaler)
	if !ok {
		return got, fmt.Errorf("object %T does not implement the protobuf marshalling interface and cannot be decoded from a protobuf message", into)
	}
	return got, message.Unmarshal(envelope.Raw)
}

// cborPrefix marks CBOR: it is the tag of a self-described item.
var cborPrefix = []byte{0xd9, 0xd9, 0xf7}

// cborItem is CBOR within other CBOR.
type cborItem []byte

// MarshalCBOR satisfies the CBOR library.
func (i cborItem) MarshalCBOR() ([]byte, error) { return i, nil }

func decodeCBOR(body []byte, want schema.GroupVersionKind, into runtime.Object) (schema.GroupVersionKind, []error, error) {
	_, got, err := cbor.NewSerializer(known(), known(), cbor.Strict(true)).Decode(body, &want, into)
	if got == nil {
		got = &schema.GroupVersionKind{}
	}
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		return *got, strict.Errors(), nil
	}
	if u, ok := into.(*unstructured.Unstructured); ok && err == nil {
		err = checkMetadata(u)
	}
	return *got, nil, err
}

// encodeCBOR is an object's CBOR, without the prefix.
func encodeCBOR(obj runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	if u, ok := obj.(runtime.Unstructured); ok {
		return direct.Marshal(u.UnstructuredContent())
	}
	obj = obj.DeepCopyObject() // it may be shared, and say what it likes of its kind
	obj.GetObjectKind().SetGroupVersionKind(kind)
	return direct.Marshal(obj)
}

// encoded is an object in an encoding, without what begins a reply (see framed). YAML
// is made of JSON, at the very end.
func encoded(encoding string, obj runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	switch encoding {
	case typeProtobuf:
		return encodeProtobuf(obj)
	case typeCBOR:
		return encodeCBOR(obj, kind)
	}
	return encodeJSON(obj, kind)
}

// framed makes what encoded gives stand for itself.
func framed(encoding string, kind schema.GroupVersionKind, m storage.Message) [][]byte {
	switch encoding {
	case typeProtobuf:
		return enveloped(kind, m)
	case typeCBOR:
		return [][]byte{cborPrefix, m.Rest}
	}
	return [][]byte{m.Rest}
}

// encodeJSON is the JSON form of an object of a kind, whatever its own TypeMeta
// says (shared objects must not be touched to set it).
func encodeJSON(obj runtime.Object, kind schema.GroupVersionKind) ([]byte, error) {
	if u, ok := obj.(runtime.Unstructured); ok {
		return json.Marshal(u.UnstructuredContent())
	}
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	head := typeHead(kind)
	rest := withoutType(body)
	out := make([]byte, 0, len(head)+len(rest)+1)
	out = append(out, head...)
	if len(rest) > 1 { // more than the closing brace
		out = append(out, ',')
	}
	return append(out, rest...), nil
}

// typeHead is how the JSON of a typed object begins: {"kind":"Pod","apiVersion":"v1"
func typeHead(kind schema.GroupVersionKind) []byte {
	if kind.Kind == "" {
		return []byte("{")
	}
	return []byte(`{"kind":"` + kind.Kind + `","apiVersion":"` + kind.GroupVersion().String() + `"`)
}

// withoutType cuts the opening brace, kind and apiVersion off the JSON of a
// typed object; they come first and hold no character that needs escaping.
func withoutType(body []byte) []byte {
	rest := body[1:]
	for _, key := range []string{`"kind":"`, `"apiVersion":"`} {
		if value, ok := bytes.CutPrefix(rest, []byte(key)); ok {
			rest = bytes.TrimPrefix(value[bytes.IndexByte(value, '"')+1:], []byte(","))
		}
	}
	return rest
}

// encodeProtobuf is an object's protobuf message, without the envelope.
func encodeProtobuf(obj runtime.Object) ([]byte, error) {
	message, ok := obj.(protoMarshaler)
	if !ok {
		return nil, errNotAcceptable([]string{typeJSON, typeYAML})
	}
	return message.Marshal()
}

// enveloped wraps a protobuf message in a runtime.Unknown: type in field 1, the
// message in field 2, content encoding and type (empty) in 3 and 4.
func enveloped(kind schema.GroupVersionKind, m storage.Message) [][]byte {
	return [][]byte{append(envelopeHead(kind, m.Len()), m.Head...), m.Rest, envelopeTail}
}

// envelopeHead is what comes before a message of that size.
func envelopeHead(kind schema.GroupVersionKind, size int) []byte {
	version := kind.GroupVersion().String()
	b := append(make([]byte, 0, 256), protobufPrefix...)
	b = appendFieldHead(b, 1, fieldSize(len(version))+fieldSize(len(kind.Kind)))
	b = appendField(appendField(b, 1, []byte(version)), 2, []byte(kind.Kind))
	return appendFieldHead(b, 2, size)
}

var envelopeTail = appendField(appendField(nil, 3, nil), 4, nil)
