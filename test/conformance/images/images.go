// Package images makes the images that the suite asks for, without any
// registry: from Debian packages, the programs of package programs and files of
// the suite's module. They behave as upstream's do in all that the tests look
// at. What comes out is an OCI layout: a folder of blobs, layers shared, and an
// index whose entries are named repository:tag, without registry.k8s.io.
package images

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"orrery.dev/test/conformance/programs"
)

// NameAnnotation holds an image's name in the index of the layout.
const NameAnnotation = "org.opencontainers.image.ref.name"

// Names of images that the runner itself puts on the nodes.
const (
	Agnhost = "e2e-test-images/agnhost:2.66.1"
	Busybox = "e2e-test-images/busybox:1.37.0-2"
	Pause   = "pause:3.10.2"
)

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

type image struct {
	name   string
	layers []v1.Layer
	config v1.Config
}

//go:embed *.go sh/*.go
var recipe embed.FS

// Dir is where the images are, for this recipe: a change of this package's source
// makes them anew.
func Dir(cache programs.Cache) string {
	sum := sha256.New()
	_ = fs.WalkDir(recipe, ".", func(path string, entry fs.DirEntry, _ error) error {
		if !entry.IsDir() && !strings.HasSuffix(path, "_test.go") {
			data, _ := recipe.ReadFile(path) // it is in memory
			sum.Write(data)
		}
		return nil
	})
	return filepath.Join(string(cache), fmt.Sprintf("images-%.6x", sum.Sum(nil)))
}

// Build makes all images, where they are not in the cache yet. The programs must
// be.
func Build(ctx context.Context, out io.Writer, cache programs.Cache, moduleDir, root string) error {
	dir := Dir(cache)
	if _, err := os.Stat(filepath.Join(dir, "index.json")); err == nil {
		return nil
	}
	work, err := os.MkdirTemp("", "conformance-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := &builder{out: out, cache: cache, moduleDir: moduleDir, root: root, work: work}
	images, err := b.all(ctx)
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	unfinished := dir + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := write(out, unfinished, images); err != nil {
		return err
	}
	return os.Rename(unfinished, dir)
}

type builder struct {
	out             io.Writer
	cache           programs.Cache
	moduleDir, root string
	work            string
}

// all is the list of images.
func (b *builder) all(ctx context.Context) ([]image, error) {
	base, err := b.base(ctx)
	if err != nil {
		return nil, err
	}
	agnhost, err := b.agnhost(base)
	if err != nil {
		return nil, err
	}
	named := func(name string, i image) image {
		i.name = name
		return i
	}
	older := named("e2e-test-images/agnhost:2.55", agnhost)
	older.config.Env = append(slices.Clone(older.config.Env), "AGNHOST_VERSION=2.55") // another version is another image
	dns := image{name: "e2e-test-images/glibc-dns-testing:2.1.1", layers: agnhost.layers[:1], config: v1.Config{Cmd: []string{"bash"}, Env: []string{searchPath}}}
	nonroot := named("e2e-test-images/nonroot:1.5", dns)
	nonroot.config.User = "1234"
	list := []image{named(Agnhost, agnhost), older, dns, nonroot}
	for _, make := range []func(context.Context, tree, image) ([]image, error){
		b.pages, b.nonewprivs, b.nginx, b.busybox, b.pause, b.etcd, b.sampleAPIServer,
	} {
		more, err := make(ctx, base, agnhost)
		if err != nil {
			return nil, err
		}
		list = append(list, more...)
	}
	return list, nil
}

func (b *builder) say(what string) { fmt.Fprintf(b.out, "images: %s\n", what) }

func (b *builder) base(ctx context.Context) (tree, error) {
	b.say("userland")
	files, err := downloadPackages(ctx, filepath.Join(b.work, "userland"), userlandPackages...)
	if err != nil {
		return nil, err
	}
	return userland(files)
}

// agnhost is upstream's helper for tests, on top of the userland.
func (b *builder) agnhost(base tree) (image, error) {
	t, err := b.program("agnhost", "agnhost", 0o755)
	if err != nil {
		return image{}, err
	}
	t.link("agnhost-2", "agnhost")
	t.link("usr/local/bin/iperf", "/usr/bin/iperf")
	t.dir("uploads", 0o755)
	module, err := b.suiteDir()
	if err != nil {
		return image{}, err
	}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		data, err := os.ReadFile(filepath.Join(module, "test/images/agnhost/porter", name))
		if err != nil {
			return image{}, err
		}
		t.file(name, 0o644, data)
	}
	t.file("etc/passwd", 0o644, append(slices.Clone(base["etc/passwd"].data), "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n"...))
	t.file("etc/group", 0o644, append(slices.Clone(base["etc/group"].data), "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"...))
	layers, err := pack(base, t)
	if err != nil {
		return image{}, err
	}
	ports := map[string]struct{}{}
	for _, port := range []string{"80", "8080", "8081", "9376", "5000"} {
		ports[port+"/tcp"] = struct{}{}
	}
	return image{layers: layers, config: v1.Config{Entrypoint: []string{"/agnhost"}, Cmd: []string{"pause"}, Env: []string{searchPath}, ExposedPorts: ports}}, nil
}

