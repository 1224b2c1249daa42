// Package stream is the hub of the row protocol (api/stream.go): it feeds the
// dashboard and the console with rows over one websocket each.
package stream
