package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"orrery.dev/cluster"
	"orrery.dev/cluster/machine"
)

// machineStop bounds how long a machine may take to stop its pods.
const machineStop = time.Minute

// machines are the further nodes of the cluster on this machine: node 2 and up.
// One that was made stays, until the cluster's data goes.
func (n *node) machines() []machine.Machine {
	count := n.nodes
	for exists(n.machineDir(count + 1)) {
		count++
	}
	var all []machine.Machine
	addr := machine.Router(n.machineRange()).Addr()
	for i := 2; i <= count; i++ {
		addr = addr.Next()
		all = append(all, machine.Machine{
			Name: n.machineName(i), Link: fmt.Sprintf("orrery-n%d", i), Addr: addr,
			Dir: n.machineDir(i), DataDir: n.dataDir, Volatile: volatile(n.layout),
		})
	}
	return all
}

// machineName is what the machine was called when it was made.
func (n *node) machineName(i int) string {
	m := machine.Machine{Dir: n.machineDir(i)}
	if name := m.KnownAs(); name != "" {
		return name
	}
	return fmt.Sprintf("%s-%d", n.nodeName, i)
}

func (n *node) machineDir(i int) string { return filepath.Join(n.dataDir, "nodes", strconv.Itoa(i)) }

// volatile are the directories of a node that a reboot would empty: those of the
// data directory's own, and the one that all share.
func volatile(l cluster.Layout) []string {
	own, shared := l.Volatile(""), cluster.Layout{Dir: cluster.DefaultDataDir}.Volatile("")
	if own == shared {
		return []string{own}
	}
	return []string{own, shared}
}

// machineRange is valid: complete has checked it.
func (n *node) machineRange() netip.Prefix { return netip.MustParsePrefix(n.nodeCIDR).Masked() }

// process is the first process of a machine.
func (n *node) process(m machine.Machine) process {
	number := filepath.Base(m.Dir)
	return process{file: n.layout.Volatile("node-" + number + ".pid"), log: n.layout.Log("node-" + number), namespaces: machine.Namespaces}
}

// checkMachines holds the range of the machines' addresses against the others.
func (o *upOptions) checkMachines() error {
	if o.nodes < 1 {
		return fmt.Errorf("--nodes %d: a cluster has at least one node", o.nodes)
	}
	nodes, err := netip.ParsePrefix(o.nodeCIDR)
	if err != nil || !nodes.Addr().Is4() {
		return fmt.Errorf("--node-cidr %q is not a range of IPv4 addresses such as 10.245.0.0/24", o.nodeCIDR)
	}
	if most := 1<<(32-nodes.Bits()) - 3; o.nodes > most {
		return fmt.Errorf("--nodes %d: the range %s has addresses for %d; give another with --node-cidr", o.nodes, nodes, most)
	}
	for flag, text := range map[string]string{"--service-cidr": o.serviceCIDR, "--pod-cidr": o.podCIDR} {
		if other, err := netip.ParsePrefix(text); err == nil && other.Overlaps(nodes) {
			return fmt.Errorf("--node-cidr %s overlaps with %s %s", nodes, flag, other)
		}
	}
	if o.nodes > 1 && o.runtimeEndpoint != "" {
		return errors.New("--nodes and --container-runtime-endpoint do not go together: each node runs a container runtime of its own")
	}
	return nil
}

// startMachines starts the further nodes; each is given the cluster's authority,
// and certificates of its own.
func (n *node) startMachines(ctx context.Context) error {
	all := n.machines()
	if len(all) == 0 {
		return nil
	}
	pods, err := netip.ParsePrefix(n.podCIDR)
	if err != nil {
		return err
	}
	if err := machine.SetUpNetwork(n.machineRange(), pods); err != nil {
		return err
	}
	for _, m := range all {
		if err := n.startMachine(m); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) startMachine(m machine.Machine) error {
	if err := m.Prepare(); err != nil {
		return err
	}
	there := cluster.Layout{Dir: m.Data()}
	if err := cluster.EnsureNode(there.PKI(""), n.layout.PKI(""), cluster.Spec{NodeName: m.Name, IPs: []net.IP{m.Addr.AsSlice()}}); err != nil {
		return err
	}
	server := "https://" + net.JoinHostPort(n.nodeIP, "6443")
	if _, err := cluster.EnsureKubeconfigs(there.PKI(""), cluster.NodeKubeconfig(there.Kubeconfig, server)); err != nil {
		return err
	}
	mirrors, err := n.copyMirrors(there)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p := n.process(m)
	if err := p.start(self, "node", "--machine="+m.Dir, "--data-dir="+n.dataDir, "--node-name="+m.Name, "--node-ip="+m.Addr.String(),
		"--service-cidr="+n.serviceCIDR, "--pod-cidr="+n.podCIDR, "--registry-config="+mirrors,
		"--cgroup-root="+machineCgroups+"/"+filepath.Base(m.Dir)); err != nil {
		return err
	}
	pid := p.pid()
	if pid == 0 {
		return fmt.Errorf("node %s ended at once: see %s", m.Name, p.log)
	}
	return m.Connect(pid, n.machineRange())
}

// copyMirrors gives a machine its own copy of --registry-config, which may be
// where it cannot see it. It returns the place in the machine's eyes.
func (n *node) copyMirrors(there cluster.Layout) (string, error) {
	if n.registryConfig == "" {
		return "", nil
	}
	if err := os.RemoveAll(there.Mirrors()); err != nil {
		return "", err
	}
	if err := os.CopyFS(there.Mirrors(), os.DirFS(n.registryConfig)); err != nil {
		return "", fmt.Errorf("--registry-config: %w", err)
	}
	return n.layout.Mirrors(), nil
}

// machineCgroups is the control group that holds those of the machines' pods.
const machineCgroups = "/orrery-nodes"

// stopMachines ends the further nodes, all at once: their pods, then what is left
// of their processes.
func (n *node) stopMachines(context.Context) error {
	var stopping sync.WaitGroup
	all := n.machines()
	errs := make([]error, len(all))
	for i, m := range all {
		stopping.Go(func() { errs[i] = n.process(m).stop(machineStop) })
	}
	stopping.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return machine.RemoveNetwork()
}

// mendMachines starts a machine again that has ended.
func (n *node) mendMachines(out io.Writer) {
	for _, m := range n.machines() {
		if n.process(m).running() {
			continue
		}
		if err := n.startMachine(m); err != nil {
			fmt.Fprintf(out, "node %s ended and cannot be started: %v\n", m.Name, err)
			continue
		}
		fmt.Fprintf(out, "node %s ended and was started again\n", m.Name)
	}
}

// runtimes are the sockets of the container runtimes of all nodes that run here,
// this machine's first. That of another is reached through the eyes of its first
// process.
func (n *node) runtimes() []string {
	all := []string{n.layout.RuntimeSocket()}
	for _, m := range n.machines() {
		if pid := n.process(m).pid(); pid != 0 {
			all = append(all, fmt.Sprintf("/proc/%d/root%s", pid, n.layout.RuntimeSocket()))
		}
	}
	return all
}
