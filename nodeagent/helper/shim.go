package main

import (
	"context"

	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/manager"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/task"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/shutdown"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/plugin"
	"github.com/containerd/plugin/registry"
)

// shimMain runs containerd's runc shim. The shim starts every plugin that is
// registered in the process, so the registry is emptied first and the one
// plugin that a shim needs is put in by hand.
func shimMain() int {
	registry.Reset()
	registry.Register(&plugin.Registration{
		Type:     plugins.TTRPCPlugin,
		ID:       "task",
		Requires: []plugin.Type{plugins.EventPlugin, plugins.InternalPlugin},
		InitFn:   newTaskService,
	})
	// RunShim ends the process by itself when it fails.
	shim.RunShim(context.Background(), manager.NewShimManager("io.containerd.runc.v2"))
	return 0
}

func newTaskService(ic *plugin.InitContext) (any, error) {
	publisher, err := ic.GetByID(plugins.EventPlugin, "publisher")
	if err != nil {
		return nil, err
	}
	stop, err := ic.GetByID(plugins.InternalPlugin, "shutdown")
	if err != nil {
		return nil, err
	}
	return task.NewTaskService(ic.Context, publisher.(shim.Publisher), stop.(shutdown.Service))
}
