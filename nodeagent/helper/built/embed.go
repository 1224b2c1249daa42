// Package built carries the helper programs inside the binary that links it.
// The files named helper and pause are made by `make build` (see the helper's
// doc.go) and are not in a fresh checkout, where this package holds nothing but
// its own source.
package built

import (
	"embed"
	"fmt"
)

//go:embed *
var files embed.FS

// Helper returns the program that is shim and CNI plugin.
func Helper() ([]byte, error) { return read("helper") }

// Pause returns the program that holds a pod's namespaces.
func Pause() ([]byte, error) { return read("pause") }

func read(name string) ([]byte, error) {
	data, err := files.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("this orrery was built without its %s program: build it with `make build`", name)
	}
	return data, nil
}
