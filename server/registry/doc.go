// Package registry is the table of kinds: one row for every kind of object
// that the API server serves, in one file per API group (core.go, apps.go).
//
// A row (Kind) says all there is to say about a kind: its names, where it is
// stored, how it is defaulted, prepared, validated and printed, and what
// subresources it has. One generic handler per verb, in package server, reads
// the row and serves the request; nothing is programmed per kind. Adding a kind
// is adding a row; a CustomResourceDefinition adds one at run time (Table.Put).
//
// What objects mean (defaults, validation) is in package api, since the node
// agent and others need it too; this package says which function goes where.
package registry
