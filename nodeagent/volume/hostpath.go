package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// hostPath is a file or directory of the node, checked for its type.
func (h *Host) hostPath(_ context.Context, r request) (Mounted, error) {
	return Mounted{Path: r.vol.HostPath.Path}, checkHostPath(r.vol.HostPath.Path, r.vol.HostPath.Type)
}

func checkHostPath(path string, kind *corev1.HostPathType) error {
	if kind == nil || *kind == corev1.HostPathUnset {
		return nil
	}
	switch *kind {
	case corev1.HostPathDirectoryOrCreate:
		if _, err := os.Stat(path); os.IsNotExist(err) {
			return os.MkdirAll(path, 0o755)
		}
	case corev1.HostPathFileOrCreate:
		if _, err := os.Stat(path); os.IsNotExist(err) {
			f, err := os.OpenFile(path, os.O_CREATE, 0o644)
			if err != nil {
				return fmt.Errorf("hostPath type check failed: %s: %w", filepath.Dir(path), err)
			}
			return f.Close()
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("hostPath type check failed: %s is not %s", path, aKind(*kind))
	}
	mode, ok := info.Mode(), true
	switch *kind {
	case corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory:
		ok = mode.IsDir()
	case corev1.HostPathFileOrCreate, corev1.HostPathFile:
		ok = mode.IsRegular()
	case corev1.HostPathSocket:
		ok = mode&os.ModeSocket != 0
	case corev1.HostPathCharDev:
		ok = mode&os.ModeCharDevice != 0
	case corev1.HostPathBlockDev:
		ok = mode&os.ModeDevice != 0 && mode&os.ModeCharDevice == 0
	default:
		return fmt.Errorf("%s is an invalid volume type", *kind)
	}
	if !ok {
		return fmt.Errorf("hostPath type check failed: %s is not %s", path, aKind(*kind))
	}
	return nil
}

func aKind(kind corev1.HostPathType) string {
	switch kind {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		return "a directory"
	case corev1.HostPathFile, corev1.HostPathFileOrCreate:
		return "a file"
	case corev1.HostPathSocket:
		return "a socket file"
	case corev1.HostPathCharDev:
		return "a character device"
	}
	return "a block device"
}
