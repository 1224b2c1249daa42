// Image writes an image file with one program in it, for tests that must not
// need a registry:
//
//	image -name example.org/app:1 -o app.tar PROGRAM
//
// Without a program, its programs are those of the node whose disk is at /host.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	ref := flag.String("name", "example.org/app:1", "name of the image")
	out := flag.String("o", "app.tar", "file to write (docker-archive)")
	flag.Parse()
	if err := write(*ref, *out, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// file is one of an image.
type file struct {
	tar.Header
	data []byte
}

func write(ref, out, program string) error {
	tag, err := name.NewTag(ref)
	if err != nil {
		return err
	}
	content := []file{
		{tar.Header{Typeflag: tar.TypeDir, Name: "tmp/", Mode: 0o1777}, nil},
		{tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}, []byte("root:x:0:0:root:/:/app\n")},
	}
	if program != "" {
		code, err := os.ReadFile(program)
		if err != nil {
			return err
		}
		content = append(content, file{tar.Header{Typeflag: tar.TypeReg, Name: "app", Mode: 0o755}, code})
	} else {
		for _, name := range []string{"bin", "lib", "lib64", "usr"} {
			content = append(content, file{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: "host/" + name, Mode: 0o777}, nil})
		}
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	for _, f := range content {
		f.Size = int64(len(f.data))
		if err := w.WriteHeader(&f.Header); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil })
	if err != nil {
		return err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		Architecture: "amd64", OS: "linux", RootFS: must(image.ConfigFile()).RootFS,
		Config: v1.Config{Entrypoint: []string{"/app"}, ExposedPorts: map[string]struct{}{"8080/tcp": {}}},
	})
	if err != nil {
		return err
	}
	return tarball.WriteToFile(out, tag, image)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err) // the image was made above
	}
	return value
}
