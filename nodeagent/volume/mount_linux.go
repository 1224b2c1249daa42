package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// mountTmpfs mounts a filesystem in memory; size 0 leaves the size to the
// kernel.
func mountTmpfs(dir string, size int64) error {
	options := "mode=0777"
	if size > 0 {
		options += ",size=" + strconv.FormatInt(size, 10)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		return fmt.Errorf("mount tmpfs on %s: %w", dir, err)
	}
	return nil
}

func mountHugePages(dir, pageSize string) error {
	options := ""
	if pageSize != "" {
		options = "pagesize=" + strings.TrimSuffix(pageSize, "i")
	}
	if err := unix.Mount("nodev", dir, "hugetlbfs", 0, options); err != nil {
		return fmt.Errorf("mount hugetlbfs on %s: %w", dir, err)
	}
	return nil
}

// mountsBelow lists the mount points at and below dir, innermost last.
func mountsBelow(dir string) ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	var out []string
	for _, m := range mounts {
		out = append(out, m.Mountpoint)
	}
	return out, err
}

func isMounted(dir string) bool {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	points, err := mountsBelow(real)
	return err == nil && slices.Contains(points, real)
}

// unmountBelow unmounts everything below dir, the last mounted first, until the
// kernel lists nothing more.
func unmountBelow(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		points, err := mountsBelow(real)
		if err != nil || len(points) == 0 {
			return err
		}
		if try == 3 {
			return fmt.Errorf("still mounted: %s", strings.Join(points, ", "))
		}
		for _, p := range slices.Backward(points) {
			if err := unmount(p); err != nil {
				return err
			}
		}
	}
}

func unmount(path string) error {
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		err = unix.Unmount(path, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
	}
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

func groupOf(info os.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Gid)
	}
	return -1
}

func blocksOf(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}

// Sub is a path within a volume, for one mount of one container.
type Sub struct {
	Pod             types.UID
	Volume          Mounted
	Name, Container string
	Index           int
	Path            string
	Mode            os.FileMode
}

// SubPath makes the path if it is not there, and binds it to a place of our own
// for the runtime to mount. Containers of the pod may swap directories for
// links while we look: the kernel resolves the path so that it can't leave the
// volume, and it is the opened file that is bound, not its name.
func (h *Host) SubPath(s Sub) (string, error) {
	root, err := os.OpenRoot(s.Volume.Path)
	if err != nil {
		return "", err
	}
	defer root.Close()
	if _, err := root.Stat(s.Path); os.IsNotExist(err) {
		mode := s.Mode
		if info, err := os.Stat(s.Volume.Path); err == nil {
			mode = info.Mode().Perm()
		}
		if err := makeBelow(root, s.Path, mode); err != nil {
			return "", err
		}
	} else if err != nil {
		return "", err
	}
	base, err := unix.Open(s.Volume.Path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", s.Volume.Path, err)
	}
	defer unix.Close(base)
	fd, err := unix.Openat2(base, s.Path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return "", fmt.Errorf("subpath %q of volume %q: %w", s.Path, s.Name, err)
	}
	defer unix.Close(fd)
	target := filepath.Join(h.podDir(s.Pod), "volume-subpaths", s.Name, s.Container, strconv.Itoa(s.Index))
	if err := unmountBelow(target); err != nil { // of the container before
		return "", err
	}
	if err := makeTarget(fd, target); err != nil {
		return "", err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), target, "", unix.MS_BIND, ""); err != nil {
		return "", fmt.Errorf("bind %s: %w", target, err)
	}
	return target, nil
}

// makeBelow makes a directory and its parents with mode, whatever the umask.
func makeBelow(root *os.Root, path string, mode os.FileMode) error {
	if err := root.MkdirAll(path, mode); err != nil {
		return err
	}
	return root.Chmod(path, mode)
}

// makeTarget makes a file or directory to bind on, as fd is one or the other.
func makeTarget(fd int, target string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	os.Remove(target) // may be of the other type
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return os.Mkdir(target, 0o750)
	}
	return os.WriteFile(target, nil, 0o640)
}
