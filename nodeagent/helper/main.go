package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// parts are what this program can be, by the name it is started under.
// nodeagent/runtime makes a hard link for each.
func parts() map[string]func() int {
	return map[string]func() int{
		"containerd-shim-runc-v2": shimMain,
		"orrery-cni":              cniMain,
	}
}

func main() {
	name := filepath.Base(os.Args[0])
	part, ok := parts()[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: start this program as containerd-shim-runc-v2 or orrery-cni\n", name)
		os.Exit(2)
	}
	os.Exit(part())
}
