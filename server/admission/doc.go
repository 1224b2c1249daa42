// Package admission decides whether a write may be stored, and completes it.
// chain.go has the contract; all.go lists the plugins in running order; each has
// a file of its own.
package admission
