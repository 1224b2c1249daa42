package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"orrery.dev/client"
	"orrery.dev/cluster"
	"orrery.dev/controllers"
	"orrery.dev/nodeagent"
	"orrery.dev/nodeagent/simulate"
	"orrery.dev/scheduler"
	"orrery.dev/server"
	"orrery.dev/trace"
)

// simulateDir is where a simulated cluster keeps its things.
func simulateDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "orrery", "simulated")
}

// runSimulated runs a whole cluster in this process until ctx ends: etcd, API
// server, scheduler, controllers, and node agents over a runtime that pretends.
// The parts talk to each other as on a real cluster, over TLS.
func runSimulated(ctx context.Context, out io.Writer, o upOptions) error {
	if o.dataDir == "" {
		o.dataDir = simulateDir()
	}
	if o.nodes < 1 || o.nodes > maxSimulatedNodes {
		return fmt.Errorf("--nodes %d: between 1 and %d", o.nodes, maxSimulatedNodes)
	}
	host, port, err := splitAddress(o.address)
	if err == nil {
		err = checkConsole(&o.console)
	}
	if err != nil {
		return err
	}
	layout := cluster.Layout{Dir: o.dataDir}
	for _, dir := range []string{layout.Etcd(), filepath.Dir(layout.Log("simulated"))} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("--data-dir: %w", err)
		}
	}
	logFile, err := os.OpenFile(layout.Log("simulated"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	log := logInto(logFile, "simulated")

	say := newProgress(out)
	if err := say.step("certificates", func() error { return simulatedPKI(layout, host, port, o.serviceCIDR) }); err != nil {
		return err
	}
	faces, err := newSimulatedFaces(layout)
	if err != nil {
		return err
	}
	etcd := simulatedEtcd(layout)
	ready := make(chan *clientv3.Client, 1)
	etcd.Ready = func(c *clientv3.Client) { ready <- c }
	return together(ctx,
		func(ctx context.Context) error { return cluster.RunEtcd(ctx, etcd) },
		func(ctx context.Context) error {
			var store *clientv3.Client
			if err := say.step("etcd", func() error {
				select {
				case store = <-ready:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}); err != nil {
				return err
			}
			flags, err := simulatedAPI(layout, host, port, o.serviceCIDR, o.apiServerArgs)
			if err != nil {
				return fmt.Errorf("--apiserver-arg: %w", err)
			}
			flags.dialAgents, flags.agentName = faces.agents.Dial, "localhost"
			return serveSimulated(ctx, out, say, layout, flags, store, faces, o, log)
		},
		faces.agents.Run,
		faces.streams.Run,
	)
}

// simulatedFaces are the two servers that all simulated nodes share.
type simulatedFaces struct {
	agents  *nodeagent.SharedServer // the node agents' HTTP API
	streams *simulate.Streams       // exec and attach of the pretended runtimes
}

func newSimulatedFaces(layout cluster.Layout) (simulatedFaces, error) {
	kubelet := kubeletv1beta1.KubeletConfiguration{TLSCertFile: layout.PKI("kubelet.crt"), TLSPrivateKeyFile: layout.PKI("kubelet.key")}
	kubelet.Authentication.X509.ClientCAFile = layout.PKI("ca.crt")
	streams, err := simulate.NewStreams()
	return simulatedFaces{agents: nodeagent.NewSharedServer(kubelet), streams: streams}, err
}

// serveSimulated runs everything over etcd.
func serveSimulated(ctx context.Context, out io.Writer, say *progress, layout cluster.Layout, flags apiOptions, etcd *clientv3.Client, faces simulatedFaces, o upOptions, log *slog.Logger) error {
	api, err := newAPI(flags, etcd, log)
	if err != nil {
		return err
	}
	return together(ctx,
		api.run,
		func(ctx context.Context) error { return flags.serve(ctx, api.server) },
		func(ctx context.Context) error { return runSimulatedParts(ctx, out, say, layout, faces, o, log) },
	)
}

// splitAddress takes an address apart that we can listen on.
func splitAddress(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || net.ParseIP(host) == nil {
		return "", 0, fmt.Errorf("--address %q is not of the form IP:PORT", address)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", 0, fmt.Errorf("--address %s: %w; name another", address, err)
	}
	return host, port, l.Close()
}

func simulatedPKI(layout cluster.Layout, host string, port int, serviceCIDR string) error {
	service, err := nthAddress(serviceCIDR, 1)
	if err != nil {
		return err
	}
	if _, err := cluster.Ensure(layout.PKI(""), cluster.Spec{NodeName: "simulated", IPs: []net.IP{net.ParseIP(host)}, ServiceIP: net.ParseIP(service)}); err != nil {
		return err
	}
	_, err = cluster.EnsureKubeconfigs(layout.PKI(""), cluster.Kubeconfigs(layout.Kubeconfig, "https://"+net.JoinHostPort(host, strconv.Itoa(port)))...)
	return err
}

// simulatedEtcd is one member that listens on sockets only. It does not sync to
// disk: a simulation may lose its last moments in a power cut.
func simulatedEtcd(layout cluster.Layout) cluster.EtcdConfig {
	socket := func(name string) []string { return []string{"unix://" + filepath.Join(layout.Dir, name)} }
	return cluster.EtcdConfig{Name: "simulated", DataDir: layout.Etcd(), UnsafeNoFsync: true,
		ListenClientURLs: socket("etcd.sock"), ListenPeerURLs: socket("etcd-peer.sock")}
}

// simulatedAPI is the API server as a command line would have it, with further
// flags.
func simulatedAPI(layout cluster.Layout, host string, port int, serviceCIDR string, further []string) (apiOptions, error) {
	pki := layout.PKI
	var o apiOptions
	f := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	o.flags(f)
	err := f.Parse(cluster.WithArgs([]string{
		"--bind-address=" + host, "--advertise-address=" + host, fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"), "--client-ca-file=" + pki("ca.crt"),
		"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"), "--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
		"--kubelet-certificate-authority=" + pki("ca.crt"),
		"--proxy-client-cert-file=" + pki("front-proxy-client.crt"), "--proxy-client-key-file=" + pki("front-proxy-client.key"),
		"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--service-account-signing-key-file=" + pki("sa.key"), "--service-account-key-file=" + pki("sa.pub"),
		"--service-cluster-ip-range=" + serviceCIDR, "--enable-admission-plugins=NodeRestriction",
	}, further))
	// They run in this process: where one ends, all do.
	o.components = []server.Check{{Name: "scheduler", Ask: inProcess}, {Name: "controller-manager", Ask: inProcess}, {Name: "etcd-0", Ask: inProcess}}
	return o, err
}

func inProcess(context.Context) (string, error) { return "ok", nil }

// simulatedClient is how a component of the simulation talks to the API server.
type simulatedClient struct {
	clients kubernetes.Interface
	config  *rest.Config
	spans   *trace.Tracer
}

func connectAs(component string, layout cluster.Layout) (c simulatedClient, err error) {
	if c.clients, c.config, err = client.New(layout.Kubeconfig("admin"), component); err == nil {
		c.spans, err = client.Spans(c.config, component)
	}
	return c, err
}

// leading starts a part again that has lost its lead, as a node would its pod:
// the machine may have slept, or been too busy to renew a lease.
func leading(part func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			if err := part(ctx); ctx.Err() != nil || !errors.Is(err, client.ErrLostLead) {
				return err
			}
		}
	}
}

