// Orrery is a Kubernetes-compatible cluster manager in one binary: API server,
// scheduler, controllers, node agent, etcd and containerd, with a web dashboard
// and a terminal console.
package main

import (
	"os"

	"orrery.dev/cmd"
)

func main() { os.Exit(cmd.Main(os.Args)) }
