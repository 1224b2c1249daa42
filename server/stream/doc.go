// Package stream is the hub of the row protocol (api/stream.go): it feeds the
// dashboard and the console with rows over one websocket each.
//
// A request becomes a connection (connection.go): a reader, which is the
// request's own goroutine, a writer that flushes at most ten times a second,
// and one goroutine per subscription. A subscription (subscription.go) asks the
// authoriser what its user may see (scope.go), watches its kind through a
// Source, and merges what happens into a pending change (pending.go), from
// which the writer takes. A client that does not acknowledge is given nothing
// more; what is pending for it is thrown away when it grows too large or too
// old, and the client gets a fresh snapshot once it is back. So the memory of a
// connection is bounded, and nobody waits for a slow reader.
//
// All goroutines of a connection have ended when ServeHTTP returns. Where the
// rows come from, and what they say, is the Source's business.
package stream
