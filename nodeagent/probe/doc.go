// Package probe runs liveness, readiness and startup probes: one worker per
// probe of a running container. A worker probes at its period, counts successes
// and failures against the thresholds, and reports when its verdict changes;
// how a probe is made is in handlers.go.
//
// It leaves to others what a verdict leads to: the node agent restarts the
// container, or takes the pod out of its Services.
package probe
