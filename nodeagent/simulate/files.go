package simulate

import (
	"archive/tar"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// rootDirs are what every container has in "/"; they are empty.
func rootDirs() []string {
	return []string{"bin", "dev", "etc", "home", "proc", "root", "sys", "tmp", "usr", "var"}
}

// files are those that were copied into a container: there are no others. A
// directory is there when something is in it.
type files struct {
	mu     sync.Mutex // protects the field below
	byPath map[string][]byte
}

func (f *files) read(name string) ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.byPath[absolute(name)]
	return data, ok
}

func (f *files) write(name string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byPath == nil {
		f.byPath = map[string][]byte{}
	}
	f.byPath[absolute(name)] = data
}

// below lists the files in a directory and its directories.
func (f *files) below(dir string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []string
	for _, name := range slices.Sorted(maps.Keys(f.byPath)) {
		if strings.HasPrefix(name, strings.TrimSuffix(absolute(dir), "/")+"/") {
			found = append(found, name)
		}
	}
	return found
}

// entries are the names in a directory, those of directories with a slash.
func (f *files) entries(dir string) (names []string, ok bool) {
	dir = absolute(dir)
	if dir == "/" {
		for _, name := range rootDirs() {
			names = append(names, name+"/")
		}
	}
	for _, file := range f.below(dir) {
		name, _, deeper := strings.Cut(strings.TrimPrefix(file[len(dir):], "/"), "/")
		if deeper {
			name += "/"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	isRoot := path.Dir(dir) == "/" && slices.Contains(rootDirs(), dir[1:])
	return slices.Compact(names), len(names) > 0 || isRoot
}

func absolute(name string) string { return path.Clean("/" + name) }

func (s *shell) ls(args []string) (int, error) {
	flags, dir := "", "/"
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			flags += a
		} else {
			dir = a
		}
	}
	names, ok := s.files.entries(dir)
	if !ok {
		if _, ok = s.files.read(dir); !ok {
			return s.complain(1, "ls: %s: no such file or directory", dir)
		}
		names = []string{dir}
	} else if strings.Contains(flags, "a") {
		names = append([]string{"./", "../"}, names...)
	}
	if !strings.Contains(flags, "p") {
		for i := range names {
			names[i] = strings.TrimSuffix(names[i], "/")
		}
	}
	between := "  "
	if strings.Contains(flags, "1") {
		between = "\n"
	}
	return 0, s.print(strings.Join(names, between) + "\n")
}

func (s *shell) cat(args []string, in io.Reader) (int, error) {
	for _, name := range args {
		data, ok := s.files.read(name)
		if !ok {
			return s.complain(1, "cat: %s: no such file or directory", name)
		}
		if _, err := s.out.Write(data); err != nil {
			return 1, err
		}
	}
	if len(args) > 0 || in == nil {
		return 0, nil
	}
	_, err := io.Copy(s.out, in)
	return 0, err
}

// test knows what copying to a container asks: whether a path is a directory,
// a file, or either.
func (s *shell) test(args []string) (int, error) {
	if len(args) != 2 {
		return s.complain(2, "test: only -d, -f and -e of one path are simulated")
	}
	_, dir := s.files.entries(args[1])
	_, file := s.files.read(args[1])
	if args[0] == "-d" && dir || args[0] == "-f" && file || args[0] == "-e" && (dir || file) {
		return 0, nil
	}
	return 1, nil
}

// tar packs to and unpacks from its streams, as copying files does.
func (s *shell) tar(args []string, in io.Reader) (int, error) {
	mode, dir := "", "/"
	var names []string
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case i == 0:
			mode = a
		case a == "-C" && i+1 < len(args):
			i++
			dir = args[i]
		case !strings.HasPrefix(a, "-"):
			names = append(names, a)
		}
	}
	switch {
	case strings.Contains(mode, "x") && in != nil:
		return s.unpack(dir, in)
	case strings.Contains(mode, "c") && len(names) > 0:
		return s.pack(dir, names)
	}
	return s.complain(2, "tar: only \"tar cf - NAME\" and \"tar xf -\" are simulated")
}

func (s *shell) unpack(dir string, in io.Reader) (int, error) {
	for packed := tar.NewReader(in); ; {
		head, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return 0, nil
		}
		var data []byte
		if err == nil {
			data, err = io.ReadAll(packed)
		}
		if err != nil {
			return s.complain(1, "tar: %v", err)
		}
		if head.Typeflag == tar.TypeReg {
			s.files.write(path.Join(dir, head.Name), data)
		}
	}
}

func (s *shell) pack(dir string, names []string) (int, error) {
	packed := tar.NewWriter(s.out)
	for _, name := range names {
		if !path.IsAbs(name) {
			name = path.Join(dir, name)
		} else {
			dir = "/"
		}
		found := s.files.below(name)
		if _, ok := s.files.read(name); ok {
			found = append(found, absolute(name))
		}
		if len(found) == 0 {
			return s.complain(1, "tar: %s: no such file or directory", name)
		}
		for _, file := range found {
			data, _ := s.files.read(file)
			inside := strings.TrimPrefix(strings.TrimPrefix(file, absolute(dir)), "/")
			err := packed.WriteHeader(&tar.Header{Name: inside, Mode: 0o644, Size: int64(len(data)), ModTime: time.Now()})
			if err == nil {
				_, err = packed.Write(data)
			}
			if err != nil {
				return 1, err
			}
		}
	}
	return 0, packed.Close()
}
