package nodeagent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"orrery.dev/api"
)

// watchManifests runs the pods of the manifest directory (or file), and follows
// its changes.
func (a *Agent) watchManifests(ctx context.Context) error {
	path := a.cfg.Kubelet.StaticPodPath
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		a.log.Warn("manifests are only looked at now and then", "err", err)
		watcher = &fsnotify.Watcher{}
	} else {
		defer watcher.Close()
	}
	running := map[types.UID]*corev1.Pod{}
	watching := false
	tick := time.NewTicker(a.cfg.Kubelet.FileCheckFrequency.Duration)
	defer tick.Stop()
	for {
		if !watching && err == nil {
			watching = watcher.Add(path) == nil
		}
		running = a.readManifests(path, running)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-watcher.Events:
			// Files are often written in several goes.
			sleep(ctx, 100*time.Millisecond)
			drain(watcher.Events)
		case <-watcher.Errors:
			watching = false
		}
	}
}

func drain(events <-chan fsnotify.Event) {
	for {
		select {
		case <-events:
		default:
			return
		}
	}
}

// readManifests compares the directory with the pods that run from it.
func (a *Agent) readManifests(path string, running map[types.UID]*corev1.Pod) map[types.UID]*corev1.Pod {
	files, err := manifestFiles(path)
	if err != nil {
		a.log.Warn("static pod manifests can't be read", "path", path, "err", err)
		return running
	}
	found := map[types.UID]*corev1.Pod{}
	broken := map[string]bool{}
	for _, file := range files {
		pod, err := a.readManifest(file)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			a.log.Warn("static pod manifest is not usable", "file", file, "err", err)
			broken[file] = true
			continue
		}
		found[pod.UID] = pod
	}
	for uid, pod := range running {
		if found[uid] != nil {
			continue
		}
		if broken[pod.Annotations[annotationFile]] {
			found[uid] = pod // a half-written manifest doesn't take its pod away
			continue
		}
		a.pods.remove(pod)
	}
	for uid, pod := range found {
		if running[uid] == nil {
			a.pods.set(pod)
		}
	}
	a.staticSeen.Store(true)
	return found
}

const annotationFile = "orrery.dev/manifest"

func manifestFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		if os.IsNotExist(err) {
			return nil, nil
		}
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		switch filepath.Ext(e.Name()) {
		case ".yaml", ".yml", ".json", ".manifest":
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	sort.Strings(files)
	return files, nil
}

// readManifest reads a static pod. Its UID is a hash of what it says and where,
// so that a changed manifest is another pod.
func (a *Agent) readManifest(file string) (*corev1.Pod, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(data, pod); err != nil {
		return nil, err
	}
	if pod.Kind != "Pod" || pod.Name == "" || len(pod.Spec.Containers) == 0 {
		return nil, fmt.Errorf("not a pod with a name and containers")
	}
	canonical, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(string(canonical) + "\x00" + a.cfg.NodeName + "\x00" + file))
	hash := hex.EncodeToString(sum[:16])
	if pod.UID == "" {
		pod.UID = types.UID(hash)
	}
	pod.TypeMeta = metav1.TypeMeta{}
	pod.Name += "-" + strings.ToLower(a.cfg.NodeName)
	if pod.Namespace == "" {
		pod.Namespace = corev1.NamespaceDefault
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotationConfig] = hash
	pod.Annotations[annotationSource] = "file"
	pod.Annotations[annotationSeen] = time.Now().Format(time.RFC3339Nano)
	pod.Annotations[annotationFile] = file
	pod.Spec.NodeName = a.cfg.NodeName
	defaultStatic(pod)
	return pod, nil
}

// defaultStatic fills in what the API server fills in for other pods: its
// defaults, and the priority that admission gives.
func defaultStatic(pod *corev1.Pod) {
	api.DefaultPod(pod)
	api.DefaultPodLevelResources(pod)
	s := &pod.Spec
	or(&s.PriorityClassName, "system-node-critical")
	switch s.PriorityClassName {
	case "system-node-critical":
		orPtr(&s.Priority, int32(systemNodeCritical))
	case "system-cluster-critical":
		orPtr(&s.Priority, int32(systemClusterCritical))
	}
	s.Tolerations = append(s.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
}

// syncMirror sees to it that a static pod has its mirror in the API. A mirror
// of an older manifest is replaced.
func (w *worker) syncMirror(ctx context.Context, pod *corev1.Pod) {
	if !w.static || w.a.clients == nil || !w.a.apiPodsSeen.Load() || w.a.cfg.Simulated && w.a.node.Load() == nil {
		return
	}
	pods := w.a.clients.CoreV1().Pods(pod.Namespace)
	hash := pod.Annotations[annotationConfig]
	if m := w.a.pods.mirror(w.name); m != nil {
		if m.Annotations[corev1.MirrorPodAnnotationKey] == hash && m.DeletionTimestamp == nil {
			return
		}
		var now int64
		err := pods.Delete(ctx, m.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &m.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			w.a.log.Debug("old mirror pod not deleted", "pod", w.name, "err", err)
		}
		return // its deletion event wakes us
	}
	mirror := &corev1.Pod{ObjectMeta: *pod.ObjectMeta.DeepCopy(), Spec: *pod.Spec.DeepCopy()}
	mirror.UID = ""
	mirror.Annotations[corev1.MirrorPodAnnotationKey] = hash
	delete(mirror.Annotations, annotationFile)
	node := w.a.node.Load()
	if node == nil {
		return // touched again when the node is registered
	}
	mirror.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: ptr.To(true)}}
	made, err := pods.Create(ctx, mirror, metav1.CreateOptions{})
	if err != nil {
		if !apierrors.IsAlreadyExists(err) {
			w.a.log.Debug("mirror pod not created", "pod", w.name, "err", err)
		}
		return
	}
	w.a.pods.set(made)
	w.a.statuses.resend(w.uid)
}
