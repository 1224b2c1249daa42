// Package probe runs liveness, readiness and startup probes: one worker per
// probe.
package probe
