// Package storage keeps API objects in etcd, as upstream's kube-apiserver does
// (same keys, same bytes), and answers reads and watches from a cache over it.
//
// The main flow: a Store holds one Collection per stored kind. A write (Create,
// Update, Delete in write.go) encodes the object and is one guarded transaction
// on the Backend (etcd.go; memory.go in tests). The store follows the backend's
// own watch (follow.go), one for all kinds, and feeds each change to its
// collection: the cache (cache.go) and the window of recent changes
// (window.go). Get and List (read.go) and Watch (watch.go) are served from
// there: consistently (they first learn the revision that etcd is at and wait
// until the cache has it), and with each object's encoded bytes made once and
// shared by everyone who asks.
//
// A Watcher is a position in the window. One that falls out of it gets
// 410 Expired, never silence; nobody waits for a slow one.
//
// Left to the callers: defaulting, validation, conversion between versions,
// finalizers and graceful deletion. DESIGN.md says why it is built so.
package storage