// pages are agnhost with a page to serve.
func (b *builder) pages(_ context.Context, _ tree, agnhost image) ([]image, error) {
	module, err := b.suiteDir()
	if err != nil {
		return nil, err
	}
	var list []image
	for _, name := range []string{"kitten", "nautilus"} {
		files, err := filepath.Glob(filepath.Join(module, "test/images", name, "html", "*"))
		if err != nil {
			return nil, err
		}
		t := tree{}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			t.file(filepath.Base(file), 0o644, data)
		}
		// The test of image volumes knows the image by the system that upstream's is
		// made of.
		t.file("etc/os-release", 0o644, []byte("NAME=\"Alpine Linux\"\nID=alpine\n"))
		layers, err := pack(t)
		if err != nil {
			return nil, err
		}
		i := image{name: "e2e-test-images/" + name + ":1.8", layers: append(slices.Clone(agnhost.layers), layers...), config: agnhost.config}
		i.config.Cmd = []string{"test-webserver"}
		list = append(list, i)
	}
	return list, nil
}

func (b *builder) nonewprivs(_ context.Context, _ tree, agnhost image) ([]image, error) {
	t, err := b.program("nonewprivs", "usr/local/bin/nnp", 0o6755)
	if err != nil {
		return nil, err
	}
	layers, err := pack(t)
	if err != nil {
		return nil, err
	}
	return []image{{
		name: "e2e-test-images/nonewprivs:1.4", layers: append(slices.Clone(agnhost.layers[:1]), layers...),
		config: v1.Config{Cmd: []string{"nnp"}, Env: []string{searchPath}},
	}}, nil
}

// nginx is Debian's, on top of the userland.
func (b *builder) nginx(ctx context.Context, base tree, agnhost image) ([]image, error) {
	b.say("nginx")
	files, err := downloadPackages(ctx, filepath.Join(b.work, "nginx"), "nginx-light")
	if err != nil {
		return nil, err
	}
	t := tree{}
	for _, file := range files {
		if !strings.HasPrefix(packageName(file), "base-") { // its /etc is below already
			if err := t.addPackage(file); err != nil {
				return nil, err
			}
		}
	}
	for name := range t {
		if base.has(name) {
			delete(t, name)
		}
	}
	t.file("etc/passwd", 0o644, append(slices.Clone(base["etc/passwd"].data), "nginx:x:101:101:nginx:/nonexistent:/bin/false\n"...))
	t.file("etc/group", 0o644, append(slices.Clone(base["etc/group"].data), "nginx:x:101:\n"...))
	t.file("etc/nginx/nginx.conf", 0o644, []byte(`user nginx;
worker_processes 1;
error_log /dev/stderr notice;
pid /run/nginx.pid;
events { worker_connections 256; }
http {
    include /etc/nginx/mime.types;
    default_type application/octet-stream;
    access_log /dev/stdout;
    server {
        listen 80;
        root /usr/share/nginx/html;
        index index.html;
    }
}
`))
	t.dir("var/lib/nginx", 0o755)
	t.dir("var/log/nginx", 0o755)
	layers, err := pack(t)
	if err != nil {
		return nil, err
	}
	i := image{
		layers: append(slices.Clone(agnhost.layers[:1]), layers...),
		config: v1.Config{
			Cmd: []string{"nginx", "-g", "daemon off;"}, Env: []string{searchPath},
			ExposedPorts: map[string]struct{}{"80/tcp": {}}, StopSignal: "SIGQUIT",
		},
	}
	older, newer := i, i
	older.name, newer.name = "e2e-test-images/nginx:1.27.0-2", "e2e-test-images/nginx:1.28.0-2"
	newer.config.Env = append(slices.Clone(newer.config.Env), "NGINX_VERSION=1.28.0")
	return []image{older, newer}, nil
}

