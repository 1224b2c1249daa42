package images

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// userlandPackages are the programs that tests run in agnhost.
var userlandPackages = strings.Fields(`base-files base-passwd bash dash busybox-static libc-bin
	coreutils hostname grep sed mawk bind9-dnsutils curl ca-certificates netcat-openbsd iproute2
	iperf util-linux socat procps`)

// userland is Debian, without its package manager.
func userland(files []string) (tree, error) {
	t := tree{}
	for _, file := range files {
		if err := t.addPackage(file); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		t.link(dir, "usr/"+dir)
	}
	// What installation scripts would have done.
	for _, name := range []string{"passwd", "group"} {
		t.file("etc/"+name, 0o644, t["usr/share/base-passwd/"+name+".master"].data)
	}
	t.link("usr/bin/awk", "mawk")
	t.link("usr/bin/nc", "nc.openbsd")
	t.file("etc/ssl/certs/ca-certificates.crt", 0o644, t.certificates())

	applets, err := busyboxApplets(t["usr/bin/busybox"].data)
	if err != nil {
		return nil, err
	}
	for _, applet := range applets {
		if !t.has("usr/bin/"+applet) && !t.has("usr/sbin/"+applet) {
			t.link("usr/bin/"+applet, "busybox")
		}
	}
	return t, nil
}

// certificates joins those that the package has one by one.
func (t tree) certificates() []byte {
	var bundle bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if strings.HasPrefix(name, "usr/share/ca-certificates/") && strings.HasSuffix(name, ".crt") {
			bundle.Write(t[name].data)
		}
	}
	return bundle.Bytes()
}

// busybox is an image with only that, and with a shell of two parts: see sh.
func busybox(ctx context.Context, dir string, sh []byte) (tree, error) {
	files, err := downloadPackages(ctx, dir, "busybox-static", "bash-static")
	if err != nil {
		return nil, err
	}
	packages := tree{}
	for _, file := range files {
		if err := packages.addPackage(file); err != nil {
			return nil, err
		}
	}
	program := packages["usr/bin/busybox"].data
	applets, err := busyboxApplets(program)
	if err != nil {
		return nil, err
	}
	t := tree{}
	for _, applet := range applets {
		t.link("bin/"+applet, "busybox")
	}
	t.file("bin/busybox", 0o755, program)
	t.file("bin/sh", 0o755, sh)
	t.file("usr/lib/sh/bash", 0o755, packages["usr/bin/bash-static"].data)
	t.link("usr/bin/env", "../../bin/env")
	t.dir("tmp", 0o1777)
	t.dir("root", 0o700)
	for _, dir := range []string{"dev", "etc", "home", "proc", "sys", "var/spool/mail", "var/www"} {
		t.dir(dir, 0o755)
	}
	t.file("etc/passwd", 0o644, []byte(`root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
bin:x:2:2:bin:/bin:/bin/false
sys:x:3:3:sys:/dev:/bin/false
sync:x:4:100:sync:/bin:/bin/sync
mail:x:8:8:mail:/var/spool/mail:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
`))
	t.file("etc/group", 0o644, []byte(`root:x:0:
daemon:x:1:
bin:x:2:
sys:x:3:
tty:x:5:
mail:x:8:
www-data:x:33:
users:x:100:
nobody:x:65534:
`))
	return t, nil
}

// busyboxApplets asks the program itself. It answers only to its own name.
func busyboxApplets(program []byte) ([]string, error) {
	dir, err := os.MkdirTemp("", "busybox-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "busybox")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		return nil, err
	}
	list, err := exec.Command(path, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("busybox --list: %w", err)
	}
	return slices.DeleteFunc(strings.Fields(string(list)), func(name string) bool { return name == "busybox" }), nil
}
