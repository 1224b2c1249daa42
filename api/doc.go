// Package api says what objects mean, for every other package: defaults and
// validation of the built-in kinds, arithmetic on pods (requests, QoS), the
// words of kubectl's columns, our own kinds, and the messages of the row
// protocol (stream.go). It is a leaf: no I/O, no goroutines, no import of ours.
package api
