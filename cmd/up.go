package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"orrery.dev/client"
	"orrery.dev/cluster"
)

// upOptions are the flags of `orrery up`.
type upOptions struct {
	dataDir         string
	nodeName        string
	nodeIP          string
	runtimeEndpoint string
	serviceCIDR     string
	podCIDR         string
	timeout         time.Duration
	foreground      bool
	simulate        bool
	nodes           int
	nodeCIDR        string
	registryConfig  string
	cgroupRoot      string
	address         string
	apiServerArgs   []string
	apiServerMounts []string
	console         cluster.Console
}

func newUpCommand() *cobra.Command {
	o := upOptions{}
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster on this machine, or go on with the one that is there",
		Long: `Start a cluster on this machine, or go on with the one that is there.

The node agent and the container runtime run on the host; everything else runs
in pods: etcd, API server, scheduler and controller manager as static pods,
kube-proxy and DNS through the API. All state is below --data-dir.

It returns once the cluster is usable, and the cluster runs on. With --foreground
it stays, starts the node agent and the container runtime again when they end,
and when it is told to end (SIGTERM, Ctrl-C) stops the cluster as orrery down
does. As process 1, in a container, it always stays.

With --nodes there are more nodes than this machine: each of the others is a
machine within this one, with a network, processes, a container runtime and a data
directory of its own. The first node runs the control plane and is kept free of
other pods, the others take them.

With --simulate nothing needs root: the same API server, scheduler and
controllers run in this process over an embedded etcd, and the nodes pretend to
run their pods. It stops with Ctrl-C.`,
		Example: "  sudo orrery up\n  sudo orrery up --nodes 3\n  orrery up --simulate --nodes 5",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.simulate {
				return runSimulated(c.Context(), c.OutOrStdout(), o)
			}
			return runUp(c.Context(), c.OutOrStdout(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.dataDir, "data-dir", "", "where the cluster keeps everything (default "+cluster.DefaultDataDir+"; simulated: "+simulateDir()+")")
	f.StringVar(&o.nodeName, "node-name", "", "name of this node (default: the host name)")
	f.StringVar(&o.nodeIP, "node-ip", "", "address of this node (default: that of the default route)")
	f.StringVar(&o.runtimeEndpoint, "container-runtime-endpoint", "", "CRI socket of another container runtime (default: containerd, which comes along)")
	networkFlags(f, &o)
	f.StringArrayVar(&o.apiServerArgs, "apiserver-arg", nil, "further flag of the API server, such as --audit-policy-file=/etc/orrery/audit.yaml; repeatable")
	f.StringArrayVar(&o.apiServerMounts, "apiserver-mount", nil, "directory that the API server may read, beside those of the files that its flags name; repeatable")
	f.StringVar(&o.console.Address, "console-ssh", "", "serve the console by SSH at this IP:PORT, to the users of --console-keys (default: not at all)")
	f.StringVar(&o.console.Keys, "console-keys", "", "file in the form of authorized_keys, whose options say who may come: user=\"alice\",group=\"dev\"")
	f.DurationVar(&o.timeout, "timeout", 3*time.Minute, "how long to wait until the cluster is usable")
	f.BoolVar(&o.foreground, "foreground", os.Getpid() == 1, "stay, and stop the cluster at the end")
	f.BoolVar(&o.simulate, "simulate", false, "simulate the nodes; no root needed")
	f.IntVar(&o.nodes, "nodes", 1, "number of nodes, this machine being the first (simulated: none of them is)")
	f.StringVar(&o.nodeCIDR, "node-cidr", "10.245.0.0/24", "addresses of the nodes within this machine")
	f.StringVar(&o.address, "address", "127.0.0.1:6443", "where the simulated cluster's API server listens")
	return c
}

// networkFlags are those that all nodes of a cluster are given alike.
func networkFlags(f *pflag.FlagSet, o *upOptions) {
	f.StringVar(&o.serviceCIDR, "service-cidr", "10.96.0.0/12", "addresses of Services")
	f.StringVar(&o.podCIDR, "pod-cidr", "10.244.0.0/16", "addresses of pods")
	f.StringVar(&o.registryConfig, "registry-config", "", "directory of hosts.toml files that name mirrors of registries (default: /etc/containerd/certs.d)")
}

// runUp brings the cluster up, and stays with it if asked to. A start that is
// broken off in the foreground takes back what it has done.
func runUp(ctx context.Context, out io.Writer, o upOptions) error {
	if err := errors.Join(o.complete(), o.checkMachines()); err != nil {
		return err
	}
	n := &node{upOptions: o, layout: cluster.Layout{Dir: o.dataDir}}
	if !o.foreground {
		return n.bringUp(ctx, out)
	}
	if err := n.bringUp(ctx, out); err != nil && ctx.Err() == nil {
		return err
	}
	return n.stay(ctx, out)
}

// bringUp goes step by step. Each step leaves alone what is as it should be, so
// that a second run does nothing and one after a crash mends.
func (n *node) bringUp(ctx context.Context, out io.Writer) error {
	say := newProgress(out)
	if !n.agent().running() {
		for _, check := range preflight(n.dataDir, n.nodeIP, n.runtimeEndpoint == "") {
			if err := n.tolerate(check); err != nil {
				return err
			}
		}
	}
	if n.foreground {
		if err := leaveRootCgroup(); err != nil {
			return err
		}
	}
	steps := []step{
		{"certificates", n.certificates},
		{"container runtime", n.startRuntime},
		{"images", n.loadImages},
		{"control plane manifests", n.manifests},
		{"node agent", n.startAgent},
		{"API server", n.waitAPI},
		{"add-ons", n.addons},
		{"node ready", n.waitNode},
		{"system pods ready", n.waitSystemPods},
	}
	if further := len(n.machines()); further > 0 {
		n.nodes = 1 + further
		// After what they would only compete with for the processor.
		steps = slices.Insert(steps, 6, step{"further nodes", n.startMachines})
		steps = slices.Insert(steps, len(steps)-1, step{"further nodes ready", n.waitAllNodes})
	}
	ctx, cancel := context.WithTimeout(ctx, n.timeout)
	defer cancel()
	for _, s := range steps {
		if err := say.step(s.what, func() error { return s.do(ctx) }); err != nil {
			return err
		}
	}
	n.report(out)
	return nil
}

// step is one of those that bring a cluster up or take it down.
type step struct {
	what string
	do   func(context.Context) error
}

// complete fills in what the flags left open.
func (o *upOptions) complete() error {
	if o.dataDir == "" {
		o.dataDir = cluster.DefaultDataDir
	}
	var err error
	if o.dataDir, err = filepath.Abs(o.dataDir); err != nil {
		return err
	}
	if o.nodeName == "" {
		if o.nodeName, err = os.Hostname(); err != nil {
			return fmt.Errorf("host name: %w; give --node-name", err)
		}
		o.nodeName = strings.ToLower(o.nodeName)
	}
	if o.nodeIP == "" {
		if o.nodeIP, err = defaultAddress(); err != nil {
			return err
		}
	}
	if net.ParseIP(o.nodeIP) == nil {
		return fmt.Errorf("--node-ip %q is not an address", o.nodeIP)
	}
	if err := checkConsole(&o.console); err != nil {
		return err
	}
	for _, dir := range o.apiServerMounts {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("--apiserver-mount %q is not an absolute path", dir)
		}
	}
	for flag, cidr := range map[string]string{"--service-cidr": o.serviceCIDR, "--pod-cidr": o.podCIDR} {
		if _, _, err := net.ParseCIDR(cidr); err != nil {
			return fmt.Errorf("%s %q is not a range of addresses such as 10.96.0.0/12", flag, cidr)
		}
	}
	return nil
}

