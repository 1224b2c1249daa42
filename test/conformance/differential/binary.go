package differential

import (
	"encoding/json"
	"fmt"
	"strings"

	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/client-go/kubernetes/scheme"
)

// binary decodes protobuf and CBOR to what the same would be in JSON.
func binary(contentType string, body []byte) any {
	var v any
	if strings.Contains(contentType, "cbor") {
		if err := cbor.Unmarshal(body, &v); err != nil {
			return fmt.Sprintf("%d bytes: %v", len(body), err)
		}
	} else {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return fmt.Sprintf("not decoded: %v", err)
		}
		v = object
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	var decoded any
	if err := json.Unmarshal(text, &decoded); err != nil {
		return err.Error()
	}
	return mask("", decoded)
}
