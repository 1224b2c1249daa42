// Package plugins holds the rules by which the scheduler filters and scores
// nodes, one file each; plugin.go has the contract and the ordered list.
package plugins
