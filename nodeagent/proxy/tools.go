package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// tools runs the distribution's programs. Where they are not in PATH, as in a
// container of this binary alone, they are run inside root, where the host's
// file system is mounted. That beats a copy in the image: iptables comes in two
// builds that do not see each other's rules, and only the host's is right.
type tools struct {
	root string // "" where there is none
}

// find returns a program's path and the root in which the path holds.
func (t tools) find(name string) (path, root string, err error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, "", nil
	}
	if t.root != "" {
		for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/local/bin"} {
			path := filepath.Join(dir, name)
			// Lstat: a link in there is to be followed from that root, not ours.
			if _, err := os.Lstat(filepath.Join(t.root, path)); err == nil {
				return path, t.root, nil
			}
		}
	}
	return "", "", fmt.Errorf("%s is not installed on this node", name)
}

func (t tools) has(name string) bool {
	_, _, err := t.find(name)
	return err == nil
}

func (t tools) run(ctx context.Context, stdin, name string, args ...string) (string, error) {
	path, root, err := t.find(name)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if root != "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		cmd.Dir = "/"
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if said := strings.TrimSpace(stderr.String()); said != "" {
			err = errors.New(said)
		}
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return stdout.String(), nil
}
