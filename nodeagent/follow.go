package nodeagent

import (
	"context"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// follower watches the ConfigMaps and Secrets that fill the volumes of this
// node's pods, each by itself (a node may see no others), and has the pods look
// at their volumes when one changes. It keeps no object: what goes into a volume
// is always read anew, so that no pod starts with an older one than it was made
// to use.
type follower struct {
	a *Agent

	mu   sync.Mutex // protects the fields below
	read map[source]version
	all  map[source]*followed
	pods map[types.UID][]source
}

// source is an object that fills a volume.
type source struct {
	resource, namespace, name string
}

// version is what an object was when it was last read.
type version struct {
	revision  string
	immutable bool
}

// followed is one source and who uses it.
type followed struct {
	users map[types.UID]bool
	ended chan struct{} // closed when nobody uses it any more
}

func newFollower(a *Agent) *follower {
	return &follower{a: a, read: map[source]version{}, all: map[source]*followed{}, pods: map[types.UID][]source{}}
}

// note tells that a source was read for a volume: its watch begins there.
func (f *follower) note(s source, v version) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[s] == nil {
		f.read[s] = v
	}
}

// set says which sources a pod's volumes have, none when the pod goes.
func (f *follower) set(uid types.UID, sources []source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.pods[uid]
	f.pods[uid] = sources
	if len(sources) == 0 {
		delete(f.pods, uid)
	}
	for _, s := range sources {
		v := f.read[s]
		delete(f.read, s)
		if v.immutable {
			continue // it can only go, and then the pod keeps what it has
		}
		w := f.all[s]
		if w == nil {
			w = &followed{users: map[types.UID]bool{}, ended: make(chan struct{})}
			f.all[s] = w
			f.a.background.start(func(ctx context.Context) { f.follow(ctx, s, w, v.revision) })
		}
		w.users[uid] = true
	}
	for _, s := range before {
		if w := f.all[s]; w != nil && !slices.Contains(sources, s) {
			if delete(w.users, uid); len(w.users) == 0 {
				delete(f.all, s)
				close(w.ended)
			}
		}
	}
}

// changed has the pods that use a source look at their volumes.
func (f *follower) changed(w *followed) {
	f.mu.Lock()
	users := make([]types.UID, 0, len(w.users))
	for uid := range w.users {
		users = append(users, uid)
	}
	f.mu.Unlock()
	for _, uid := range users {
		f.a.pods.refresh(uid)
	}
}

// followRetry is the wait before a watch that ended is begun anew.
const followRetry = time.Second

// follow watches a source until nobody uses it.
func (f *follower) follow(ctx context.Context, s source, w *followed, revision string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		revision = f.followOnce(ctx, s, w, revision)
		select {
		case <-ctx.Done():
			return
		case <-w.ended:
			return
		case <-time.After(followRetry):
		}
	}
}

// followOnce watches a source from a revision until that fails, and returns the
// revision to go on from. Without one, the watch begins with the object as it
// is, if it is there.
func (f *follower) followOnce(ctx context.Context, s source, w *followed, revision string) string {
	watcher, err := f.watch(ctx, s, revision)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return ""
	}
	if err != nil {
		f.a.log.Debug("object not watched", "resource", s.resource, "namespace", s.namespace, "name", s.name, "err", err)
		return revision
	}
	defer watcher.Stop()
	for {
		select {
		case <-ctx.Done():
			return revision
		case <-w.ended:
			return revision
		case e, ok := <-watcher.ResultChan():
			if !ok {
				return revision
			}
			if e.Type == watch.Error {
				return "" // most often: the revision is too old
			}
			if m, err := meta.Accessor(e.Object); err == nil {
				revision = m.GetResourceVersion()
			}
			if e.Type != watch.Bookmark {
				f.changed(w)
			}
		}
	}
}

func (f *follower) watch(ctx context.Context, s source, revision string) (watch.Interface, error) {
	options := metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("metadata.name", s.name).String(),
		ResourceVersion: revision, AllowWatchBookmarks: true,
	}
	if s.resource == resourceSecrets {
		return f.a.clients.CoreV1().Secrets(s.namespace).Watch(ctx, options)
	}
	return f.a.clients.CoreV1().ConfigMaps(s.namespace).Watch(ctx, options)
}

const (
	resourceConfigMaps = "configmaps"
	resourceSecrets    = "secrets"
)
