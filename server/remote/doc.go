// Package remote lets both faces look at any Kubernetes cluster: it does, beside
// the face and with the rights of a kubeconfig, what orrery's API server does for
// them in itself.
//
// A Source (source.go) feeds the hub of the row protocol, package stream, from
// lists and watches (watch.go). Objects of the kinds that we know become rows by
// our own printers, so that ages tick and all seven states are told; the server
// prints the others (rows.go), custom resources above all. No object is kept:
// what a hub has not yet sent is all there is of it. What the user may see is the
// server's to say, by access reviews whose answers hold for a short while.
//
// A Server (server.go) is the handler that the dashboard puts below its page: the
// rows, why something does not run (objects.go), what is used (usage.go), and
// everything else handed to the API server. What only orrery's own server can tell is answered with 404 and a
// sentence.
package remote
