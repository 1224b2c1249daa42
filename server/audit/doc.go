// Package audit records who did what, by upstream's policy file and in its format
// (audit.k8s.io/v1), in a file, at a webhook, or both.
//
// An Event lives as long as its request (event.go). Begin asks the policy which
// level it is recorded at, and says that the request has been received; later
// stages (response started, complete, panic) go out as they are reached. The verbs
// leave request and response objects in it if the level wants them, and anybody
// may add annotations (Annotate). Each stage is encoded once, and every sink gets
// the bytes: the file (log.go), the webhook (webhook.go), in place or in batches
// (batch.go).
//
// Which part of a request is what, is the server's to say; the package knows
// nothing about HTTP but the request's own words.
package audit
