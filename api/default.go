package api

// Defaults are functions DefaultX(*X), idempotent, that fill in what the author
// of an object left open, exactly as Kubernetes does. They run on every write.

// fill sets a field that is at its zero value.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// fillPtr sets a pointer field that is nil.
func fillPtr[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
