package differential

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// binary decodes protobuf and CBOR to what the same would be in JSON.
func binary(contentType string, body []byte) any {
	var v any
	if strings.Contains(contentType, "cbor") {
		if err := direct.Unmarshal(body, &v); err != nil {
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

// binaryEvents are the events of a watch in protobuf or CBOR.
func binaryEvents(contentType string, body []byte) any {
	var framer runtime.Framer = protobufserializer.LengthDelimitedFramer
	if strings.Contains(contentType, "cbor") {
		framer = cbor.NewFramer()
	}
	var events []any
	frames, frame := framer.NewFrameReader(io.NopCloser(bytes.NewReader(body))), make([]byte, len(body)+1)
	for {
		size, err := frames.Read(frame)
		if err == io.EOF {
			return events
		}
		if err != nil {
			return append(events, err.Error())
		}
		if event := binaryEvent(contentType, frame[:size]); !timed(event) {
			events = append(events, event)
		}
	}
}

func binaryEvent(contentType string, frame []byte) any {
	if strings.Contains(contentType, "cbor") {
		return binary(contentType, frame)
	}
	var e metav1.WatchEvent
	if err := e.Unmarshal(frame); err != nil {
		return err.Error()
	}
	return map[string]any{"type": e.Type, "object": binary(contentType, e.Object.Raw)}
}
