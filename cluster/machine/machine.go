package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Namespaces are those that a machine has of its own. Control groups are not
// among them: the node agent is told which to use.
const Namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET

// Machine is one of those that live on this one.
type Machine struct {
	Name string     // host name
	Link string     // of its interface on this machine, at most 15 characters
	Addr netip.Addr // on the bridge
	// Dir holds the machine's files: data/ is what it sees at DataDir, tmp/ what it
	// sees at /tmp.
	Dir string
	// DataDir is where it keeps its data, in its own eyes: the same path as this
	// machine's, so that no configuration differs.
	DataDir string
	// Volatile are directories that are empty when it starts, in memory.
	Volatile []string
}

// Data is the machine's data directory as seen from this one.
func (m Machine) Data() string { return filepath.Join(m.Dir, "data") }

func (m Machine) tmp() string { return filepath.Join(m.Dir, "tmp") }

func (m Machine) hostname() string { return filepath.Join(m.Dir, "hostname") }

// KnownAs is the name that the machine in Dir was prepared with, or "".
func (m Machine) KnownAs() string {
	name, err := os.ReadFile(m.hostname())
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

// Prepare makes the directories that the machine's first process mounts.
func (m Machine) Prepare() error {
	for _, dir := range append([]string{m.Data(), m.DataDir}, m.Volatile...) {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return fmt.Errorf("machine %s: %w", m.Name, err)
		}
	}
	if err := os.MkdirAll(m.tmp(), 0o777); err != nil {
		return fmt.Errorf("machine %s: %w", m.Name, err)
	}
	// MkdirAll's mode is subject to the umask.
	if err := os.Chmod(m.tmp(), os.ModeSticky|0o777); err != nil {
		return fmt.Errorf("machine %s: %w", m.Name, err)
	}
	if err := os.WriteFile(m.hostname(), []byte(m.Name+"\n"), 0o644); err != nil {
		return fmt.Errorf("machine %s: %w", m.Name, err)
	}
	return nil
}

// Enter makes this process, the first of new Namespaces, see the machine's own
// files. Mounts made in it are shared with what it starts, as on a booted
// machine, and with nothing outside.
func (m Machine) Enter() error {
	if os.Getpid() != 1 {
		return errors.New("a machine is entered by its first process only")
	}
	if err := syscall.Sethostname([]byte(m.Name)); err != nil {
		return fmt.Errorf("host name %s: %w", m.Name, err)
	}
	for _, p := range []uintptr{syscall.MS_PRIVATE, syscall.MS_SHARED} {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|p, ""); err != nil {
			return fmt.Errorf("machine %s: own mounts: %w", m.Name, err)
		}
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("machine %s: /proc: %w", m.Name, err)
	}
	for _, dir := range m.Volatile {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=0711"); err != nil {
			return fmt.Errorf("machine %s: %s: %w", m.Name, dir, err)
		}
	}
	// The data directory last: it may hide m.Dir, where the others come from.
	for _, bind := range [][2]string{{m.tmp(), "/tmp"}, {m.hostname(), "/etc/hostname"}, {m.Data(), m.DataDir}} {
		if err := bindMount(bind[0], bind[1]); err != nil {
			return fmt.Errorf("machine %s: %s: %w", m.Name, bind[1], err)
		}
	}
	return nil
}

func bindMount(from, to string) error {
	if _, err := os.Stat(to); errors.Is(err, os.ErrNotExist) && to == "/etc/hostname" {
		return nil // a machine without that file needs none
	}
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	return syscall.Mount("", to, "", syscall.MS_SHARED, "")
}
