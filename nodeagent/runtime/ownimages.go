package runtime

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"orrery.dev/nodeagent/helper/built"
)

// componentNames are what the binary is called inside its image, so that a
// manifest may say `command: [kube-apiserver]`. cmd chooses by them.
func componentNames() []string {
	return []string{
		"kube-apiserver", "kube-scheduler", "kube-controller-manager", "kube-proxy",
		"etcd", "etcdctl", "kubectl", "cluster-dns", "console-server",
	}
}

// sourceLabel on an image says which file it was made from, so that an
// unchanged binary is not even read again.
const sourceLabel = "orrery.dev/source"

// ImportPause makes the sandbox image and puts it in under name, unless it is
// there. It is pinned.
func ImportPause(ctx context.Context, address, name string) error {
	program, err := built.Pause()
	if err != nil {
		return err
	}
	layer, err := newTarLayer(func(w *tar.Writer) error {
		return writeFile(w, "pause", 0o755, int64(len(program)), bytes.NewReader(program))
	})
	if err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	image, err := imageOf(layer, v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"})
	if err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	return importOwn(ctx, address, name, image, map[string]string{pinnedLabel: pinned})
}

// ImportBinary puts the image of the orrery binary itself in under name. When
// the image there was made from the same file, or has the same content, nothing
// is done.
func ImportBinary(ctx context.Context, address, name, binaryPath string) error {
	info, err := os.Stat(binaryPath)
	if err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	source := fmt.Sprintf("%d-%d", info.Size(), info.ModTime().UnixNano())
	if have, err := imageLabel(ctx, address, name, sourceLabel); err != nil || have == source {
		return err
	}
	image, err := BuildBinaryImage(name, binaryPath)
	if err != nil {
		return err
	}
	return importOwn(ctx, address, name, image, map[string]string{pinnedLabel: pinned, sourceLabel: source})
}

// BuildBinaryImage makes an image of the binary: the file itself under /orrery,
// its component names in /usr/local/bin, and the few files that programs expect
// of a system. The one layer is streamed from the file whenever it is read, and
// not compressed, since it never travels.
func BuildBinaryImage(name, binaryPath string) (v1.Image, error) {
	layer, err := newTarLayer(func(w *tar.Writer) error { return writeBinaryLayer(w, binaryPath) })
	if err != nil {
		return nil, fmt.Errorf("make image %s: %w", name, err)
	}
	image, err := imageOf(layer, v1.Config{
		Entrypoint: []string{"/orrery"},
		Env:        []string{"PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"},
	})
	if err != nil {
		return nil, fmt.Errorf("make image %s: %w", name, err)
	}
	return image, nil
}

func writeBinaryLayer(w *tar.Writer, binaryPath string) error {
	for _, dir := range []string{"etc/", "etc/ssl/", "etc/ssl/certs/", "root/", "run/", "usr/", "usr/local/", "usr/local/bin/", "var/", "var/lib/", "var/log/"} {
		if err := writeHeader(w, &tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := writeHeader(w, &tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}); err != nil {
		return err
	}
	texts := []struct{ path, text string }{
		{"etc/group", "root:x:0:\nnobody:x:65534:\n"},
		{"etc/nsswitch.conf", "hosts: files dns\n"},
		{"etc/passwd", "root:x:0:0:root:/root:/orrery\nnobody:x:65534:65534:nobody:/nonexistent:/orrery\n"},
	}
	for _, t := range texts {
		if err := writeFile(w, t.path, 0o644, int64(len(t.text)), bytes.NewReader([]byte(t.text))); err != nil {
			return err
		}
	}
	if err := copyIfThere(w, "etc/ssl/certs/ca-certificates.crt"); err != nil {
		return err
	}
	binary, err := os.Open(binaryPath)
	if err != nil {
		return err
	}
	defer binary.Close()
	info, err := binary.Stat()
	if err != nil {
		return err
	}
	if err := writeFile(w, "orrery", 0o755, info.Size(), binary); err != nil {
		return err
	}
	for _, name := range append(componentNames(), "orrery") {
		link := &tar.Header{Typeflag: tar.TypeLink, Name: filepath.Join("usr/local/bin", name), Linkname: "orrery", Mode: 0o755}
		if err := writeHeader(w, link); err != nil {
			return err
		}
	}
	return nil
}

// copyIfThere takes the machine's certificate authorities along, where it has
// some: components may call services outside.
func copyIfThere(w *tar.Writer, path string) error {
	data, err := os.ReadFile("/" + path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return writeFile(w, path, 0o644, int64(len(data)), bytes.NewReader(data))
}

func writeFile(w *tar.Writer, name string, mode, size int64, content io.Reader) error {
	if err := writeHeader(w, &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: size}); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}

// writeHeader dates everything at the epoch: the same binary must give the same
// digest.
func writeHeader(w *tar.Writer, h *tar.Header) error {
	h.ModTime = time.Unix(0, 0)
	return w.WriteHeader(h)
}

func imageOf(layer v1.Layer, config v1.Config) (v1.Image, error) {
	base := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	base = mutate.ConfigMediaType(base, types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", goruntime.GOARCH, config
	return mutate.ConfigFile(image, file)
}

// tarLayer is an uncompressed layer that is made anew each time it is read. It
// holds no more than a buffer.
type tarLayer struct {
	write func(*tar.Writer) error
	hash  v1.Hash
	size  int64
}

func newTarLayer(write func(*tar.Writer) error) (*tarLayer, error) {
	l := &tarLayer{write: write}
	content, err := l.Uncompressed()
	if err != nil {
		return nil, err
	}
	defer content.Close()
	sum := sha256.New()
	if l.size, err = io.CopyBuffer(onlyWriter{sum}, content, make([]byte, 1<<20)); err != nil {
		return nil, err
	}
	l.hash = v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sum.Sum(nil))}
	return l, nil
}

type onlyWriter struct{ io.Writer }

func (l *tarLayer) Digest() (v1.Hash, error)            { return l.hash, nil }
func (l *tarLayer) DiffID() (v1.Hash, error)            { return l.hash, nil }
func (l *tarLayer) Size() (int64, error)                { return l.size, nil }
func (l *tarLayer) MediaType() (types.MediaType, error) { return types.OCIUncompressedLayer, nil }
func (l *tarLayer) Compressed() (io.ReadCloser, error)  { return l.Uncompressed() }

// Uncompressed starts a writer that ends with the reader: closing the reader
// makes its next write fail.
func (l *tarLayer) Uncompressed() (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() {
		t := tar.NewWriter(w)
		err := l.write(t)
		if err == nil {
			err = t.Close()
		}
		w.CloseWithError(err)
	}()
	return r, nil
}

// imageLabel reads one label of an image; "" when there is no such image.
func imageLabel(ctx context.Context, address, name, label string) (string, error) {
	client, err := openContainerd(address)
	if err != nil {
		return "", err
	}
	defer client.Close()
	image, err := client.ImageService().Get(namespaces.WithNamespace(ctx, criNamespace), name)
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up image %s: %w", name, err)
	}
	return image.Labels[label], nil
}

