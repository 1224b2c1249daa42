// Package scheduler decides which node each pod runs on. It is a client-go
// program: it watches pods and nodes, and binds through the API server; it never
// runs anything itself. The loop is in scheduler.go (Run); plugins do the
// filtering and scoring.
package scheduler
