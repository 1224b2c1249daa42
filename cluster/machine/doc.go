// Package machine makes further machines out of this one: each is a set of
// namespaces (mount, host name, IPC, processes, network) with a first process of
// its own, a data directory of its own where this machine has its, and a link to
// a bridge. What runs in it sees one machine, finds everything at the usual
// places, and cannot tell it from a real one but by the kernel they share.
//
// The main flow starts at Machine.Start; the first process begins with Enter.
package machine
