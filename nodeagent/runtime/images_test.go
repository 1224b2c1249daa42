package runtime

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func testImage(t *testing.T, content string) v1.Image {
	t.Helper()
	layer, err := newTarLayer(func(w *tar.Writer) error {
		return writeFile(w, "file", 0o644, int64(len(content)), strings.NewReader(content))
	})
	if err != nil {
		t.Fatal(err)
	}
	image, err := imageOf(layer, v1.Config{Cmd: []string{"/file"}})
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// imageFiles writes an image in every form that is taken.
func imageFiles(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	write := func(file string, data []byte) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	var oci, docker, zipped bytes.Buffer
	if err := writeLayout(&oci, "example.org/oci:v1", testImage(t, "oci")); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("short:v2")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.Write(tag, testImage(t, "docker"), &docker); err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write(docker.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"oci": write("oci.tar", oci.Bytes()), "docker": write("docker.tar", docker.Bytes()), "gzip": write("docker.tar.gz", zipped.Bytes()),
		"empty": write("empty.tar", nil), "text": write("text.tar", []byte(strings.Repeat("this is no image\n", 100))),
		"cut": write("cut.tar", oci.Bytes()[:oci.Len()/2]), "cutgz": write("cut.tar.gz", zipped.Bytes()[:zipped.Len()/2]), "dir": dir,
	}
}

func testImport(t *testing.T, n node) {
	ctx := t.Context()
	files := imageFiles(t)
	for form, want := range map[string]string{"oci": "example.org/oci:v1", "docker": "docker.io/library/short:v2", "gzip": "docker.io/library/short:v2"} {
		names, err := Import(ctx, n.Socket(), files[form])
		if err != nil || len(names) != 1 || names[0] != want {
			t.Errorf("import %s: %v, %v, want %s", form, names, err, want)
		}
	}
	for _, form := range []string{"empty", "text", "cut", "cutgz", "dir", "missing"} {
		path := files[form]
		if form == "missing" {
			path = "/nowhere/image.tar"
		}
		_, err := Import(ctx, n.Socket(), path)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("import %s: %v, want one line that names the file", form, err)
		}
		t.Log(err)
	}
	list, err := List(ctx, n.Socket())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, i := range list {
		names = append(names, i.Name)
		if i.Size == 0 || i.Digest == "" {
			t.Errorf("image %+v", i)
		}
	}
	if got := strings.Join(names, " "); !strings.Contains(got, "docker.io/library/short:v2 example.org/oci:v1") {
		t.Errorf("images %s", got)
	}
}
