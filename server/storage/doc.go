// Package storage keeps API objects in etcd, as upstream's kube-apiserver does
// (same keys, same bytes), and answers reads and watches from a cache over it.
//
// The main flow: a Store holds one Collection per stored kind. A write (Create,
// Update, Delete) encodes the object and is one guarded transaction on the
// Backend (etcd.go; memory.go in tests). The collection's reflector (cache.go)
// follows the backend's own watch, decodes each change once, and puts it into
// the cache and the window of recent events (window.go). Get, List and Watch
// are served from there: consistently (they first learn the revision that etcd
// is at and wait until the cache has it), and with each object's encoded bytes
// made once and shared by everyone who asks.
//
// A Watcher is a position in the window. One that falls out of it gets
// 410 Expired, never silence; nobody waits for a slow one.
package storage
