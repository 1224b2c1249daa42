package runtime

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/distribution/reference"
)

// criNamespace is where containerd keeps what CRI sees.
const criNamespace = "k8s.io"

// pinned keeps an image from the node agent's image garbage collection.
const (
	pinnedLabel = "io.cri-containerd.pinned"
	pinned      = "pinned"
)

// Image is one line of `orrery image ls`.
type Image struct {
	Name    string
	Digest  string
	Size    int64 // bytes of content, compressed as it came
	Created time.Time
}

// openContainerd dials containerd's own API; CRI calls go through Connect.
func openContainerd(address string) (*containerd.Client, error) {
	c, err := containerd.New(strings.TrimPrefix(address, "unix://"), containerd.WithDefaultNamespace(criNamespace), containerd.WithTimeout(10*time.Second))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd at %s: %w", address, err)
	}
	return c, nil
}

// Import brings image files (OCI layout or docker-archive, plain or gzipped)
// into the CRI's images and unpacks them, and returns the names that they gave.
// The files before a bad one stay imported.
func Import(ctx context.Context, address string, paths ...string) ([]string, error) {
	client, err := openContainerd(address)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	var names []string
	for _, path := range paths {
		imported, err := importFile(ctx, client, path)
		if err != nil {
			return names, err
		}
		names = append(names, imported...)
	}
	return names, nil
}

func importFile(ctx context.Context, client *containerd.Client, path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("import image: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("import image %s: is a directory; give an image file made by `docker save` or an OCI archive", path)
	}
	tarball, err := uncompressed(f)
	if err != nil {
		return nil, fmt.Errorf("import image %s: %w", path, err)
	}
	imported, err := importStream(ctx, client, tarball, nil)
	if err != nil {
		return nil, fmt.Errorf("import image %s: %w", path, readable(err))
	}
	if len(imported) == 0 {
		return nil, fmt.Errorf("import image %s: the images in it have no name; tag the image before saving it", path)
	}
	return imported, nil
}

// uncompressed looks at the first bytes, not at the file's name.
func uncompressed(r io.Reader) (io.Reader, error) {
	head := bufio.NewReaderSize(r, 64<<10)
	magic, err := head.Peek(2)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty")
	}
	if err != nil {
		return nil, err
	}
	if magic[0] == 0x1f && magic[1] == 0x8b {
		return gzip.NewReader(head)
	}
	return head, nil
}

// importStream imports a tar stream, with labels on the images that it names,
// and unpacks them for the snapshotter in use.
func importStream(ctx context.Context, client *containerd.Client, tarball io.Reader, labels map[string]string) ([]string, error) {
	// The lease keeps containerd's garbage collection away until the images
	// refer to what was brought in.
	ctx, done, err := client.WithLease(ctx)
	if err != nil {
		return nil, err
	}
	defer done(context.WithoutCancel(ctx)) //nolint:errcheck // it expires by itself
	opts := []containerd.ImportOpt{containerd.WithImageRefTranslator(normalName)}
	if labels != nil {
		opts = append(opts, containerd.WithImageLabels(labels))
	}
	imported, err := client.Import(ctx, tarball, opts...)
	if err != nil {
		return nil, err
	}
	snapshotter, err := snapshotterInUse(ctx, client)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, i := range imported {
		if err := containerd.NewImage(client, i).Unpack(ctx, snapshotter); err != nil {
			return nil, fmt.Errorf("unpack %s: %w", i.Name, err)
		}
		names = append(names, i.Name)
	}
	return names, nil
}

// normalName completes a short name as the CRI does ("nginx" is
// docker.io/library/nginx:latest); without it pods would not find the image.
func normalName(name string) string {
	named, err := reference.ParseDockerRef(name)
	if err != nil {
		return ""
	}
	return named.String()
}

// snapshotterInUse takes overlayfs where containerd could load it. WriteConfig
// makes the same choice by trying it out.
func snapshotterInUse(ctx context.Context, client *containerd.Client) (string, error) {
	info, err := client.IntrospectionService().Plugins(ctx, "type==io.containerd.cri.v1,id==images")
	if err == nil {
		for _, p := range info.Plugins {
			if s := p.Exports["snapshotter"]; s != "" {
				return s, nil
			}
		}
	}
	info, err = client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1,id==overlayfs")
	if err != nil {
		return "", fmt.Errorf("ask containerd for its snapshotters: %w", err)
	}
	for _, p := range info.Plugins {
		if p.InitErr == nil {
			return "overlayfs", nil
		}
	}
	return "native", nil
}

// readable turns containerd's words for a file that is no image into ours.
func readable(err error) error {
	text := err.Error()
	for _, sign := range []string{"unrecognized image format", "invalid tar header", "unexpected EOF", "archive/tar", "manifest.json", "invalid header", "checksum error"} {
		if strings.Contains(text, sign) {
			return fmt.Errorf("not a complete OCI or docker-archive image file (%s)", lastLine(text))
		}
	}
	return errors.New(lastLine(text))
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// List returns the images that pods can use, by name.
func List(ctx context.Context, address string) ([]Image, error) {
	client, err := openContainerd(address)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	stored, err := client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var all []Image
	for _, i := range stored {
		// The CRI keeps each image a second time under its bare digest.
		if strings.HasPrefix(i.Name, "sha256:") {
			continue
		}
		size, err := containerd.NewImage(client, i).Size(ctx)
		if err != nil && !errors.Is(err, images.ErrSkipDesc) {
			size = i.Target.Size
		}
		all = append(all, Image{Name: i.Name, Digest: i.Target.Digest.String(), Size: size, Created: i.CreatedAt})
	}
	slices.SortFunc(all, func(a, b Image) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
