package api

import (
	"encoding/json"
	"time"
)

// The row protocol: what the faces (dashboard and console) and the API server
// say to each other over one websocket at StreamPath. Every message is one JSON
// text frame. The client sends Asks, the server sends Tells; ID ties a Tell to
// the subscription that it answers.
//
// A subscription is a view: a kind's rows, or one whole object. Its life:
//
//	client: {"id":1,"op":"open","view":{"resource":"pods"}}
//	server: {"id":1,"type":"columns","columns":[...]}
//	server: {"id":1,"type":"rows","reset":true,"rows":[...],"revision":"812","live":true}
//	server: {"id":1,"type":"rows","rows":[{...}],"gone":["uid"],"revision":"815"}
//	client: {"id":1,"op":"ack","revision":"815"}
//	client: {"id":1,"op":"close"}
//
// Changes are merged per row and sent at most ten times a second. A client that
// does not ack gets no more deltas; when it is back it gets a reset. A reset
// replaces all rows: what is not in it is gone. A large reset comes in several
// messages, of which only the last has a revision; acks are for messages with a
// revision.

// StreamPath is where the API server serves the row protocol.
const StreamPath = "/orrery/v1/stream"

// StreamProtocol is the websocket subprotocol.
const StreamProtocol = "v1.rows.orrery.dev"

// Ask is a message from a face.
type Ask struct {
	ID   int    `json:"id"`
	Op   string `json:"op"` // open, close, ack
	View *View  `json:"view,omitempty"`
	// Revision is, with ack, the last one applied; with open, what the client
	// still has of the same view from an earlier connection: if the server can,
	// it sends only what changed since, else a reset.
	Revision string `json:"revision,omitempty"`
}

// View says what a subscription shows.
type View struct {
	Group    string `json:"group,omitempty"`
	Version  string `json:"version,omitempty"` // empty: the preferred one
	Resource string `json:"resource"`          // plural: "pods"
	// Namespaces restricts a namespaced kind; empty: all that the user may list.
	Namespaces []string `json:"namespaces,omitempty"`
	// Name makes it an object view: Tells carry the whole object, or none, with
	// its UID in Gone, when it was deleted, or none with Reset when there is none.
	Name          string `json:"name,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	// Columns are added to the kind's own.
	Columns []ViewColumn `json:"columns,omitempty"`
}

// ViewColumn is a column that shows what a JSONPath finds in each object, such
// as ".spec.nodeName", with or without kubectl's braces.
type ViewColumn struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// Tell is a message from the server. Type is columns, rows, object, error or
// ping.
type Tell struct {
	ID       int             `json:"id"`
	Type     string          `json:"type"`
	Revision string          `json:"revision,omitempty"`
	Columns  []RowColumn     `json:"columns,omitempty"`
	Reset    bool            `json:"reset,omitempty"`
	Rows     []Row           `json:"rows,omitempty"` // added or changed
	Gone     []string        `json:"gone,omitempty"` // UIDs
	Object   json.RawMessage `json:"object,omitempty"`
	// Live is false while the server's own view of the data may be behind.
	Live  bool   `json:"live,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// Error ends a subscription (ID set) or the connection (ID 0). Code is the HTTP
// status that the same request would have got; Retry says that asking again
// later makes sense.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Retry   bool   `json:"retry,omitempty"`
}

// RowColumn is a column of a view. Type is kubectl's (string, integer, number,
// boolean, date), or "age" for a time that a face shows as the duration since
// then in kubectl's words (HumanDuration). Priority above 0 is shown only wide.
type RowColumn struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Priority    int32  `json:"priority,omitempty"`
	Description string `json:"description,omitempty"`
}

// Row is one object as a view shows it. Cells has one value per column: string,
// number, bool, or RFC 3339 time for age columns.
type Row struct {
	UID       string    `json:"uid"`
	Namespace string    `json:"ns,omitempty"`
	Name      string    `json:"name"`
	Cells     []any     `json:"cells"`
	State     State     `json:"state"`
	Created   time.Time `json:"created"`
	// Labels let a face filter by label without another round trip.
	Labels map[string]string `json:"labels,omitempty"`
	// Owner is the controlling owner as "Kind/name".
	Owner string `json:"owner,omitempty"`
	// Failed is, of a pod of which some containers failed and others did not,
	// how many of how many did ("1/2"): kubectl's word tells of one of them only.
	Failed string `json:"failed,omitempty"`
}

// State is one of the seven states in which a face can show an object, each a
// glyph and a colour.
type State string

// The seven states.
const (
	StateOK          State = "ok"
	StateProgressing State = "progressing"
	StateWarning     State = "warning"
	StateError       State = "error"
	StateTerminating State = "terminating"
	StateDone        State = "done"
	StateUnknown     State = "unknown"
)
