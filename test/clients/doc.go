// Package clients runs programs that others have written for Kubernetes against a
// simulated cluster, as libraries and unmodified: helm, and an operator on
// controller-runtime. It is a module of its own, so that what they need stays out
// of the product's go.mod; make clients runs it.
package clients
