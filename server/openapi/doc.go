// Package openapi makes what a server says about itself: discovery documents,
// one by one and aggregated, and OpenAPI v2 and v3, all from the table of kinds.
//
// The schemas of built-in kinds are in definitions.json.gz, which
// server/openapi/gen makes from the types' source (`make generate`); they are
// decoded at the first OpenAPI request. Those of custom kinds come from their
// rows. Documents are kept until the table changes.
//
// Package server serves them: Documents.Get takes a path and an Accept header
// and gives bytes.
//
//go:generate go run -C ../.. ./server/openapi/gen
package openapi
