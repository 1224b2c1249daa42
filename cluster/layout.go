package cluster

import (
	"fmt"
	"hash/fnv"
	"path/filepath"
)

// DefaultDataDir holds everything that a machine keeps of its cluster.
const DefaultDataDir = "/var/lib/orrery"

// Layout is where things are below one data directory. Certificates lie as
// kubeadm lays them out, so that its users find their way.
type Layout struct{ Dir string }

func (l Layout) at(parts ...string) string {
	return filepath.Join(append([]string{l.Dir}, parts...)...)
}

// PKI is the directory of certificates and keys; with a name, a file in it:
// PKI("etcd/ca.crt").
func (l Layout) PKI(name string) string { return l.at("pki", name) }

// Kubeconfig is the kubeconfig of a component or of "admin". Each component's
// lies in a directory of its own, so that its pod can mount that and nothing
// else, and sees the file being replaced.
func (l Layout) Kubeconfig(name string) string {
	if name == "admin" {
		return l.at("kubeconfig", "admin.conf")
	}
	return l.at("kubeconfig", name, name+".conf")
}

// ConsoleHostKey is the key by which SSH clients know the server of consoles.
func (l Layout) ConsoleHostKey() string { return l.at("kubeconfig", "console", "ssh_host_key") }

// Manifests is the static pod directory.
func (l Layout) Manifests() string { return l.at("manifests") }

// Etcd is etcd's data directory.
func (l Layout) Etcd() string { return l.at("etcd") }

// Containerd is the data directory of the container runtime: images, snapshots.
func (l Layout) Containerd() string { return l.at("containerd") }

// Volatile is for what must not survive a reboot: sockets, process files and the
// container runtime's state.
func (l Layout) Volatile(name string) string {
	base := "/run/orrery"
	if l.Dir != DefaultDataDir {
		sum := fnv.New32a()
		sum.Write([]byte(l.Dir))
		base = fmt.Sprintf("/run/orrery-%08x", sum.Sum32())
	}
	return filepath.Join(base, name)
}

// RuntimeSocket is where our containerd listens.
func (l Layout) RuntimeSocket() string { return l.Volatile("containerd/containerd.sock") }

// Kubelet is the node agent's root: volumes, plugins.
func (l Layout) Kubelet() string { return l.at("kubelet") }

// KubeletConfig is the KubeletConfiguration file.
func (l Layout) KubeletConfig() string { return l.at("kubelet", "config.yaml") }

// Bin holds the helper program and the CNI plugins.
func (l Layout) Bin() string { return l.at("bin") }

// CNI is the directory of network configurations.
func (l Layout) CNI() string { return l.at("cni") }

// Mirrors is a further node's copy of the directory of hosts.toml files.
func (l Layout) Mirrors() string { return l.at("certs.d") }

// Log is the log file of a process.
func (l Layout) Log(name string) string { return l.at("log", name+".log") }

// Volumes is where the local provisioner puts volumes. They are users' data.
func (l Layout) Volumes() string { return l.at("volumes") }

// PodLogs is where container logs go.
func (l Layout) PodLogs() string { return l.at("log", "pods") }
