// Package nodeagent is the kubelet: it runs the pods that are bound to its node.
//
// A pod comes in from the API (pods.go) or from a manifest file (static.go) and
// gets a worker (worker.go). The worker looks at what the runtime has of the
// pod (observe.go), asks pod_life.go (pure) for the next step, takes it
// (steps.go, sandbox.go, container.go), and looks again, until there is nothing
// to do; then it has no goroutine until something wakes it: a change of the
// pod, an event of the runtime, a probe's verdict, or a time it asked for.
// After each look the pod's status is worked out (status.go, pure) and, if it
// changed, written to the API (report.go).
//
// What fills a pod's volumes is followed, so that changes arrive (follow.go,
// trust.go, podcert.go). What a pod was promised may differ from what it asks for
// while it is resized (allotment.go, resize.go). Images are pulled once for all
// pods that could have pulled them (images.go, credentials.go, pullrecords.go).
//
// Nothing that counts is remembered between steps: attempts, back-off and
// hashes are annotations on containers, promises a file beside the volumes, so an
// agent that was killed carries on where it stopped, and pods never notice.
//
// Beside the workers run: the node's object and lease (node.go, lease.go),
// housekeeping (house.go, imagegc.go, logs.go), eviction (eviction.go), and the
// HTTP API on port 10250 (server.go, stream.go, stats.go). agent.go lists them.
//
// It leaves to others: the runtime behind CRI (runtime, simulate), volumes and
// probes (volume, probe), and Services (proxy).
package nodeagent
