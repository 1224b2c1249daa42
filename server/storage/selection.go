package storage

// matches reports whether the selection picks an object.
func (s *Selection) matches(i *Item) bool {
	return (s.Namespace == "" || s.Namespace == i.Namespace) &&
		(s.Name == "" || s.Name == i.Name) &&
		(s.Labels == nil || s.Labels.Empty() || s.Labels.Matches(i.Labels)) &&
		(s.Fields == nil || s.Fields.Empty() || s.Fields.Matches(i.Fields))
}

// everything reports whether nothing but the namespace restricts it.
func (s *Selection) everything() bool {
	return s.Name == "" && (s.Labels == nil || s.Labels.Empty()) && (s.Fields == nil || s.Fields.Empty())
}

// name is the only name that can match, or "".
func (s *Selection) name() string {
	if s.Name != "" || s.Fields == nil {
		return s.Name
	}
	name, _ := s.Fields.RequiresExactMatch("metadata.name")
	return name
}

// namespace is the only namespace that can match, or "".
func (s *Selection) namespace() string {
	if s.Namespace != "" || s.Fields == nil {
		return s.Namespace
	}
	namespace, _ := s.Fields.RequiresExactMatch("metadata.namespace")
	return namespace
}

// exact is a field outside of metadata that must have one value: a pod's node.
func (s *Selection) exact() (field, value string, ok bool) {
	if s.Fields == nil {
		return "", "", false
	}
	for _, r := range s.Fields.Requirements() {
		if r.Field == "metadata.name" || r.Field == "metadata.namespace" {
			continue
		}
		if value, ok := s.Fields.RequiresExactMatch(r.Field); ok {
			return r.Field, value, true
		}
	}
	return "", "", false
}

// topic is the narrowest field and value that every selected object has; ok is
// false if there is none.
func (s *Selection) topic() (field, value string, ok bool) {
	if name := s.name(); name != "" {
		return "metadata.name", name, true
	}
	if field, value, ok := s.exact(); ok {
		return field, value, true
	}
	if namespace := s.namespace(); namespace != "" {
		return "metadata.namespace", namespace, true
	}
	return "", "", false
}
