package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxOperations is how many operations a JSON patch may have; maxCopied bounds
// what its copy operations may add, in bytes.
const (
	maxOperations = 10000
	maxCopied     = 3 * 1024 * 1024
)

// Patch is a patch of a type other than apply. It may be applied any number of
// times.
type Patch struct {
	kind types.PatchType
	body []byte
	// validation is what becomes of unknown and duplicate fields (a value of the
	// query's fieldValidation).
	validation string
}

// New makes a Patch. Whether it makes sense shows when it is applied.
func New(kind types.PatchType, body []byte, validation string) (*Patch, error) {
	if !json.Valid(body) {
		return nil, apierrors.NewBadRequest("invalid JSON patch")
	}
	return &Patch{kind, body, validation}, nil
}

// Decode reads a patched object, and returns the unknown and duplicate fields.
type Decode func(doc []byte, into runtime.Object) (strict []error, err error)

// Apply makes the patched object out of current, into an empty object of the
// same type, and returns what the client is to be warned of. current is not
// changed.
func (p *Patch) Apply(current, into runtime.Object, decode Decode) (warnings []error, err error) {
	var value func() string
	var problems []error
	if p.kind == types.StrategicMergePatchType {
		value, problems, err = p.applyStrategic(current, into)
	} else {
		value, problems, err = p.applyJSON(current, into, decode)
	}
	switch {
	case err != nil, len(problems) == 0, p.validation == metav1.FieldValidationIgnore:
		return nil, err
	case p.validation == metav1.FieldValidationStrict:
		return nil, invalid(value(), runtime.NewStrictDecodingError(problems))
	}
	return problems, nil
}

// strict reads the patch itself, and returns its unknown and duplicate fields. A
// patch whose fields are not validated is not read here.
func (p *Patch) strict(into any) ([]error, error) {
	if p.validation == metav1.FieldValidationIgnore {
		return nil, nil
	}
	problems, err := kjson.UnmarshalStrict(p.body, into)
	if err != nil {
		err = undecodable(err)
	}
	return problems, err
}

func undecodable(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
}

func (p *Patch) applyJSON(current, into runtime.Object, decode Decode) (value func() string, problems []error, err error) {
	doc, err := json.Marshal(current)
	if err != nil {
		return nil, nil, err
	}
	change := p.operate
	if p.kind == types.MergePatchType {
		change = p.merge
	}
	patched, problems, err := change(doc)
	if err != nil {
		return nil, nil, err
	}
	more, err := decode(patched, into)
	if err != nil {
		return nil, nil, invalid(string(patched), err)
	}
	return func() string { return string(patched) }, append(problems, more...), nil
}

func (p *Patch) merge(doc []byte) (patched []byte, problems []error, err error) {
	if problems, err = p.strict(&map[string]any{}); err != nil {
		return nil, nil, err
	}
	patched, err = jsonpatch.MergePatch(doc, p.body)
	if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
		err = apierrors.NewBadRequest(err.Error())
	}
	return patched, problems, err
}

type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

// operate runs the operations of a JSON patch.
func (p *Patch) operate(doc []byte) (patched []byte, problems []error, err error) {
	if problems, err = p.strict(&[]jsonPatchOp{}); err != nil {
		return nil, nil, err
	}
	for i, problem := range problems {
		problems[i] = fmt.Errorf("json patch %w", problem)
	}
	ops, err := jsonpatch.DecodePatch(p.body)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	if len(ops) > maxOperations {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(ops)))
	}
	limitCopies()
	patched, err = calm(func() ([]byte, error) {
		patched, err := ops.Apply(doc)
		if err != nil {
			err = unprocessable(err)
		}
		return patched, err
	})
	return patched, problems, err
}

// calm calls a library that panics on some values of other kinds than it expects:
// that is the patch's fault.
func calm[T any](apply func() (T, error)) (patched T, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = unprocessable(fmt.Errorf("a value of the patch is missing, or not of the kind that its place asks for: %v", fault))
		}
	}()
	return apply()
}

// limitCopies has the library refuse patches that copy the object into itself
// again and again, each time doubling it.
var limitCopies = sync.OnceFunc(func() { atomic.StoreInt64(&jsonpatch.AccumulatedCopySizeLimit, maxCopied) })

