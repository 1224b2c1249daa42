package nodeagent

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// collectImages removes images that no container uses when the image filesystem
// fills up, those longest unused first, and forgets who pulled images that have
// gone.
func (a *Agent) collectImages(ctx context.Context) error {
	for {
		sleep(ctx, 5*time.Minute)
		if ctx.Err() != nil {
			return nil
		}
		a.prunePullRecords(ctx)
		d, ok := diskOf(a.imageRoot())
		if !ok || d.size == 0 {
			continue
		}
		used := 100 - int32(d.free*100/d.size)
		if used < *a.cfg.Kubelet.ImageGCHighThresholdPercent {
			continue
		}
		want := d.size*int64(100-*a.cfg.Kubelet.ImageGCLowThresholdPercent)/100 - d.free
		a.log.Info("image filesystem is filling up", "used_percent", used, "bytes_to_free", want)
		if !a.freeImages(ctx, want) {
			a.nodeEvent(corev1.EventTypeWarning, "FreeDiskSpaceFailed", fmt.Sprintf("Failed to garbage collect required amount of images. Attempted to free %d bytes.", want))
		}
	}
}

func (a *Agent) prunePullRecords(ctx context.Context) {
	if a.images.records == nil {
		return
	}
	since := time.Now()
	images, err := a.cfg.Images.ListImages(ctx, nil)
	if err == nil {
		present := sets.New[string]()
		for _, img := range images {
			present.Insert(img.Id)
		}
		err = a.images.records.prune(present, since)
	}
	if err != nil && ctx.Err() == nil {
		a.log.Warn("pull records not pruned", "err", err)
	}
}

// freeImages removes unused images until want bytes are free; it says whether
// it got so far.
func (a *Agent) freeImages(ctx context.Context, want int64) bool {
	images, err := a.cfg.Images.ListImages(ctx, nil)
	if err != nil {
		return false
	}
	containers, err := a.cfg.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return false
	}
	used := map[string]time.Time{}
	for _, c := range containers {
		used[c.ImageId], used[c.ImageRef], used[c.GetImage().GetImage()] = time.Now(), time.Now(), time.Now()
	}
	slices.SortFunc(images, func(x, y *runtimeapi.Image) int { return int(min(max(int64(y.Size)-int64(x.Size), -1), 1)) })
	for _, img := range images {
		if want <= 0 {
			return true
		}
		if _, in := used[img.Id]; in || img.Pinned || slices.ContainsFunc(slices.Concat(img.RepoDigests, img.RepoTags), func(n string) bool { _, in := used[n]; return in }) {
			continue
		}
		if err := a.cfg.Images.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: img.Id}); err != nil {
			a.log.Warn("image not removed", "image", img.Id, "err", err)
			continue
		}
		want -= int64(img.Size)
	}
	return want <= 0
}

// imageRoot is where the runtime keeps images.
func (a *Agent) imageRoot() string {
	resp, err := a.cfg.Images.ImageFsInfo(context.Background())
	if err == nil {
		for _, fs := range resp.GetImageFilesystems() {
			if m := fs.GetFsId().GetMountpoint(); m != "" {
				return m
			}
		}
	}
	return a.cfg.RootDir
}
