package nodeagent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// idsPerPod is how many user ids a pod with a user namespace of its own gets:
// as many as there were on Unix for long, so that images find theirs.
const idsPerPod = 65536

// userRanges gives such pods their ids on the machine: a block each, noted in a
// file beside the pod's volumes. The first block is the machine's own.
type userRanges struct {
	dir string // of the pods' directories

	mu    sync.Mutex // protects taken
	taken map[types.UID]uint32
}

func ownUsers(pod *corev1.Pod) bool { return pod.Spec.HostUsers != nil && !*pod.Spec.HostUsers }

// claim returns a pod's block: the one it has, or a free one.
func (u *userRanges) claim(uid types.UID) (uint32, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.taken == nil {
		if err := u.recall(); err != nil {
			return 0, err
		}
	}
	if n, ok := u.taken[uid]; ok {
		return n, nil
	}
	used := map[uint32]bool{}
	for _, n := range u.taken {
		used[n] = true
	}
	n := uint32(1)
	for used[n] {
		n++
	}
	if n > 1<<16-2 {
		return 0, errors.New("no user ids are left for another pod")
	}
	if err := os.WriteFile(u.path(uid), []byte(strconv.FormatUint(uint64(n), 10)), 0o600); err != nil {
		return 0, fmt.Errorf("note the pod's user ids: %w", err)
	}
	u.taken[uid] = n
	return n, nil
}

// release takes a block back; the file goes with the pod's directory.
func (u *userRanges) release(uid types.UID) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.taken, uid)
}

func (u *userRanges) path(uid types.UID) string { return filepath.Join(u.dir, string(uid), "userns") }

// recall reads what a former agent gave away.
func (u *userRanges) recall() error {
	entries, err := os.ReadDir(u.dir)
	if err != nil {
		return fmt.Errorf("user ids of pods: %w", err)
	}
	taken := map[types.UID]uint32{}
	for _, e := range entries {
		data, err := os.ReadFile(u.path(types.UID(e.Name())))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("user ids of pods: %w", err)
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 16)
		if err != nil {
			return fmt.Errorf("user ids of pod %s: %w", e.Name(), err)
		}
		taken[types.UID(e.Name())] = uint32(n)
	}
	u.taken = taken
	return nil
}

// userNamespace is the pod's user namespace in the runtime's words; nil for one
// that shares the machine's.
func (a *Agent) userNamespace(pod *corev1.Pod) (*runtimeapi.UserNamespace, error) {
	if !ownUsers(pod) || a.cfg.Simulated {
		return nil, nil
	}
	n, err := a.users.claim(pod.UID)
	if err != nil {
		return nil, err
	}
	ids := []*runtimeapi.IDMapping{{HostId: n * idsPerPod, ContainerId: 0, Length: idsPerPod}}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}, nil
}

// mayOwnUsers refuses a pod that wants a user namespace of its own where its
// runtime can't give it one: to share the machine's would be a broken promise.
func (a *Agent) mayOwnUsers(pod *corev1.Pod, handler string) error {
	if !ownUsers(pod) || a.cfg.Simulated {
		return nil
	}
	for _, h := range a.runtimeFeatures.Load().GetRuntimeHandlers() {
		if h.Name == handler && h.GetFeatures().GetUserNamespaces() {
			return nil
		}
	}
	if handler == "" {
		return errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	return fmt.Errorf("can't set `spec.hostUsers: false`, RuntimeClass handler %q does not support user namespaces", handler)
}
