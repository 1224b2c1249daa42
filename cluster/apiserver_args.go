package cluster

import (
	"path/filepath"
	"slices"
	"strings"
)

// WithArgs puts further flags of the API server in the place of those of the same
// name.
func WithArgs(args, further []string) []string {
	given := map[string]bool{}
	for _, arg := range further {
		given[flagName(arg)] = true
	}
	// Who decides is said in one place.
	if given["authorization-config"] {
		given["authorization-mode"] = true
	}
	args = slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return given[flagName(arg)] })
	return append(args, further...)
}

func flagName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
}

// fileFlags are the flags of the API server that name files to be read.
var fileFlags = []string{
	"admission-control-config-file", "audit-policy-file", "audit-webhook-config-file", "authentication-config",
	"authentication-token-webhook-config-file", "authorization-config", "authorization-webhook-config-file",
	"encryption-provider-config", "oidc-ca-file", "oidc-client-secret-file", "token-auth-file",
}

// argMounts are the directories that further flags need: those of files that are
// read, and, to be written, that of the audit log. Directories, not files: a file
// that is replaced by a rename would not be seen.
func argMounts(further []string) []string {
	var mounts []string
	for _, arg := range further {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !filepath.IsAbs(value) {
			continue
		}
		switch {
		case name == "audit-log-path":
			mounts = append(mounts, "+"+filepath.Dir(value))
		case slices.Contains(fileFlags, name):
			mounts = append(mounts, filepath.Dir(value))
		}
	}
	return mounts
}

// distinct drops what is mounted already, and from several mounts of a directory
// all but the writable one.
func distinct(mounts []string) []string {
	writable := map[string]bool{}
	var dirs []string
	for _, m := range mounts {
		dir := filepath.Clean(strings.TrimPrefix(m, "+"))
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		writable[dir] = writable[dir] || m[0] == '+'
	}
	for n, dir := range dirs {
		if writable[dir] {
			dirs[n] = "+" + dir
		}
	}
	return dirs
}
