package volume

import (
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
)

// own gives a tree to the pod's fsGroup: its group may read (and write, unless
// readOnly), and new files inherit the group.
func own(root string, pod *corev1.Pod, readOnly bool) error {
	sc := pod.Spec.SecurityContext
	if sc == nil || sc.FSGroup == nil {
		return nil
	}
	group := int(*sc.FSGroup)
	if p := sc.FSGroupChangePolicy; p != nil && *p == corev1.FSGroupChangeOnRootMismatch && rootMatches(root, group) {
		return nil
	}
	return filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if err := os.Lchown(path, -1, group); err != nil {
			return err
		}
		if info.Mode()&os.ModeSymlink != 0 {
			return nil
		}
		mode := info.Mode()&(os.ModePerm|os.ModeSetuid|os.ModeSticky) | 0o660
		if readOnly {
			mode = info.Mode()&(os.ModePerm|os.ModeSetuid|os.ModeSticky) | 0o440
		}
		if d.IsDir() {
			mode |= os.ModeSetgid | 0o110
		}
		return os.Chmod(path, mode)
	})
}

func rootMatches(root string, group int) bool {
	info, err := os.Stat(root)
	return err == nil && groupOf(info) == group && info.Mode()&os.ModeSetgid != 0
}
