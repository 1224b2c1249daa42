// Package runtime is the node agent's way to a container runtime.
//
// Connect gives the CRI client, which is all that the node agent needs of any
// runtime. The rest is about containerd as the runtime that comes along:
// Containerd writes its configuration for this machine (what the kernel and our
// own capabilities allow is probed, not asked), WriteHelper writes out the shim
// and the CNI plugin, WriteCNIConfig the pod network, ServeContainerd is the
// server itself, run as a process of its own so that pods outlive the agent.
//
// CRI has no way to bring in an image without a registry, so images go in
// through containerd's own client: Import takes image files, ImportPause and
// ImportBinary put in the two images that are made here.
package runtime
