// Package openapi makes what a server says about itself: discovery documents,
// one by one and aggregated, and OpenAPI v2 and v3, all from the table of kinds.
//
// A kind's row is written down as routes (kinds.go), as if a router had one for
// each; what is about no kind has routes too (other.go). The builders of
// kube-openapi make documents of them, so that these are what upstream's server
// has, to the byte. The schemas of built-in kinds are in definitions.json.gz, which
// server/openapi/gen makes from the types' source (`make generate`); those of
// custom kinds come from their rows. Other servers' documents, as package server
// finds them, are merged in (remote.go). Documents are kept until what they are
// about changes.
//
// Documents.Serve answers requests; Get takes a path and an Accept header and
// gives bytes.
//
//go:generate go run -C ../.. ./server/openapi/gen
package openapi