// runSimulatedParts runs everything that is a client of the API.
func runSimulatedParts(ctx context.Context, out io.Writer, say *progress, layout cluster.Layout, faces simulatedFaces, o upOptions, log *slog.Logger) error {
	scheduling, err1 := connectAs("kube-scheduler", layout)
	controlling, err2 := connectAs("kube-controller-manager", layout)
	running, err3 := connectAs("kubelet", layout)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	n := node{upOptions: o, layout: layout}
	if err := say.step("API server", func() error { return n.waitAPI(ctx) }); err != nil {
		return err
	}
	parts := []func(context.Context) error{
		scheduling.spans.Run, controlling.spans.Run, running.spans.Run,
		leading(func(ctx context.Context) error {
			return scheduler.Run(ctx, scheduler.Config{Clients: scheduling.clients, LeaderElect: true, Log: log, Trace: scheduling.spans})
		}),
		leading(func(ctx context.Context) error {
			ca, err := os.ReadFile(layout.PKI("ca.crt"))
			if err != nil {
				return err
			}
			tokens, err := accountTokens(layout.PKI("sa.key"))
			if err != nil {
				return err
			}
			return controllers.Run(ctx, controllers.Config{REST: controlling.config, Trace: controlling.spans, LeaderElect: true, RootCA: ca, AccountToken: tokens,
				SigningCert: layout.PKI("ca.crt"), SigningKey: layout.PKI("ca.key"), ServiceCIDR: o.serviceCIDR})
		}),
	}
	agents, err := simulatedAgents(ctx, o.nodes, faces.streams, nodeagent.Config{Clients: running.clients, Server: faces.agents, Log: log, Trace: running.spans}, func(c *nodeagent.Config, number int) {
		c.NodeName = fmt.Sprintf("node-%d", number)
		c.NodeIP = fmt.Sprintf("172.%d.%d.%d", 16+number>>16, number>>8&255, number&255)
	})
	if err != nil {
		return err
	}
	parts = append(parts, agents...)
	if parts, err = withConsole(ctx, parts, o.console, layout, log); err != nil {
		return err
	}
	parts = append(parts, func(ctx context.Context) error {
		err := say.step(fmt.Sprintf("%d nodes ready", o.nodes), func() error { return n.waitAllNodes(ctx) })
		if err != nil {
			return err
		}
		fmt.Fprintf(out, `
The simulated cluster is up; Ctrl-C stops it.

  kubectl      export KUBECONFIG=%s
  dashboard    https://%s/ui/    sign in by: orrery dashboard
  console      orrery tui
%s`, layout.Kubeconfig("admin"), o.address, consoleReport(o.console, layout, "127.0.0.1"))
		<-ctx.Done()
		return nil
	})
	return together(ctx, parts...)
}
