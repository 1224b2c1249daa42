package volume

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// payload is what a volume should contain, by path below it.
type payload map[string]file

type file struct {
	data []byte
	mode int32
	user *int64 // owner, if not root
}

const dataLink = "..data"

// fill makes a volume's directory contain files, and nothing else. Readers see
// either the old contents or the new: the visible names are links through
// ..data, and that link is replaced in one go.
//
//	token     -> ..data/token
//	..data    -> ..2026_11_30_06_34_41.123456789
func (h *Host) fill(r request, files payload, inMemory bool) (Mounted, error) {
	m := Mounted{Path: r.dir, ReadOnly: true, Relabel: true}
	fresh, err := makeDir(r.dir)
	if err != nil {
		return m, err
	}
	if inMemory && !isMounted(r.dir) {
		if err := mountTmpfs(r.dir, 0); err != nil {
			return m, err
		}
		fresh = true
	}
	if fresh {
		if err := os.Chmod(r.dir, 0o777); err != nil {
			return m, err
		}
	}
	for path := range files {
		if err := checkPath(path); err != nil {
			return m, err
		}
	}
	if files.equal(filepath.Join(r.dir, dataLink)) {
		return m, nil
	}
	if err := files.write(r); err != nil {
		return m, fmt.Errorf("write contents: %w", err)
	}
	return m, nil
}

func checkPath(path string) error {
	if path == "" || filepath.IsAbs(path) || strings.HasPrefix(path, "..") || filepath.Clean(path) != path {
		return fmt.Errorf("invalid path %q", path)
	}
	return nil
}

// equal says whether dir has these files.
func (p payload) equal(dir string) bool {
	n := 0
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	same := true
	err = filepath.WalkDir(real, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		rel, _ := filepath.Rel(real, path)
		want, ok := p[rel]
		if !ok {
			same = false
			return filepath.SkipAll
		}
		data, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(data, want.data) {
			same = false
			return filepath.SkipAll
		}
		return nil
	})
	return err == nil && same && n == len(p)
}

// write writes the files into a new directory and turns the link to it.
func (p payload) write(r request) error {
	name := time.Now().UTC().Format("..2006_01_02_15_04_05.000000000")
	dir := filepath.Join(r.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	for path, f := range p {
		if err := f.write(dir, path); err != nil {
			return err
		}
	}
	if err := own(dir, r.pod, true); err != nil {
		return err
	}
	old, _ := os.Readlink(filepath.Join(r.dir, dataLink))
	tmp := filepath.Join(r.dir, dataLink+"_tmp")
	os.Remove(tmp)
	if err := os.Symlink(name, tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(r.dir, dataLink)); err != nil {
		return err
	}
	if err := p.link(r.dir); err != nil {
		return err
	}
	if old != "" && strings.HasPrefix(old, "..2") {
		return os.RemoveAll(filepath.Join(r.dir, old))
	}
	return nil
}

func (f file) write(dir, path string) error {
	full := filepath.Join(dir, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	mode := os.FileMode(f.mode) & 0o777
	if err := os.WriteFile(full, f.data, mode); err != nil {
		return err
	}
	if f.user != nil {
		if err := os.Lchown(full, int(*f.user), -1); err != nil {
			return err
		}
	}
	return os.Chmod(full, mode)
}

// link makes the visible names, and removes those that have gone.
func (p payload) link(dir string) error {
	visible := map[string]bool{}
	for path := range p {
		first, _, _ := strings.Cut(path, "/")
		visible[first] = true
	}
	for name := range visible {
		err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name))
		if err != nil && !os.IsExist(err) {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") || visible[e.Name()] {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
