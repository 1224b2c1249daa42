//go:build !linux

package volume

import (
	"errors"
	"os"

	"k8s.io/apimachinery/pkg/types"
)

// Volumes need Linux; elsewhere nodes are simulated and have none.
var errNotLinux = errors.New("volumes need Linux")

func mountTmpfs(string, int64) error      { return errNotLinux }
func mountHugePages(string, string) error { return errNotLinux }
func isMounted(string) bool               { return false }
func unmountBelow(string) error           { return nil }
func groupOf(os.FileInfo) int             { return -1 }
func blocksOf(info os.FileInfo) int64     { return info.Size() }

// Sub is a path within a volume, for one mount of one container.
type Sub struct {
	Pod             types.UID
	Volume          Mounted
	Name, Container string
	Index           int
	Path            string
	Mode            os.FileMode
}

// SubPath needs Linux.
func (h *Host) SubPath(Sub) (string, error) { return "", errNotLinux }
