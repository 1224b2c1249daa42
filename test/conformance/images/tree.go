package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// tree is what a layer holds, by path without a leading slash. Nothing is
// unpacked on the machine, so owners and setuid bits need no root.
type tree map[string]node

type node struct {
	kind     byte // tar's type flag: file, directory or symbolic link
	mode     int64
	uid, gid int
	target   string // of a link
	data     []byte
}

func (t tree) file(name string, mode int64, data []byte) {
	t[name] = node{kind: tar.TypeReg, mode: mode, data: data}
}

func (t tree) dir(name string, mode int64) { t[name] = node{kind: tar.TypeDir, mode: mode} }

func (t tree) link(name, target string) {
	t[name] = node{kind: tar.TypeSymlink, mode: 0o777, target: target}
}

func (t tree) has(name string) bool {
	_, ok := t[name]
	return ok
}

// addPackage adds the files of a Debian package.
func (t tree) addPackage(file string) error {
	command := exec.Command("dpkg-deb", "--fsys-tarfile", file)
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("unpack %s: %w", file, err)
	}
	err = t.addTar(out)
	_, _ = io.Copy(io.Discard, out)
	if err := errors.Join(err, command.Wait()); err != nil {
		return fmt.Errorf("unpack %s: %w\n%s", file, err, &said)
	}
	return nil
}

func (t tree) addTar(from io.Reader) error {
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		name := merged(h.Name)
		if name == "" || unwanted(name) {
			continue
		}
		switch h.Typeflag {
		case tar.TypeDir:
			t[name] = node{kind: h.Typeflag, mode: h.Mode, uid: h.Uid, gid: h.Gid}
		case tar.TypeSymlink:
			t[name] = node{kind: h.Typeflag, mode: h.Mode, uid: h.Uid, gid: h.Gid, target: h.Linkname}
		case tar.TypeLink:
			t[name] = t[merged(h.Linkname)]
		case tar.TypeReg:
			data, err := io.ReadAll(r)
			if err != nil {
				return err
			}
			t[name] = node{kind: h.Typeflag, mode: h.Mode, uid: h.Uid, gid: h.Gid, data: data}
		default:
			return fmt.Errorf("%s is of kind %q", name, h.Typeflag)
		}
	}
}

// merged is the place of a package's file where /bin, /sbin and /lib are links
// into /usr.
func merged(name string) string {
	name = strings.Trim(path.Clean("/"+name), "/")
	switch first, _, _ := strings.Cut(name, "/"); first {
	case "bin", "sbin", "lib", "lib64":
		return "usr/" + name
	}
	return name
}

// unwanted are files that no test looks at.
func unwanted(name string) bool {
	for _, dir := range []string{"doc", "man", "locale", "info", "lintian", "bash-completion"} {
		if name == "usr/share/"+dir || strings.HasPrefix(name, "usr/share/"+dir+"/") {
			return true
		}
	}
	return false
}

// layer packs the tree. The same tree gives the same digest.
func (t tree) layer() (v1.Layer, error) {
	t.addParents()
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		n := t[name]
		h := &tar.Header{Typeflag: n.kind, Name: name, Mode: n.mode, Uid: n.uid, Gid: n.gid, Linkname: n.target, Size: int64(len(n.data))}
		if n.kind == tar.TypeDir {
			h.Name += "/"
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, err := w.Write(n.data); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestSpeed))
}

func (t tree) addParents() {
	for _, name := range slices.Collect(maps.Keys(t)) {
		for dir := path.Dir(name); dir != "." && !t.has(dir); dir = path.Dir(dir) {
			t.dir(dir, 0o755)
		}
	}
}