// defaultAddress is the address that this machine uses towards others: the one
// of its default route, or else of its first interface that is up.
func defaultAddress() (string, error) {
	// Connecting a UDP socket sends nothing; it only asks for the route.
	if conn, err := net.Dial("udp", "192.0.2.1:9"); err == nil {
		defer conn.Close()
		return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("addresses of this machine: %w; give --node-ip", err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String(), nil
		}
	}
	return "", errors.New("this machine has no address but loopback: give --node-ip")
}

// node is this machine on its way into the cluster.
type node struct {
	upOptions
	layout cluster.Layout
	image  string // of this binary, once loaded
	client kubernetes.Interface
	worker bool // it has no control plane
}

// tolerate runs a check. Ports are allowed to be taken by our own pods: after a
// crash of the node agent, and of the runtime, they run on.
func (n *node) tolerate(c check) error {
	if c.name == "ports" && n.mayHavePods() {
		return nil
	}
	return c.fail()
}

// mayHavePods reports whether pods were started since the machine booted.
func (n *node) mayHavePods() bool {
	tasks, _ := filepath.Glob(n.layout.Volatile("containerd/io.containerd.runtime.v2.task/k8s.io/*"))
	return len(tasks) > 0
}

// waitAPI connects and waits until the API server is ready.
func (n *node) waitAPI(ctx context.Context) error {
	clients, _, err := client.New(n.layout.Kubeconfig("admin"), "up")
	if err != nil {
		return err
	}
	n.client = clients
	return poll(ctx, "the API server is not ready", func(ctx context.Context) (string, error) {
		body, err := clients.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil {
			return n.agentTrouble(err.Error()), nil
		}
		if string(body) != "ok" {
			return string(body), nil
		}
		return "", nil
	})
}

