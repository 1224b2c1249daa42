package images

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// downloadPackages fetches Debian packages with all that they depend on into
// dir, and returns the files. It asks apt as a machine with nothing installed
// would, in folders of its own, so nothing of this machine is touched or needed
// but apt's list of sources.
func downloadPackages(ctx context.Context, dir string, names ...string) ([]string, error) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		return nil, fmt.Errorf("the images are made of Debian packages, and there is no apt-get here: %w", err)
	}
	archives := filepath.Join(dir, "archives")
	for _, folder := range []string{"lists/partial", "cache", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return nil, err
		}
	}
	status := filepath.Join(dir, "status") // no package is installed
	if err := os.WriteFile(status, nil, 0o644); err != nil {
		return nil, err
	}
	options := []string{
		"-y", "-qq", "--no-install-recommends", "--download-only",
		"-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=",
		"-o", "Dir::State::status=" + status,
		"-o", "Dir::State::lists=" + filepath.Join(dir, "lists"),
		"-o", "Dir::Cache=" + filepath.Join(dir, "cache"),
		"-o", "Dir::Cache::archives=" + archives,
	}
	for _, args := range [][]string{{"update"}, append([]string{"install"}, names...)} {
		command := exec.CommandContext(ctx, "apt-get", append(options, args...)...)
		command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		var said bytes.Buffer
		command.Stdout, command.Stderr = &said, &said
		if err := command.Run(); err != nil {
			return nil, fmt.Errorf("apt-get %s: %w\n%s", args[0], err, &said)
		}
	}
	files, err := filepath.Glob(filepath.Join(archives, "*.deb"))
	if err != nil {
		return nil, err
	}
	var wanted []string
	for _, file := range files {
		if !onlyInstalls(packageName(file)) {
			wanted = append(wanted, file)
		}
	}
	return wanted, nil
}

func packageName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), "_")
	return name
}

// onlyInstalls tells packages that others name for their installation scripts,
// which nobody runs here. busybox stands in for tar.
func onlyInstalls(name string) bool {
	switch name {
	case "dpkg", "debconf", "tar", "usrmerge", "init-system-helpers":
		return true
	}
	return strings.Contains(name, "perl")
}
