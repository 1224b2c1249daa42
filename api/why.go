package api

import "time"

// WhyPath is where the API server tells why something is not running. A GET with
// group, resource, namespace and name answers a Why; one without a name answers
// the Troubles of the namespaces that it names (none: of all).
const WhyPath = "/orrery/v1/why"

// Why is the chain of evidence from what a user asked for to pods that serve. It
// stops where it breaks.
type Why struct {
	Object ObjectRef `json:"object"`
	State  WhyState  `json:"state"` // of the chain: ok, waiting or broken
	Links  []WhyLink `json:"links"` // in the order in which they are passed
}

// Troubles is what does not run, or not as it should.
type Troubles struct {
	Items []Trouble `json:"items"` // worst first
	// More counts those that were left out.
	More int `json:"more,omitempty"`
	// Unread are the lists that the user may not read, so that there may be
	// troubles which are not told.
	Unread []Finding `json:"unread,omitempty"`
}

// Trouble is the first link of a workload's chain that is not ok.
type Trouble struct {
	Object  ObjectRef `json:"object"`
	State   WhyState  `json:"state"`
	Link    string    `json:"link"`
	Finding Finding   `json:"finding"`
	Since   time.Time `json:"since"` // of the evidence, or else the object's creation
}

// WhyState is how a link of the chain stands.
type WhyState string

// The states of links.
const (
	WhyOK         WhyState = "ok"
	WhyWaiting    WhyState = "waiting"
	WhyBroken     WhyState = "broken"
	WhyNotReached WhyState = "notReached"
	WhyUnknown    WhyState = "unknown" // the evidence may not be read
)

// WhyLink is one link of the chain: quota, admission, controller, scheduling,
// volumes, sandbox, image, start, probes, endpoints, and some kinds' own.
type WhyLink struct {
	Name     string    `json:"name"`
	State    WhyState  `json:"state"`
	Findings []Finding `json:"findings,omitempty"` // worst first
}

// Finding is one thing that was found out. What it says in a language is in the
// catalogue of the face that shows it, under Code, with Params filled in.
type Finding struct {
	State    WhyState          `json:"state"`
	Code     string            `json:"code"`
	Params   map[string]string `json:"params,omitempty"`
	Evidence []Evidence        `json:"evidence,omitempty"`
	Mends    []Mend            `json:"mends,omitempty"`
	// Pods are those that it is about, if it is about pods: some of them, and
	// how many there are.
	Pods     []ObjectRef `json:"pods,omitempty"`
	PodCount int         `json:"podCount,omitempty"`
}

// Mend is a way to put something right. Command does it, if a command can.
type Mend struct {
	Code    string            `json:"code"`
	Params  map[string]string `json:"params,omitempty"`
	Command string            `json:"command,omitempty"`
}

// Evidence is where a finding was read, in the cluster's own words.
type Evidence struct {
	Object ObjectRef  `json:"object"`
	From   string     `json:"from"` // "event FailedCreate", "condition PodScheduled", "status.used"
	Words  string     `json:"words,omitempty"`
	Time   *time.Time `json:"time,omitempty"`
}

// ObjectRef names an object. Resource is empty where only the kind is known.
type ObjectRef struct {
	Group     string `json:"group,omitempty"`
	Resource  string `json:"resource,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}
