package runtime

import (
	"fmt"
	"os"
	"path/filepath"

	"orrery.dev/nodeagent/helper/built"
)

// helperNames are the names under which the helper program is a part. They are
// hard links, because the shim starts itself again by its resolved path.
func helperNames() []string { return []string{"containerd-shim-runc-v2", CNIPlugin} }

// WriteHelper writes the helper program and its names into dir. Shims that run
// keep the file they were started from.
func WriteHelper(dir string) error {
	program, err := built.Helper()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "orrery-helper")
	if err := writeIfChanged(path, program, 0o755); err != nil {
		return fmt.Errorf("write helper program: %w", err)
	}
	for _, name := range helperNames() {
		if err := hardLink(path, filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("write helper program: %w", err)
		}
	}
	return nil
}

// hardLink makes name another name of path in one step.
func hardLink(path, name string) error {
	want, err := os.Stat(path)
	if err != nil {
		return err
	}
	if have, err := os.Stat(name); err == nil && os.SameFile(want, have) {
		return nil
	}
	tmp := name + ".new"
	if err := os.Remove(tmp); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.Link(path, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, name)
}
