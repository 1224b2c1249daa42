package volume

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// emptyDir is a directory that lives as long as its pod, on disk or in memory.
func (h *Host) emptyDir(_ context.Context, r request) (Mounted, error) {
	source := r.vol.EmptyDir
	if source == nil {
		source = &corev1.EmptyDirVolumeSource{}
	}
	fresh, err := makeDir(r.dir)
	if err != nil {
		return Mounted{}, err
	}
	mounted := isMounted(r.dir)
	switch {
	case source.Medium == corev1.StorageMediumMemory && !mounted:
		if err := mountTmpfs(r.dir, h.memoryLimit(r.pod, source)); err != nil {
			return Mounted{}, err
		}
		fresh = true
	case strings.HasPrefix(string(source.Medium), string(corev1.StorageMediumHugePages)) && !mounted:
		if err := mountHugePages(r.dir, strings.TrimPrefix(string(source.Medium), string(corev1.StorageMediumHugePagesPrefix))); err != nil {
			return Mounted{}, err
		}
		fresh = true
	}
	if !fresh {
		return Mounted{Path: r.dir, Relabel: true}, nil
	}
	if err := os.Chmod(r.dir, 0o777); err != nil { // in spite of the umask
		return Mounted{}, err
	}
	if err := own(r.dir, r.pod, false); err != nil {
		return Mounted{}, fmt.Errorf("apply fsGroup: %w", err)
	}
	return Mounted{Path: r.dir, Relabel: true}, nil
}

// memoryLimit is the size of a volume in memory: its own limit, but no more
// than its pod's, or the node's.
func (h *Host) memoryLimit(pod *corev1.Pod, source *corev1.EmptyDirVolumeSource) int64 {
	limit := resource.Quantity{}
	if h.NodeAllocatable != nil {
		limit = h.NodeAllocatable()[corev1.ResourceMemory]
	}
	var sum resource.Quantity
	bounded := true
	for _, c := range pod.Spec.Containers {
		q, ok := c.Resources.Limits[corev1.ResourceMemory]
		bounded = bounded && ok
		sum.Add(q)
	}
	if bounded && !sum.IsZero() && (limit.IsZero() || sum.Cmp(limit) < 0) {
		limit = sum
	}
	if s := source.SizeLimit; s != nil && !s.IsZero() && (limit.IsZero() || s.Cmp(limit) < 0) {
		limit = *s
	}
	return limit.Value()
}

// makeDir makes a directory for everybody and says whether it was not there.
func makeDir(dir string) (bool, error) {
	if _, err := os.Stat(dir); err == nil {
		return false, nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return false, err
	}
	return true, os.Chmod(dir, 0o777)
}