func (p *Patch) applyStrategic(current, into runtime.Object) (value func() string, problems []error, err error) {
	merge := map[string]any{}
	if problems, err = kjson.UnmarshalStrict(p.body, &merge); err != nil {
		return nil, nil, apierrors.NewBadRequest(err.Error())
	}
	value = p.mergeText
	part, join := split(current, merge)
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(part)
	if err != nil {
		return nil, nil, err
	}
	patched, err := calm(func() (strategicpatch.JSONMap, error) { return strategicpatch.StrategicMergeMapPatch(doc, merge, into) })
	if err != nil {
		return nil, nil, strategicError(err)
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(patched, into, true)
	join(into)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		return value, append(problems, strict.Errors()...), nil
	}
	if err != nil {
		err = invalid(value(), err)
	}
	return value, problems, err
}

// mergeText is the patch as errors show it.
func (p *Patch) mergeText() string {
	merge := map[string]any{}
	_, _ = kjson.UnmarshalStrict(p.body, &merge) // it could be read before
	return fmt.Sprintf("%+v", merge)
}

// split returns an object with only those of the parts of current (metadata, spec,
// status) that a merge touches, as the way through maps and back is long; join puts
// copies of the others beside the result.
func split(current runtime.Object, merge map[string]any) (part runtime.Object, join func(into runtime.Object)) {
	for key := range merge {
		if strings.HasPrefix(key, "$") { // a directive about all parts
			return current, func(runtime.Object) {}
		}
	}
	from := reflect.ValueOf(current).Elem()
	some := reflect.New(from.Type())
	var others []int
	for i := range from.NumField() {
		name, _, _ := strings.Cut(from.Type().Field(i).Tag.Get("json"), ",")
		if _, touched := merge[name]; touched || name == "" { // "": the kind
			some.Elem().Field(i).Set(from.Field(i))
		} else {
			others = append(others, i)
		}
	}
	return some.Interface().(runtime.Object), func(into runtime.Object) {
		rest := reflect.ValueOf(current.DeepCopyObject()).Elem()
		for _, i := range others {
			reflect.ValueOf(into).Elem().Field(i).Set(rest.Field(i))
		}
	}
}

// invalid says that the patched object cannot be read.
func invalid(value string, err error) error {
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{
		field.Invalid(field.NewPath("patch"), value, err.Error()),
	})
}

func unprocessable(err error) error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}

func strategicError(err error) error {
	switch err {
	case mergepatch.ErrBadJSONDoc, mergepatch.ErrBadPatchFormatForPrimitiveList, mergepatch.ErrBadPatchFormatForRetainKeys,
		mergepatch.ErrBadPatchFormatForSetElementOrderList, mergepatch.ErrUnsupportedStrategicMergePatchFormat:
		return apierrors.NewBadRequest(err.Error())
	case mergepatch.ErrNoListOfLists, mergepatch.ErrPatchContentNotMatchRetainKeys:
		return unprocessable(err)
	}
	return err
}

// Intent is the body of a server-side apply: what one manager wants.
type Intent struct {
	isCBOR bool
	body   []byte
}

// NewIntent makes an Intent.
func NewIntent(kind types.PatchType, body []byte) (*Intent, error) {
	i := &Intent{kind == types.ApplyCBORPatchType, body}
	if i.isCBOR {
		_, err := i.Object()
		return i, err
	}
	if _, err := utilyaml.ToJSON(body); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error encoding patch: %v", err))
	}
	return i, nil
}

// Object reads it.
func (i *Intent) Object() (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	read := direct.Unmarshal
	if !i.isCBOR {
		read = readYAML
	}
	if err := read(i.body, &obj.Object); err != nil {
		return nil, undecodable(err)
	}
	return obj, nil
}

// readYAML reads with upstream's errors, and then again for what that loses: whole
// numbers stay whole, which rules of custom resources insist on.
func readYAML(body []byte, into any) error {
	if err := yaml.Unmarshal(body, into); err != nil {
		return err
	}
	asJSON, err := yaml.YAMLToJSON(body)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(asJSON, into)
}

// Duplicates is an error if a key is there twice, which CBOR has not at all.
func (i *Intent) Duplicates() error {
	if i.isCBOR {
		return nil
	}
	return yaml.UnmarshalStrict(i.body, &map[string]any{})
}
