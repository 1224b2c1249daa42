// Package controllers compares what is asked for with what is there and acts on
// the difference, for ever. all.go lists the controllers in order, harness.go
// runs them (queue, retry, metrics), and each has a file of its own that reads:
// get, decide (a pure function), act.
package controllers
