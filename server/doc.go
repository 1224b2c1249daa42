// Package server is the API server. routes.go is its table of contents: every
// URL, and the middleware in running order.
//
// A request that names an object becomes a call (call.go): what the URL said
// (info.go), the row of the table of kinds, the negotiated media type. One file
// per verb (get.go, list.go, watch.go, create.go, update.go, patch.go,
// delete.go) then reads top to bottom: parse, decode, admit, store, reply; one
// file per connecting subresource (exec.go, log.go, proxy.go) or per deed
// (eviction.go, binding.go, token.go). What all writes share is in write.go
// (metadata, admission, validation) and fields.go (field ownership; ownership.go and
// ownership_first.go where it needs no comparison by schema).
//
// Errors are *apierrors.StatusError from where the reason is known; handlers
// return them, and errors.go writes them, for all, in the type that the client
// asked for. Bytes leave through respond.go, where lists are spliced together
// from the encoded items that storage keeps.
//
// What objects mean is left to the rows of server/registry, who may do what to
// server/auth, what else must hold to server/admission.
package server
