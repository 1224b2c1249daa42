package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/disk"
)

// network is the plugin's configuration, written by runtime.WriteCNIConfig.
type network struct {
	types.NetConf
	PodCIDR     string `json:"podCIDR"`     // this node's share, from which pods get addresses
	ClusterCIDR string `json:"clusterCIDR"` // all pods: traffic that stays inside keeps its source
	MTU         int    `json:"mtu"`         // 0: the kernel's default
	DataDir     string `json:"dataDir"`     // reservations, one file per address

	RuntimeConfig struct {
		PortMappings []hostPort `json:"portMappings"`
	} `json:"runtimeConfig"`

	pods, cluster *net.IPNet
}

func cniMain() int {
	err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: cniAdd, Del: cniDel, Check: cniCheck, GC: cniGC, Status: cniStatus,
	}, version.All, "orrery-cni: point-to-point pod network with host ports")
	if err == nil {
		return 0
	}
	if printErr := err.Print(); printErr != nil {
		fmt.Fprintln(os.Stderr, printErr)
	}
	return 1
}

func loadNetwork(stdin []byte) (*network, error) {
	n := &network{}
	if err := json.Unmarshal(stdin, n); err != nil {
		return nil, fmt.Errorf("network configuration: %w", err)
	}
	var err error
	if _, n.pods, err = net.ParseCIDR(n.PodCIDR); err != nil {
		return nil, fmt.Errorf("network configuration: podCIDR: %w", err)
	}
	if n.pods.IP.To4() == nil {
		return nil, fmt.Errorf("network configuration: podCIDR %s is not an IPv4 range", n.PodCIDR)
	}
	if n.ClusterCIDR == "" {
		n.ClusterCIDR = n.PodCIDR
	}
	if _, n.cluster, err = net.ParseCIDR(n.ClusterCIDR); err != nil {
		return nil, fmt.Errorf("network configuration: clusterCIDR: %w", err)
	}
	if n.DataDir == "" {
		return nil, errors.New("network configuration: dataDir is empty")
	}
	return n, nil
}

// reservations opens the address book. Its methods take the file lock that
// keeps concurrent calls apart.
func (n *network) reservations() (*disk.Store, *allocator.RangeSet, error) {
	store, err := disk.New(n.Name, n.DataDir)
	if err != nil {
		return nil, nil, fmt.Errorf("open address reservations: %w", err)
	}
	set := allocator.RangeSet{{Subnet: types.IPNet(*n.pods)}}
	if err := set.Canonicalize(); err != nil {
		store.Close()
		return nil, nil, fmt.Errorf("address range %s: %w", n.PodCIDR, err)
	}
	return store, &set, nil
}

// openNetwork is the configuration of a call and its address book.
func openNetwork(args *skel.CmdArgs) (*network, *disk.Store, *allocator.RangeSet, error) {
	n, err := loadNetwork(args.StdinData)
	if err != nil {
		return nil, nil, nil, err
	}
	store, ranges, err := n.reservations()
	return n, store, ranges, err
}

// cniAdd gives a pod its address, its interface and its host ports. When a step
// does not work out it takes back what came before, so that a second try finds
// a clean slate.
func cniAdd(args *skel.CmdArgs) (err error) {
	n, store, ranges, err := openNetwork(args)
	if err != nil {
		return err
	}
	defer store.Close()
	addresses := allocator.NewIPAllocator(ranges, store, 0)
	lease, err := addresses.Get(args.ContainerID, args.IfName, nil)
	if err != nil {
		return fmt.Errorf("allocate an address from %s: %w", n.PodCIDR, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, addresses.Release(args.ContainerID, args.IfName))
		}
	}()

	if err := enableForwarding(); err != nil {
		return err
	}
	pod := lease.Address.IP.To4()
	p := pair{
		host: hostInterface(args.ContainerID, args.IfName), pod: args.IfName, netns: args.Netns,
		podIP: pod, gateway: lease.Gateway.To4(), mtu: n.MTU,
	}
	interfaces, err := p.create()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, deleteLink(p.host))
		}
	}()
	if err := programRules(n, pod, p.host); err != nil {
		return err
	}
	result := &current.Result{
		CNIVersion: current.ImplementedSpecVersion,
		Interfaces: interfaces,
		IPs: []*current.IPConfig{{
			Interface: current.Int(1), Address: net.IPNet{IP: pod, Mask: net.CIDRMask(32, 32)}, Gateway: p.gateway,
		}},
		Routes: []*types.Route{{Dst: net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, GW: p.gateway}},
		DNS:    n.DNS,
	}
	return types.PrintResult(result, n.CNIVersion)
}

// cniDel takes back everything that cniAdd gave, and does not mind what is
// already gone: it is called again until it succeeds.
func cniDel(args *skel.CmdArgs) error {
	_, store, ranges, err := openNetwork(args)
	if err != nil {
		return err
	}
	defer store.Close()
	for _, ip := range store.GetByID(args.ContainerID, args.IfName) {
		if err := removeHostPorts(ip.To4()); err != nil {
			return err
		}
	}
	if err := deleteLink(hostInterface(args.ContainerID, args.IfName)); err != nil {
		return err
	}
	// The address goes last: nobody may get it while rules still name it.
	return allocator.NewIPAllocator(ranges, store, 0).Release(args.ContainerID, args.IfName)
}

func cniCheck(args *skel.CmdArgs) error {
	_, store, _, err := openNetwork(args)
	if err != nil {
		return err
	}
	defer store.Close()
	held := store.GetByID(args.ContainerID, args.IfName)
	if len(held) == 0 {
		return fmt.Errorf("no address is reserved for %s", args.ContainerID)
	}
	return checkPair(hostInterface(args.ContainerID, args.IfName), args.Netns, args.IfName, held[0].To4())
}

func cniStatus(args *skel.CmdArgs) error {
	n, err := loadNetwork(args.StdinData)
	if err != nil {
		return types.NewError(types.ErrInvalidNetworkConfig, err.Error(), "")
	}
	store, _, err := n.reservations()
	if err != nil {
		const pluginNotAvailable = 50 // the specification's code for "not ready"
		return types.NewError(pluginNotAvailable, err.Error(), "")
	}
	return store.Close()
}

// cniGC frees what belongs to no pod that the runtime still knows. Interfaces
// need no collecting, since they vanish with their pod's network namespace.
func cniGC(args *skel.CmdArgs) error {
	n, store, _, err := openNetwork(args)
	if err != nil {
		return err
	}
	defer store.Close()
	store.Lock()
	defer store.Unlock()
	return store.GC(n.ValidAttachments)
}
