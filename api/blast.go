package api

// BlastPath is where the API server tells what goes with objects that are to be
// deleted, or with nodes that are to be drained: a POST of a BlastOf answers a Blast.
const BlastPath = OwnPrefix + "v1/blast"

// BlastOf is what is asked about.
type BlastOf struct {
	Objects []ObjectRef `json:"objects"`
	Orphan  bool        `json:"orphan,omitempty"` // what they control stays
	Drain   bool        `json:"drain,omitempty"`  // nodes: their pods are evicted, and they stay
}

// Blast is what goes along, as far as the user may read it.
type Blast struct {
	// Findings are in reading order: what goes, what it is missed by, what is lost
	// with it. Broken is what does not come back, or stands still.
	Findings []Finding `json:"findings"`
	// Evicted are the pods that a drain evicts.
	Evicted []ObjectRef `json:"evicted,omitempty"`
	// Users are what names or mounts the objects, by workload.
	Users []ObjectRef `json:"users,omitempty"`
}
