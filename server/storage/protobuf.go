package storage

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Message is an object's protobuf message in two pieces, of which the second is
// shared with everyone.
type Message struct{ Head, Rest []byte }

// Len is the size of the message.
func (m Message) Len() int { return len(m.Head) + len(m.Rest) }

// errNoProtobuf says that a kind has no protobuf form.
var errNoProtobuf = errors.New("no protobuf form")

// messageForm is how an item's message is had: as a rule out of the value, by
// putting the revision in. Where the two differ in more than that (whoever wrote
// the value left out what is a default by now) the message is encoded, and kept.
type messageForm struct {
	once    sync.Once
	spliced bool
	encoded []byte
	err     error
}

// Protobuf returns the message of the stored version.
func (i *Item) Protobuf() (Message, error) {
	spliced, ok := i.splice()
	i.message.once.Do(func() {
		m, canEncode := i.decoded().obj.(interface{ Marshal() ([]byte, error) })
		if !canEncode {
			i.message.err = errNoProtobuf
			return
		}
		encoded, err := m.Marshal()
		if i.message.spliced = err == nil && ok && spliced.equals(encoded); !i.message.spliced {
			i.message.encoded, i.message.err = encoded, err
		}
	})
	if i.message.spliced {
		return spliced, nil
	}
	return Message{Rest: i.message.encoded}, i.message.err
}

func (m Message) equals(whole []byte) bool {
	return len(whole) == m.Len() && bytes.Equal(whole[:len(m.Head)], m.Head) && bytes.Equal(whole[len(m.Head):], m.Rest)
}

// Numbers of fields: of runtime.Unknown, of its TypeMeta, of every kind's message,
// of its metadata.
const (
	unknownType     = 1
	unknownRaw      = 2
	unknownEncoding = 3
	unknownContent  = 4
	typeVersion     = 1
	typeKind        = 2
	objectMeta      = 1
	resourceVersion = 6
)

// splice puts the revision into the message that the value holds. Its place is
// there already, empty, as all who write values encode strings that are not set.
func (i *Item) splice() (Message, bool) {
	unknown, ok := bytes.CutPrefix(i.value, envelope)
	if !ok {
		return Message{}, false
	}
	message, _, ok := find(unknown, unknownRaw)
	if !ok {
		return Message{}, false
	}
	fields, at, ok := find(message, objectMeta)
	if !ok || at != 0 {
		return Message{}, false
	}
	empty, at, ok := find(fields, resourceVersion)
	if !ok || len(empty) > 0 {
		return Message{}, false
	}
	const emptySize = 2 // tag and length
	version := strconv.FormatInt(i.Revision, 10)
	head := protowire.AppendTag(make([]byte, 0, at+len(version)+16), objectMeta, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(len(fields)+len(version)))
	head = append(head, fields[:at]...)
	head = appendString(head, resourceVersion, version)
	before := protowire.SizeTag(objectMeta) + protowire.SizeBytes(len(fields)) - len(fields)
	return Message{Head: head, Rest: message[before+at+emptySize:]}, true
}

// find returns the content of a message's field, and where the field begins.
func find(message []byte, number protowire.Number) (content []byte, at int, ok bool) {
	for at < len(message) {
		n, kind, size := protowire.ConsumeField(message[at:])
		switch {
		case size < 0:
			return nil, 0, false
		case n == number && kind == protowire.BytesType:
			_, _, tag := protowire.ConsumeTag(message[at:])
			content, _ = protowire.ConsumeBytes(message[at+tag:])
			return content, at, true
		}
		at += size
	}
	return nil, 0, false
}

// encodeProtobuf makes a value: prefix, and a runtime.Unknown with the message.
func encodeProtobuf(kind schema.GroupVersionKind, obj runtime.Object) ([]byte, error) {
	message, ok := obj.(interface {
		Size() int
		MarshalToSizedBuffer([]byte) (int, error)
	})
	if !ok {
		return nil, fmt.Errorf("%T: %w", obj, errNoProtobuf)
	}
	version, name := kind.ToAPIVersionAndKind()
	typeMeta := appendString(appendString(nil, typeVersion, version), typeKind, name)
	head := appendString(append(make([]byte, 0, 256), envelope...), unknownType, string(typeMeta))
	size := message.Size()
	head = protowire.AppendVarint(protowire.AppendTag(head, unknownRaw, protowire.BytesType), uint64(size))
	tail := appendString(appendString(nil, unknownEncoding, ""), unknownContent, "")
	value := make([]byte, len(head)+size, len(head)+size+len(tail))
	copy(value, head)
	_, err := message.MarshalToSizedBuffer(value[len(head):])
	return append(value, tail...), err
}

func appendString(b []byte, number protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), value)
}
