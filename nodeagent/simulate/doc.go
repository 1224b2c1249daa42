// Package simulate is a container runtime that only pretends: it implements the
// CRI interfaces in memory, for clusters of thousands of nodes on a laptop.
package simulate