// importOwn puts an image that was made here in, unless the same is there.
func importOwn(ctx context.Context, address, name string, image v1.Image, labels map[string]string) error {
	client, err := openContainerd(address)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	digest, err := image.Digest()
	if err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	have, err := client.ImageService().Get(ctx, name)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("look up image %s: %w", name, err)
	}
	if err == nil && have.Target.Digest.String() == digest.String() {
		if have.Labels == nil {
			have.Labels = map[string]string{}
		}
		for k, v := range labels {
			have.Labels[k] = v
		}
		if _, err := client.ImageService().Update(ctx, have, "labels"); err != nil {
			return fmt.Errorf("label image %s: %w", name, err)
		}
		return nil
	}
	r, w := io.Pipe()
	defer r.Close() // ends the writer should the import stop early
	go func() { w.CloseWithError(writeLayout(w, name, image)) }()
	if _, err := importStream(ctx, client, r, labels); err != nil {
		return fmt.Errorf("import image %s: %w", name, err)
	}
	return nil
}

// writeLayout writes an image as an OCI layout in a tar stream.
func writeLayout(out io.Writer, name string, image v1.Image) error {
	w := tar.NewWriter(out)
	manifest, err := image.RawManifest()
	if err != nil {
		return err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return err
	}
	manifestHash, err := image.Digest()
	if err != nil {
		return err
	}
	configHash, err := image.ConfigName()
	if err != nil {
		return err
	}
	index, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType: types.OCIManifestSchema1, Digest: manifestHash, Size: int64(len(manifest)),
			Platform:    &v1.Platform{OS: "linux", Architecture: goruntime.GOARCH},
			Annotations: map[string]string{"io.containerd.image.name": name},
		}},
	})
	if err != nil {
		return err
	}
	small := []struct {
		path string
		data []byte
	}{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"index.json", index},
		{"blobs/sha256/" + manifestHash.Hex, manifest},
		{"blobs/sha256/" + configHash.Hex, config},
	}
	for _, f := range small {
		if err := writeFile(w, f.path, 0o644, int64(len(f.data)), bytes.NewReader(f.data)); err != nil {
			return err
		}
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	for _, l := range layers {
		if err := writeLayer(w, l); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeLayer(w *tar.Writer, l v1.Layer) error {
	hash, err := l.Digest()
	if err != nil {
		return err
	}
	size, err := l.Size()
	if err != nil {
		return err
	}
	content, err := l.Compressed()
	if err != nil {
		return err
	}
	defer content.Close()
	return writeFile(w, "blobs/sha256/"+hash.Hex, 0o644, size, content)
}
