// Package controllers compares what is asked for with what is there and acts on
// the difference, for ever: it is kube-controller-manager, as a client-go
// program that works against any Kubernetes API server.
//
// Run is the way in. all.go lists the controllers in order; harness.go runs each
// of them (queue, retries, panics, metrics); status.go is what the outside may
// see of that. Every controller has a file of its own, named after it, whose
// Sync reads the same way: get (from the shared caches of caches.go), decide (a
// pure function of what is wanted, what is observed and the time), act.
//
// Three things are shared by the controllers that own pods: pods.go (what a pod
// is worth: active, ready, available), owners.go (adopting and releasing by
// controller reference), and writes.go, which keeps a sync from deciding on a
// cache that has not yet seen the same controller's last act.
//
// All controllers read from one set of caches; each writes as a service account
// of its own (identity.go).
package controllers
