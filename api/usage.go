package api

import corev1 "k8s.io/api/core/v1"

// UsagePath is where the API server tells what pods and nodes use, beside what
// they asked for: a GET answers a Usage of what the user may list. The
// parameter "namespace", which may repeat, narrows the pods.
const UsagePath = "/orrery/v1/usage"

// Usage is one look at what is used.
type Usage struct {
	Pods  []PodUsage  `json:"pods"`
	Nodes []NodeUsage `json:"nodes"`
	// Error says why some of what is used may be missing.
	Error string `json:"error,omitempty"`
}

// Amounts are of CPU, in thousandths of a core, and memory, in bytes.
type Amounts struct {
	CPU    int64 `json:"cpu"`
	Memory int64 `json:"memory"`
}

// AmountsOf are those in a list of resources.
func AmountsOf(l corev1.ResourceList) Amounts {
	return Amounts{CPU: l.Cpu().MilliValue(), Memory: l.Memory().Value()}
}

func (a *Amounts) Add(more Amounts) { a.CPU, a.Memory = a.CPU+more.CPU, a.Memory+more.Memory }

// PodUsage is of one pod that has a node and has not ended.
type PodUsage struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Used      *Amounts `json:"used,omitempty"` // nil: not measured
	Requests  Amounts  `json:"requests"`
	Limits    Amounts  `json:"limits"` // zero: none
}

// NodeUsage is of one node; Requests and Limits are the sums over its pods.
type NodeUsage struct {
	Name        string   `json:"name"`
	Used        *Amounts `json:"used,omitempty"`
	Allocatable Amounts  `json:"allocatable"`
	Requests    Amounts  `json:"requests"`
	Limits      Amounts  `json:"limits"`
}