func (b *builder) busybox(ctx context.Context, _ tree, _ image) ([]image, error) {
	b.say("busybox")
	sh, err := b.own(ctx, b.moduleDir, "./images/sh")
	if err != nil {
		return nil, err
	}
	t, err := busybox(ctx, filepath.Join(b.work, "busybox"), sh)
	if err != nil {
		return nil, err
	}
	return scratch(Busybox, t, v1.Config{Cmd: []string{"sh"}})
}

// pause is this project's own.
func (b *builder) pause(ctx context.Context, _ tree, _ image) ([]image, error) {
	b.say("pause")
	program, err := b.own(ctx, b.root, "./nodeagent/helper/pause")
	if err != nil {
		return nil, err
	}
	t := tree{}
	t.file("pause", 0o755, program)
	return scratch(Pause, t, v1.Config{Entrypoint: []string{"/pause"}, User: "65535:65535"})
}

func (b *builder) etcd(context.Context, tree, image) ([]image, error) {
	t, err := b.program("etcd", "usr/local/bin/etcd", 0o755)
	if err != nil {
		return nil, err
	}
	ctl, err := b.program("etcdctl", "usr/local/bin/etcdctl", 0o755)
	if err != nil {
		return nil, err
	}
	t["usr/local/bin/etcdctl"] = ctl["usr/local/bin/etcdctl"]
	t.dir("tmp", 0o1777)
	return scratch("etcd:3.7.0-0", t, v1.Config{Cmd: []string{"/usr/local/bin/etcd"}})
}

func (b *builder) sampleAPIServer(context.Context, tree, image) ([]image, error) {
	t, err := b.program("sample-apiserver", "sample-apiserver", 0o755)
	if err != nil {
		return nil, err
	}
	t.dir("tmp", 0o1777)
	return scratch("e2e-test-images/sample-apiserver:1.29.2", t, v1.Config{Entrypoint: []string{"/sample-apiserver"}})
}

// own builds a program of this repository.
func (b *builder) own(ctx context.Context, dir, pkg string) ([]byte, error) {
	out := filepath.Join(b.work, filepath.Base(pkg)+".program")
	command := exec.CommandContext(ctx, "go", "build", "-ldflags", "-s -w", "-o", out, pkg)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build %s: %w\n%s", pkg, err, said)
	}
	return os.ReadFile(out)
}

func scratch(name string, t tree, config v1.Config) ([]image, error) {
	layers, err := pack(t)
	config.Env = append(config.Env, searchPath)
	return []image{{name: name, layers: layers, config: config}}, err
}

func pack(trees ...tree) ([]v1.Layer, error) {
	var layers []v1.Layer
	for _, t := range trees {
		layer, err := t.layer()
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	return layers, nil
}

// program is a tree with one of the built programs.
func (b *builder) program(name, path string, mode int64) (tree, error) {
	data, err := os.ReadFile(b.cache.Program(name))
	if err != nil {
		return nil, err
	}
	t := tree{}
	t.file(path, mode, data)
	return t, nil
}

// suiteDir is where the suite's module is unpacked.
func (b *builder) suiteDir() (string, error) {
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
	command.Dir = b.moduleDir
	dir, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("where k8s.io/kubernetes is: %w", err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// write makes the layout. A layer that several images have is written once.
func write(out io.Writer, dir string, images []image) error {
	index, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	for _, i := range images {
		fmt.Fprintf(out, "images: write %s\n", i.name)
		made, err := i.make()
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		if err := index.AppendImage(made, layout.WithAnnotations(map[string]string{NameAnnotation: i.name})); err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
	}
	return nil
}

func (i image) make() (v1.Image, error) {
	made := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	made, err := mutate.AppendLayers(made, i.layers...)
	if err != nil {
		return nil, err
	}
	file, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Architecture, file.OS, file.Config = runtime.GOARCH, "linux", i.config
	return mutate.ConfigFile(made, file)
}