// agentTrouble prefers the news that the node agent died over the refused
// connection that follows from it.
func (n *node) agentTrouble(otherwise string) string {
	if !n.agent().running() {
		return "the node agent ended: see " + n.layout.Log("kubelet")
	}
	return otherwise
}

func (n *node) addons(ctx context.Context) error {
	cfg, err := client.Load(n.layout.Kubeconfig("admin"), "up")
	if err != nil {
		return err
	}
	cfg.ContentType, cfg.AcceptContentTypes = "", ""
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	dns, err := nthAddress(n.serviceCIDR, 10)
	if err != nil {
		return err
	}
	addons := cluster.Addons{Image: n.image, APIServer: "https://" + net.JoinHostPort(n.nodeIP, "6443"),
		PodCIDR: n.podCIDR, RoutePods: n.cniConfDir() != "", DNSIP: dns, Domain: "cluster.local"}
	return poll(ctx, "the add-ons cannot be applied", func(ctx context.Context) (string, error) {
		if err := errors.Join(addons.Apply(ctx, dyn), n.console.Apply(ctx, dyn)); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
}

// waitNode waits until the node is ready, and gives it the label of its role,
// which a node may not give itself.
func (n *node) waitNode(ctx context.Context) error {
	role := []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`)
	labelled := false
	return poll(ctx, "node "+n.nodeName+" is not ready", func(ctx context.Context) (string, error) {
		node, err := n.client.CoreV1().Nodes().Get(ctx, n.nodeName, metav1.GetOptions{})
		if err != nil {
			return n.agentTrouble(err.Error()), nil
		}
		if !labelled {
			if _, err := n.client.CoreV1().Nodes().Patch(ctx, n.nodeName, types.StrategicMergePatchType, role, metav1.PatchOptions{}); err != nil {
				return err.Error(), nil
			}
			labelled = true
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				if c.Status == corev1.ConditionTrue {
					return "", nil
				}
				return n.agentTrouble(c.Message), nil
			}
		}
		return "it has not reported yet", nil
	})
}

// waitAllNodes waits until as many nodes are ready as were asked for.
func (n *node) waitAllNodes(ctx context.Context) error {
	return poll(ctx, "not all nodes are ready", func(ctx context.Context) (string, error) {
		for _, m := range n.machines() {
			if p := n.process(m); !n.simulate && !p.running() {
				return "", fmt.Errorf("node %s ended: see %s", m.Name, p.log)
			}
		}
		nodes, err := n.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err.Error(), nil
		}
		ready := 0
		for i := range nodes.Items {
			// The taint goes a moment after the condition: until then nothing is put there.
			tainted := slices.ContainsFunc(nodes.Items[i].Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
			if nodeLine(&nodes.Items[i]).well && !tainted {
				ready++
			}
		}
		if ready < n.nodes {
			return fmt.Sprintf("%d of %d", ready, n.nodes), nil
		}
		return "", nil
	})
}

func (n *node) waitSystemPods(ctx context.Context) error {
	return poll(ctx, "not all system pods are ready", func(ctx context.Context) (string, error) {
		pods, err := n.client.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error(), nil
		}
		return missingSystemPod(pods.Items, n.nodes), nil
	})
}

// missingSystemPod says which of the pods that make up a cluster is not there or
// not ready, or "". What else users run beside them is not waited for.
func missingSystemPod(pods []corev1.Pod, nodes int) string {
	missing := map[string]bool{"component=etcd": true, "component=kube-apiserver": true, "component=kube-controller-manager": true,
		"component=kube-scheduler": true, "k8s-app=kube-proxy": true, "k8s-app=kube-dns": true}
	proxies := 0
	for i := range pods {
		pod := &pods[i]
		app := pod.Labels["k8s-app"]
		_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
		if !static && app != "kube-proxy" && app != "kube-dns" {
			continue
		}
		if why := whyNotReady(pod); why != "" {
			return pod.Name + ": " + why
		}
		if app == "kube-proxy" {
			proxies++
		}
		for _, key := range []string{"component", "k8s-app"} {
			delete(missing, key+"="+pod.Labels[key])
		}
	}
	for label := range missing {
		return "no pod with " + label + " yet"
	}
	if proxies < nodes {
		return fmt.Sprintf("kube-proxy runs on %d of %d nodes", proxies, nodes)
	}
	return ""
}

// whyNotReady is the shortest true reason, or "".
func whyNotReady(pod *corev1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil && w.Reason != "" {
			return strings.TrimSuffix(w.Reason+": "+w.Message, ": ")
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ""
		}
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	return string(pod.Status.Phase) + ", not ready"
}

// report says how to go on.
func (n *node) report(out io.Writer) {
	fmt.Fprintf(out, `
The cluster is up.

  kubectl      export KUBECONFIG=%s
               (or: orrery kubectl ...)
  dashboard    https://%s/ui/    sign in by: orrery dashboard
  console      orrery tui
%s`, n.layout.Kubeconfig("admin"), net.JoinHostPort(n.nodeIP, "6443"), consoleReport(n.console, n.layout, n.nodeIP))
	if n.nodes > 1 {
		return
	}
	if node, err := n.client.CoreV1().Nodes().Get(context.Background(), n.nodeName, metav1.GetOptions{}); err == nil && len(node.Spec.Taints) > 0 {
		fmt.Fprintf(out, `
This node runs the control plane and is kept free of other pods. To run yours
on it as well:

  orrery kubectl taint nodes %s node-role.kubernetes.io/control-plane:NoSchedule-
`, n.nodeName)
	}
}

// poll asks until there is nothing in the way any more; when ctx ends first, the
// last obstacle is the error. look returns an error only for what waiting cannot
// mend.
func poll(ctx context.Context, what string, look func(context.Context) (string, error)) error {
	obstacle := "no answer"
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		now, err := look(ctx)
		if err != nil {
			return err
		}
		if now == "" {
			tick.Stop()
			return nil
		}
		if ctx.Err() == nil {
			obstacle = now
		}
		select {
		case <-ctx.Done():
			tick.Stop()
			return fmt.Errorf("%s: %s", what, obstacle)
		case <-tick.C:
		}
	}
}

// nthAddress is the n-th address of a range: the API server's Service is the
// first of the service range, DNS the tenth.
func nthAddress(cidr string, n byte) (string, error) {
	ip, _, err := net.ParseCIDR(cidr)
	if err != nil {
		return "", err
	}
	first := ip.Mask(net.CIDRMask(8*len(ip)-8, 8*len(ip))).To4()
	if first == nil {
		return "", fmt.Errorf("%s: only IPv4 ranges are supported", cidr)
	}
	first[3] += n
	return first.String(), nil
}
