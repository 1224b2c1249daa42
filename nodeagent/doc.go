// Package nodeagent is the kubelet: it runs the pods that are bound to its node.
// A worker per pod (worker.go) observes the runtime, asks pod_life.go (pure) for
// the next step, does it, and reports. Nothing is remembered between steps, so
// an agent that was killed carries on where the last one stopped.
package nodeagent
