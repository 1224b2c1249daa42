// Package runtime is the node agent's way to a container runtime: the CRI
// client, and containerd as the runtime that comes along (its configuration,
// its server process, image import).
package runtime
