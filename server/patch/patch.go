package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/mergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxOperations is how many operations a JSON patch may have; maxCopied bounds
// what its copy operations may add, in bytes.
const (
	maxOperations = 10000
	maxCopied     = 3 * 1024 * 1024
)

// Patch is a parsed patch. It may be applied any number of times.
type Patch struct {
	kind  types.PatchType
	raw   []byte
	ops   jsonpatch.Patch // of a JSON patch
	merge map[string]any  // of a strategic merge patch
	// Problems are unknown and duplicate fields in the patch itself, which
	// strict validation refuses and warnings tell.
	Problems []error
}

// Parse reads a patch of a type other than apply.
func Parse(kind types.PatchType, body []byte) (*Patch, error) {
	p := &Patch{kind: kind, raw: body}
	switch kind {
	case types.JSONPatchType:
		return p, p.parseOperations()
	case types.MergePatchType:
		var err error
		if p.Problems, err = kjson.UnmarshalStrict(body, &map[string]any{}); err != nil {
			return nil, apierrors.NewBadRequest("invalid JSON patch")
		}
		return p, nil
	case types.StrategicMergePatchType:
		var err error
		p.merge = map[string]any{}
		if p.Problems, err = kjson.UnmarshalStrict(body, &p.merge); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return p, nil
	}
	return nil, fmt.Errorf("unknown Content-Type header for patch: %v", kind)
}

func undecodable(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
}

type jsonPatchOp struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	From  string `json:"from"`
	Value any    `json:"value"`
}

func (p *Patch) parseOperations() error {
	var ops []jsonPatchOp
	problems, err := kjson.UnmarshalStrict(p.raw, &ops)
	if err != nil {
		return undecodable(err)
	}
	for _, problem := range problems {
		p.Problems = append(p.Problems, fmt.Errorf("json patch %w", problem))
	}
	if p.ops, err = jsonpatch.DecodePatch(p.raw); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if len(p.ops) > maxOperations {
		return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("The allowed maximum operations in a JSON patch is %d, got %d", maxOperations, len(p.ops)))
	}
	return nil
}

// Apply makes the patched object out of current, into an empty object of the
// same type, and returns the unknown and duplicate fields that it found.
// current is not changed.
func (p *Patch) Apply(current, into runtime.Object) (problems []error, err error) {
	if p.kind == types.StrategicMergePatchType {
		return p.applyStrategic(current, into)
	}
	doc, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	patched, err := p.applyJSON(doc)
	if err != nil {
		return nil, err
	}
	if u, ok := into.(*unstructured.Unstructured); ok {
		content := map[string]any{}
		problems, err = kjson.UnmarshalStrict(patched, &content)
		u.Object = content
	} else {
		problems, err = kjson.UnmarshalStrict(patched, into)
	}
	if err != nil {
		return nil, invalid(string(patched), err)
	}
	return p.with(problems), nil
}

func (p *Patch) applyJSON(doc []byte) ([]byte, error) {
	if p.kind == types.MergePatchType {
		patched, err := jsonpatch.MergePatch(doc, p.raw)
		if errors.Is(err, jsonpatch.ErrBadJSONPatch) {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return patched, err
	}
	if grows(p.ops, len(doc)) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxCopied))
	}
	patched, err := p.ops.Apply(doc)
	if err != nil {
		return nil, unprocessable(err)
	}
	return patched, nil
}

// grows finds patches that copy the object into itself again and again, each
// time doubling it.
func grows(ops jsonpatch.Patch, size int) bool {
	for _, op := range ops {
		if op.Kind() == "copy" {
			size *= 2
		}
		if size > maxCopied*64 {
			return true
		}
	}
	return false
}

func (p *Patch) applyStrategic(current, into runtime.Object) ([]error, error) {
	if _, ok := current.(runtime.Unstructured); ok {
		return nil, apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "", schema.GroupResource{}, "", "strategic merge patch is not supported for custom resources", 0, false)
	}
	doc, err := runtime.DefaultUnstructuredConverter.ToUnstructured(current)
	if err != nil {
		return nil, err
	}
	// The merge takes parts of the patch into the result: give it its own copy.
	merge := runtime.DeepCopyJSON(p.merge)
	patched, err := strategicpatch.StrategicMergeMapPatch(doc, merge, into)
	if err != nil {
		return nil, strategicError(err)
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(patched, into, true)
	if err == nil {
		return p.with(nil), nil
	}
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		return p.with(strict.Errors()), nil
	}
	return nil, invalid(fmt.Sprintf("%+v", p.merge), err)
}

// with adds the patch's own problems, which come first.
func (p *Patch) with(problems []error) []error {
	return append(append([]error(nil), p.Problems...), problems...)
}

// Strict is the error for problems under strict validation.
func (p *Patch) Strict(into runtime.Object, problems []error) error {
	value := fmt.Sprintf("%+v", p.merge)
	if p.kind != types.StrategicMergePatchType {
		doc, err := json.Marshal(into)
		if err != nil {
			return err
		}
		value = string(doc)
	}
	return invalid(value, runtime.NewStrictDecodingError(problems))
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

// Intent reads the body of a server-side apply: YAML, of which JSON is a part.
// problems are duplicate keys.
func Intent(body []byte) (intent *unstructured.Unstructured, problems []error, err error) {
	intent = &unstructured.Unstructured{Object: map[string]any{}}
	asJSON, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, nil, undecodable(err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(asJSON, &intent.Object); err != nil {
		return nil, nil, undecodable(err)
	}
	if intent.Object == nil {
		return nil, nil, undecodable(errors.New("the body is empty"))
	}
	if err := yaml.UnmarshalStrict(body, &map[string]any{}); err != nil {
		problems = []error{err}
	}
	return intent, problems, nil
}
