// Package openapi makes the discovery and OpenAPI documents from the table of
// kinds.
package openapi
