// Command sh is /bin/sh of the busybox image: BusyBox's shell, whose messages
// tests look for, unless a variable of the environment has a name that is none
// to a shell, such as data-1. BusyBox's shell drops those, bash passes them on,
// and tests look for them too.
package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
)

const (
	busybox = "/bin/busybox"
	bash    = "/usr/lib/sh/bash"
)

var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func main() {
	environment := os.Environ()
	shell := choose(environment)
	err := syscall.Exec(shell, os.Args, environment)
	fmt.Fprintf(os.Stderr, "sh: %s: %v\n", shell, err)
	os.Exit(126)
}

func choose(environment []string) string {
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if !shellName.MatchString(name) {
			return bash
		}
	}
	return busybox
}
