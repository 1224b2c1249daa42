package nodeagent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

const (
	houseEvery     = 30 * time.Second
	houseFirst     = 2 * time.Second // orphans of the time before, and mirrors
	containerGrace = time.Minute     // dead containers are kept so long at least
)

// keepHouse clears away what no pod of the node accounts for: pods that were
// deleted while no agent ran, their directories, mirrors without a static pod,
// and old attempts at containers.
func (a *Agent) keepHouse(ctx context.Context) error {
	every := houseFirst
	for {
		sleep(ctx, every)
		if ctx.Err() != nil {
			return nil
		}
		if a.sourcesSeen() {
			a.adoptOrphans(ctx)
			if !a.cfg.Simulated {
				a.removeDirs()
			}
			a.removeMirrors(ctx)
			every = houseEvery
		}
		a.removeDead(ctx)
		for _, w := range a.pods.all() {
			if w.static {
				w.touch()
			}
		}
	}
}

// sourcesSeen says whether all pods that are wanted are known, so that those
// that are not known are not wanted.
func (a *Agent) sourcesSeen() bool {
	return (a.clients == nil || a.apiPodsSeen.Load()) && (a.cfg.Kubelet.StaticPodPath == "" || a.staticSeen.Load())
}

// adoptOrphans gives each pod that only the runtime knows of a worker, which
// ends it.
func (a *Agent) adoptOrphans(ctx context.Context) {
	pods, err := a.runtimePods(ctx)
	if err != nil {
		a.runtimeFailed(err)
		return
	}
	for uid, pod := range pods {
		if a.pods.get(uid) != nil {
			continue
		}
		a.log.Info("pod is wanted no more, ending it", "pod", fullName(pod), "uid", uid)
		a.pods.adopt(pod)
	}
}

// adopt makes a worker for a pod without a source.
func (s *podSet) adopt(pod *corev1.Pod) {
	s.mu.Lock()
	if s.closed || s.workers[pod.UID] != nil {
		s.mu.Unlock()
		return
	}
	w := newWorker(s.a, pod)
	w.admitted = true
	s.workers[pod.UID] = w
	s.mu.Unlock()
	w.gone()
}

// removeDirs removes directories of pods that are gone, volumes first.
func (a *Agent) removeDirs() {
	root := filepath.Join(a.cfg.RootDir, "pods")
	entries, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, e := range entries {
		uid := types.UID(e.Name())
		if a.pods.get(uid) != nil {
			continue
		}
		if err := a.volumes.TearDown(uid); err != nil {
			a.log.Warn("volumes of a former pod", "uid", uid, "err", err)
			continue
		}
		if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
			a.log.Warn("directory of a former pod", "uid", uid, "err", err)
		}
		_ = a.cgroups.remove(uid)
	}
}

// removeMirrors deletes mirror pods whose static pod is gone.
func (a *Agent) removeMirrors(ctx context.Context) {
	if a.clients == nil {
		return
	}
	a.pods.mu.Lock()
	var lost []*corev1.Pod
	for _, m := range a.pods.mirrors {
		if a.pods.staticNamed(m) == nil {
			lost = append(lost, m)
		}
	}
	a.pods.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var now int64
	for _, m := range lost {
		_ = a.clients.CoreV1().Pods(m.Namespace).Delete(ctx, m.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &m.UID}})
	}
}

// removeDead removes dead containers but the newest two attempts at each (the
// last may be asked for its log, the one before is in lastState), and dead
// sandboxes but the newest.
func (a *Agent) removeDead(ctx context.Context) {
	containers, err := a.cfg.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return
	}
	slices.SortFunc(containers, func(x, y *runtimeapi.Container) int {
		return int(y.GetMetadata().GetAttempt()) - int(x.GetMetadata().GetAttempt())
	})
	kept := map[string]int{}
	used := map[string]bool{}
	for _, c := range containers {
		key := c.Labels[kubelettypes.KubernetesPodUIDLabel] + "/" + c.Labels[kubelettypes.KubernetesContainerNameLabel]
		kept[key]++
		if kept[key] <= historyKept || c.State != runtimeapi.ContainerState_CONTAINER_EXITED || time.Since(time.Unix(0, c.CreatedAt)) < containerGrace {
			used[c.PodSandboxId] = true
			continue
		}
		logs := ""
		if resp, err := a.cfg.Runtime.ContainerStatus(ctx, c.Id, false); err == nil {
			logs = resp.GetStatus().GetLogPath()
		}
		if err := a.cfg.Runtime.RemoveContainer(ctx, c.Id); err != nil {
			used[c.PodSandboxId] = true
			continue
		}
		if logs != "" && !a.cfg.Simulated {
			removeLogs(logs)
		}
	}
	a.removeDeadSandboxes(ctx, used)
	if !a.cfg.Simulated {
		removeDeadLinks(filepath.Join(filepath.Dir(a.cfg.PodLogsDir), "containers"))
	}
}

func (a *Agent) removeDeadSandboxes(ctx context.Context, used map[string]bool) {
	sandboxes, err := a.cfg.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return
	}
	newest := map[types.UID]*runtimeapi.PodSandbox{}
	for _, s := range sandboxes {
		uid := podUID(s.Labels, "")
		if n := newest[uid]; n == nil || s.CreatedAt > n.CreatedAt {
			newest[uid] = s
		}
	}
	for _, s := range sandboxes {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY || used[s.Id] || newest[podUID(s.Labels, "")] == s {
			continue
		}
		_ = a.cfg.Runtime.RemovePodSandbox(ctx, s.Id)
	}
}

// removeDeadLinks removes links to logs that are gone.
func removeDeadLinks(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if _, err := os.Stat(path); os.IsNotExist(err) {
			os.Remove(path)
		}
	}
}
