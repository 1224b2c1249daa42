package api

// MergePath is where an edit of an object is merged into what the object has become
// since: a POST of a MergeOf answers a Merged. It reads and writes nothing.
const MergePath = OwnPrefix + "v1/merge"

// MergeOf is an edit: the object as it was before and after it, and as it is now.
type MergeOf struct {
	Base   any `json:"base"`
	Mine   any `json:"mine"`
	Theirs any `json:"theirs"`
	// Choices settle conflicts, by their paths.
	Choices map[string]Side `json:"choices,omitempty"`
}

// Side is one of the two who changed a field.
type Side string

// The sides of a conflict.
const (
	Mine   Side = "mine"
	Theirs Side = "theirs"
)

// Merged is the object with the changes of both sides.
type Merged struct {
	Object    any        `json:"object"`
	Conflicts []Conflict `json:"conflicts"`
}

// Conflict is a field that both sides changed, differently. A side without the field
// is nil; one that has it as null points to nil.
type Conflict struct {
	Path   string `json:"path"`
	Base   *any   `json:"base,omitempty"`
	Mine   *any   `json:"mine,omitempty"`
	Theirs *any   `json:"theirs,omitempty"`
}
