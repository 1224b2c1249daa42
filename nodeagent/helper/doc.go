// Command helper is the small program that runs once per pod or per call: the
// containerd shim and the CNI plugin. It is apart from
// orrery's own binary because that one pays a fifth of a second of CPU and
// 17 MB for the package initialisation of everything linked into it, which no
// pod should pay.
//
// It chooses its part by the name it was started under. Names must be hard
// links, not symbolic links: the shim starts itself a second time by the path
// of its executable, which has symbolic links resolved.
//
//	containerd-shim-runc-v2   the shim (one per pod)
//	orrery-cni                the CNI plugin (cni.go)
//
// A pod's network is point to point: one veth pair per pod, a host route to the
// pod's address, and a default route in the pod to the node's gateway address.
// There is no bridge, so neither br_netfilter nor hairpin mode is needed, every
// packet passes the node's routing, and with permanent neighbours on both ends
// there is no ARP to wait for. Masquerading and host ports are one nftables
// table, spoken over netlink without any binary, made anew with each pod in
// one transaction and so self-healing.
//
// It is built ahead of the main binary, which embeds it (package built), and so
// is the pause program beside it:
//
//	CGO_ENABLED=0 go build -ldflags "-s -w" -o nodeagent/helper/built/helper ./nodeagent/helper
//	CGO_ENABLED=0 go build -ldflags "-s -w" -o nodeagent/helper/built/pause ./nodeagent/helper/pause
package main
