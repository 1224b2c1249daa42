package runtime

import (
	"context"
	"fmt"

	// containerd finds its parts by what is linked in; this is its own list.
	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins"
	"github.com/containerd/containerd/v2/cmd/containerd/command"
)

// ServeContainerd runs the containerd server in this process, with containerd's
// own arguments (such as --config PATH), until ctx ends or a signal comes. It
// takes over the process' signals and logs to standard error, so it is meant to
// have a process of its own.
func ServeContainerd(ctx context.Context, args []string) error {
	if err := command.App().Run(ctx, append([]string{"containerd"}, args...)); err != nil {
		return fmt.Errorf("containerd: %w", err)
	}
	return nil
}
