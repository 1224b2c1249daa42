package controllers

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// writes remembers what the syncs of a controller have changed and the cache
// may not show yet. Without it a ReplicaSet that has just made three pods would
// look in a stale cache, count none, and make three more.
type writes struct {
	mu    sync.Mutex
	byKey map[string][]write
}

type write struct {
	store   cache.Indexer
	object  metav1.Object
	deleted bool
	at      time.Time
}

// oldestWrite bounds how long a lost event can hold up a key.
const oldestWrite = 5 * time.Minute

// pause is the wait before another look when the cache lags; the event that is
// waited for normally wakes the key sooner.
const pause = time.Second

// made notes that obj, as the server returned it, was created or changed for key.
func (w *writes) made(key string, store cache.Indexer, obj metav1.Object) {
	w.note(key, write{store: store, object: obj, at: time.Now()})
}

// deleted notes that obj was deleted for key.
func (w *writes) deleted(key string, store cache.Indexer, obj metav1.Object) {
	w.note(key, write{store: store, object: obj, deleted: true, at: time.Now()})
}

func (w *writes) note(key string, one write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKey == nil {
		w.byKey = map[string][]write{}
	}
	w.byKey[key] = append(w.byKey[key], one)
}

// seen says whether the caches show all that was written for key.
func (w *writes) seen(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	var left []write
	for _, one := range w.byKey[key] {
		if !one.shows() && time.Since(one.at) < oldestWrite {
			left = append(left, one)
		}
	}
	if len(left) == 0 {
		delete(w.byKey, key)
		return true
	}
	w.byKey[key] = left
	return false
}

// forget drops what was noted for a key that is no more.
func (w *writes) forget(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.byKey, key)
}

func (one write) shows() bool {
	key, _ := cache.MetaNamespaceKeyFunc(one.object)
	item, exists, err := one.store.GetByKey(key)
	if err != nil {
		return false
	}
	cached, _ := item.(metav1.Object)
	same := exists && cached != nil && cached.GetUID() == one.object.GetUID()
	if one.deleted {
		return !same || cached.GetDeletionTimestamp() != nil
	}
	order, err := resourceversion.CompareResourceVersion(one.store.LastStoreSyncResourceVersion(), one.object.GetResourceVersion())
	if err != nil { // a server without comparable versions: presence has to do
		return same
	}
	return order >= 0
}
