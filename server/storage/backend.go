package storage

import (
	"context"
	"errors"
	"time"
)

// Backend is a key-value store with etcd's semantics: one revision counter for
// all keys, reads of the past until it is compacted, and watches that miss
// nothing. Etcd and Memory are the two of them; suite_test.go holds both to
// what is said here.
type Backend interface {
	// Get reads one key linearizably; kv is nil if there is none. revision is
	// that of the whole store at the time.
	Get(ctx context.Context, key string) (kv *KV, revision int64, err error)
	// List reads the keys in [start, end), ordered, as they were at a revision
	// (0: now), at most limit of them (0: all). It fails with ErrCompacted or
	// ErrFuture if the store does not have that revision.
	List(ctx context.Context, start, end string, revision, limit int64) (Range, error)
	// Put writes a key if its mod revision is guard (0: if it does not exist).
	// lease 0 is none.
	Put(ctx context.Context, key string, value []byte, guard, lease int64) (Outcome, error)
	// Delete removes a key if its mod revision is guard.
	Delete(ctx context.Context, key string, guard int64) (Outcome, error)
	// Watch calls sink with all changes to keys that start with prefix, from
	// revision from on, in order. rev is where the watch has got to: every
	// change up to it was delivered. Calls without changes are progress
	// notifications. The changes of one revision come in one call. Watch
	// blocks until ctx ends or the watch breaks; ErrCompacted says that it
	// cannot be had from there.
	Watch(ctx context.Context, prefix string, from int64, sink func(changes []Change, rev int64)) error
	// History reads the changes to keys that start with prefix in the
	// revisions from to to, at most limit of them, with the state before each.
	// It fails with ErrCompacted if it does not have them all.
	History(ctx context.Context, prefix string, from, to int64, limit int) ([]Past, error)
	// RequestProgress makes running watches report how far they are.
	RequestProgress(ctx context.Context) error
	// Revision is the current revision, read linearizably.
	Revision(ctx context.Context) (int64, error)
	// Compact forgets what was before a revision.
	Compact(ctx context.Context, revision int64) error
	// Grant makes a lease: keys written with it vanish when it ends.
	Grant(ctx context.Context, ttl time.Duration) (lease int64, err error)
}

// KV is a key at one revision.
type KV struct {
	Key         string
	Value       []byte
	Create, Mod int64 // revisions of its creation and of its last write
}

// Range is the answer to List.
type Range struct {
	KVs      []KV
	Count    int64 // of all keys in the range, beyond the limit too
	Revision int64 // at which it was read
}

// Outcome is the answer to a guarded write.
type Outcome struct {
	Done     bool
	Revision int64 // of the write, if it was done
	Current  *KV   // if it was not: what is there instead (nil: nothing)
}

// Change is one write as a watch sees it. Of a deleted key there is no value,
// and Mod is the revision of the deletion.
type Change struct {
	KV
	Deleted bool
}

// Past is a change together with what was there before (nil: nothing).
type Past struct {
	Change
	Prev *KV
}

// What Backends answer when they do not have a revision.
var (
	ErrCompacted = errors.New("required revision has been compacted")
	ErrFuture    = errors.New("required revision is a future revision")
)

// after is the end of the range of keys that start with prefix.
func after(prefix string) string {
	end := []byte(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return string(end[:i+1])
		}
	}
	return "\x00"
}
