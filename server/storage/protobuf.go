package storage

import (
	"bytes"
	"errors"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is an object's protobuf message in two pieces, of which the second is
// shared with everyone.
type Message struct{ Head, Rest []byte }

// Len is the size of the message.
func (m Message) Len() int { return len(m.Head) + len(m.Rest) }

// errNoProtobuf says that a kind has no protobuf form.
var errNoProtobuf = errors.New("no protobuf form")

// protobufForm remembers how an item's message is had: as a rule out of the value,
// by putting the revision in. Where the two differ in more than that (whoever
// wrote the value left out what is a default by now) the message is encoded, and
// kept.
type protobufForm struct {
	once    sync.Once
	spliced bool
	encoded []byte
	err     error
}

// Protobuf returns the message of the stored version.
func (i *Item) Protobuf() (Message, error) {
	spliced, ok := i.splice()
	i.message.once.Do(func() {
		m, canEncode := i.Object().(interface{ Marshal() ([]byte, error) })
		if !canEncode {
			i.message.err = errNoProtobuf
			return
		}
		i.message.encoded, i.message.err = m.Marshal()
		if ok && i.message.err == nil && spliced.equals(i.message.encoded) {
			i.message.spliced, i.message.encoded = true, nil
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

// Numbers of fields: of runtime.Unknown, of every kind's message, of its metadata.
const (
	unknownRaw      = 2
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
	head = protowire.AppendString(protowire.AppendTag(head, resourceVersion, protowire.BytesType), version)
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
