package simulate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageSize is what every image is said to take, in bytes.
const imageSize = 50 << 20

// Images is the image service of a Runtime.
type Images struct{ r *Runtime }

// Images returns the runtime's image service.
func (r *Runtime) Images() *Images { return &Images{r} }

func imageID(name string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))) }

// ListImages lists what was pulled.
func (i *Images) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	i.r.mu.Lock()
	defer i.r.mu.Unlock()
	var list []*runtimeapi.Image
	for _, image := range i.r.images {
		list = append(list, image)
	}
	return list, nil
}

// ImageStatus finds an image by name; nil: not there.
func (i *Images) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	i.r.mu.Lock()
	defer i.r.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: i.r.images[imageID(spec.GetImage())]}, nil
}

// PullImage has every image at once, unless the pod says otherwise.
func (i *Images) PullImage(_ context.Context, spec *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, pod *runtimeapi.PodSandboxConfig) (string, error) {
	if text := pod.GetAnnotations()[PullError]; text != "" {
		return "", errors.New(text)
	}
	i.r.mu.Lock()
	defer i.r.mu.Unlock()
	id := imageID(spec.GetImage())
	i.r.images[id] = &runtimeapi.Image{Id: id, RepoTags: []string{spec.GetImage()}, Size: imageSize, Spec: spec}
	return id, nil
}

// RemoveImage forgets an image.
func (i *Images) RemoveImage(_ context.Context, spec *runtimeapi.ImageSpec) error {
	i.r.mu.Lock()
	defer i.r.mu.Unlock()
	delete(i.r.images, spec.GetImage())
	delete(i.r.images, imageID(spec.GetImage()))
	return nil
}

// ImageFsInfo tells of a disk that holds the images and nothing else.
func (i *Images) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	i.r.mu.Lock()
	defer i.r.mu.Unlock()
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/simulated"},
		UsedBytes: &runtimeapi.UInt64Value{Value: uint64(len(i.r.images)) * imageSize}}}}, nil
}

// Close has nothing to close.
func (i *Images) Close(context.Context) error { return nil }
