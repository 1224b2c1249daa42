package api

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// The protobuf form of APIService, which Go clients speak by default. Numbers are
// those of upstream's messages; as there, fields that are not pointers are
// written even when they are empty.

// message writes and reads the fields of one message.
type message []byte

func (m message) bytes(number protowire.Number, value []byte) message {
	return protowire.AppendBytes(protowire.AppendTag(m, number, protowire.BytesType), value)
}

func (m message) text(number protowire.Number, value string) message {
	return m.bytes(number, []byte(value))
}

func (m message) number(number protowire.Number, value int64) message {
	return protowire.AppendVarint(protowire.AppendTag(m, number, protowire.VarintType), uint64(value))
}

// each calls f with every field that is a number or a run of bytes, which is all
// that there is here.
func (m message) each(f func(number protowire.Number, value []byte, n int64) error) error {
	for len(m) > 0 {
		number, kind, size := protowire.ConsumeTag(m)
		if size < 0 {
			return protowire.ParseError(size)
		}
		m = m[size:]
		var value []byte
		var n uint64
		switch kind {
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(m)
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(m)
		default:
			size = protowire.ConsumeFieldValue(number, kind, m)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		m = m[size:]
		if err := f(number, value, int64(n)); err != nil {
			return err
		}
	}
	return nil
}

// Marshal is the protobuf form.
func (a *APIService) Marshal() ([]byte, error) {
	metadata, err := a.ObjectMeta.Marshal()
	if err != nil {
		return nil, fmt.Errorf("metadata of an APIService: %w", err)
	}
	status, err := a.Status.message()
	if err != nil {
		return nil, err
	}
	return message{}.bytes(1, metadata).bytes(2, a.Spec.message()).bytes(3, status), nil
}

func (s *APIServiceSpec) message() message {
	m := message{}
	if s.Service != nil {
		service := message{}.text(1, s.Service.Namespace).text(2, s.Service.Name)
		if s.Service.Port != nil {
			service = service.number(3, int64(*s.Service.Port))
		}
		m = m.bytes(1, service)
	}
	m = m.text(2, s.Group).text(3, s.Version).number(4, int64(protowire.EncodeBool(s.InsecureSkipTLSVerify)))
	if s.CABundle != nil {
		m = m.bytes(5, s.CABundle)
	}
	return m.number(7, int64(s.GroupPriorityMinimum)).number(8, int64(s.VersionPriority))
}

func (s *APIServiceStatus) message() (message, error) {
	m := message{}
	for i := range s.Conditions {
		c := &s.Conditions[i]
		when, err := c.LastTransitionTime.Marshal()
		if err != nil {
			return nil, fmt.Errorf("condition of an APIService: %w", err)
		}
		m = m.bytes(1, message{}.text(1, c.Type).text(2, c.Status).bytes(3, when).text(4, c.Reason).text(5, c.Message))
	}
	return m, nil
}

// Unmarshal reads the protobuf form.
func (a *APIService) Unmarshal(data []byte) error {
	return message(data).each(func(number protowire.Number, value []byte, _ int64) error {
		switch number {
		case 1:
			return a.ObjectMeta.Unmarshal(value)
		case 2:
			return a.Spec.read(value)
		case 3:
			return a.Status.read(value)
		}
		return nil
	})
}

func (s *APIServiceSpec) read(m message) error {
	return m.each(func(number protowire.Number, value []byte, n int64) error {
		switch number {
		case 1:
			s.Service = &ServiceReference{}
			return s.Service.read(value)
		case 2:
			s.Group = string(value)
		case 3:
			s.Version = string(value)
		case 4:
			s.InsecureSkipTLSVerify = n != 0
		case 5:
			s.CABundle = append([]byte{}, value...)
		case 7:
			s.GroupPriorityMinimum = int32(n)
		case 8:
			s.VersionPriority = int32(n)
		}
		return nil
	})
}

func (s *ServiceReference) read(m message) error {
	return m.each(func(number protowire.Number, value []byte, n int64) error {
		switch number {
		case 1:
			s.Namespace = string(value)
		case 2:
			s.Name = string(value)
		case 3:
			port := int32(n)
			s.Port = &port
		}
		return nil
	})
}

func (s *APIServiceStatus) read(m message) error {
	return m.each(func(number protowire.Number, value []byte, _ int64) error {
		if number != 1 {
			return nil
		}
		var c APIServiceCondition
		if err := c.read(value); err != nil {
			return err
		}
		s.Conditions = append(s.Conditions, c)
		return nil
	})
}

func (c *APIServiceCondition) read(m message) error {
	return m.each(func(number protowire.Number, value []byte, _ int64) error {
		switch number {
		case 1:
			c.Type = string(value)
		case 2:
			c.Status = string(value)
		case 3:
			return c.LastTransitionTime.Unmarshal(value)
		case 4:
			c.Reason = string(value)
		case 5:
			c.Message = string(value)
		}
		return nil
	})
}
