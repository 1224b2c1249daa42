// Package server is the API server. routes.go is its table of contents: every
// URL, and the middleware in running order. One file per verb (get.go, list.go,
// watch.go, create.go, ...) holds one handler, top to bottom: parse, authorise,
// decode, admit, store, reply; one file per connecting subresource (exec.go,
// log.go, portforward.go, proxy.go). Errors leave through one function.
package server
