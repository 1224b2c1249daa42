package api

// MapPath is where the API server tells what the architecture map shows beyond
// Kubernetes objects: a GET answers a Map.
const MapPath = "/orrery/v1/map"

// Map is the health of the control plane as the API server that answers sees
// it. Nodes, pods and leases are objects: faces read them from the stream.
type Map struct {
	Version    string       `json:"version"` // of the answering API server
	Components []Component  `json:"components"`
	Etcd       []EtcdMember `json:"etcd"`
	// EtcdError says why Etcd may be short or empty.
	EtcdError string `json:"etcdError,omitempty"`
}

// Component is a part of the control plane, by the name that it has in
// componentstatuses: "scheduler", "controller-manager", "etcd-0".
type Component struct {
	Name    string `json:"name"`
	Healthy bool   `json:"healthy"`
	Version string `json:"version,omitempty"` // if it tells
	Message string `json:"message,omitempty"`
}

// EtcdMember is one member of etcd. What only the member itself can tell is
// zero, and Error set, when it does not answer. Raft numbers and revisions are
// small enough for JSON's doubles for the next centuries; IDs are not, so they
// are hexadecimal strings, as etcdctl prints them.
type EtcdMember struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	PeerURL   string `json:"peerURL"`
	ClientURL string `json:"clientURL"`
	Version   string `json:"version,omitempty"`
	Leader    bool   `json:"leader,omitempty"`
	Learner   bool   `json:"learner,omitempty"`
	Term      uint64 `json:"term,omitempty"`
	Index     uint64 `json:"index,omitempty"`   // committed
	Applied   uint64 `json:"applied,omitempty"` // to its database
	Revision  int64  `json:"revision,omitempty"`
	Size      int64  `json:"size,omitempty"`  // bytes on disk
	InUse     int64  `json:"inUse,omitempty"` // bytes of those in use
	Quota     int64  `json:"quota,omitempty"` // bytes at which etcd refuses writes
	Error     string `json:"error,omitempty"`
}
