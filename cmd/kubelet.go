package cmd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"orrery.dev/client"
	"orrery.dev/cluster"
	"orrery.dev/nodeagent"
	"orrery.dev/nodeagent/runtime"
)

func newKubeletCommand() *cobra.Command {
	var where connection
	var configFile, labels, taints, cniDir, clusterCIDR, dataDir string
	var simulated int
	o := nodeagent.Config{Version: kubernetesVersion}
	c := &cobra.Command{
		Use: "kubelet", Short: "Run this node's pods", Args: cobra.NoArgs,
		Long: `Run this node's pods.

With --simulate N the agents of N nodes run in this process, and pretend to run
their pods; nothing of the machine is touched, and root is not needed. They join
any cluster that --kubeconfig gives them the rights for. Their names are node-1,
node-2 and so on, or have --hostname-override in place of "node". Logs and exec
work if --config names a certificate: each agent listens on a port of its own,
upwards from the configuration's.`,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Log = logTo("kubelet")
			var err error
			if o.Kubelet, err = readKubeletConfig(configFile); err != nil {
				return err
			}
			if o.Labels, err = parseLabels(labels); err != nil {
				return err
			}
			if o.Taints, err = parseTaints(taints); err != nil {
				return err
			}
			if where.kubeconfig != "" {
				if o.REST, err = where.config("kubelet"); err != nil {
					return err
				}
			}
			if o.Trace, err = client.Spans(o.REST, "kubelet"); err != nil {
				return err
			}
			go func() { _ = o.Trace.Run(c.Context()) }() // ends with the program
			if simulated > 0 {
				return runSimulatedNodes(c.Context(), simulated, o)
			}
			if o.NodeName == "" {
				if o.NodeName, err = os.Hostname(); err != nil {
					return fmt.Errorf("host name: %w; give --hostname-override", err)
				}
			}
			o.PodLogsDir = o.Kubelet.PodLogsDir
			o.Pages = zpages{component: "kubelet", flags: c.Flags(), paths: nodeagent.Paths}.handlers()
			if o.Runtime, o.Images, err = runtime.Connect(c.Context(), o.Kubelet.ContainerRuntimeEndpoint); err != nil {
				return err
			}
			if cniDir != "" {
				o.PodCIDR = func(_ context.Context, podCIDR string) error {
					// `orrery down` takes the range's leftovers back.
					if err := os.WriteFile(filepath.Join(o.RootDir, podRangeFile), []byte(podCIDR), 0o644); err != nil {
						return err
					}
					return runtime.WriteCNIConfig(cniDir, podCIDR, clusterCIDR, 0)
				}
			}
			if dataDir != "" {
				go upkeep{layout: cluster.Layout{Dir: dataDir}, log: o.Log}.run(c.Context()) // ends with the program
			}
			return nodeagent.Run(c.Context(), o)
		},
	}
	where.flags(c)
	f := c.Flags()
	f.StringVar(&configFile, "config", "", "KubeletConfiguration file (kubelet.config.k8s.io/v1beta1)")
	f.StringVar(&o.NodeName, "hostname-override", "", "name of this node (default: the host name)")
	f.StringVar(&o.NodeIP, "node-ip", "", "address of this node")
	f.StringVar(&o.RootDir, "root-dir", "/var/lib/kubelet", "pods' directories and volumes")
	f.StringVar(&dataDir, "data-dir", "", "data directory of a node of orrery, to look after: logs are kept short and certificates renewed")
	f.StringVar(&labels, "node-labels", "", "labels to register the node with: key=value,...")
	f.StringVar(&taints, "register-with-taints", "", "taints to register the node with: key=value:effect,...")
	f.StringVar(&cniDir, "cni-conf-dir", "", "write the pod network's configuration here once the node has its addresses; empty: another network is installed")
	f.IntVar(&simulated, "simulate", 0, "run this many nodes that only pretend to run their pods")
	f.StringVar(&clusterCIDR, "cluster-cidr", "", "addresses of pods, for that configuration")
	return c
}

// podRangeFile holds the node's share of the pod network, below the node agent's
// root.
const podRangeFile = "pod-cidr"

func readKubeletConfig(path string) (kubeletv1beta1.KubeletConfiguration, error) {
	var config kubeletv1beta1.KubeletConfiguration
	if path == "" {
		return config, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return config, fmt.Errorf("--config: %w", err)
	}
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		return config, fmt.Errorf("--config %s: %w", path, err)
	}
	if want := kubeletv1beta1.SchemeGroupVersion.String(); config.APIVersion != want || config.Kind != "KubeletConfiguration" {
		return config, fmt.Errorf("--config %s: is a %s %s, not a %s KubeletConfiguration", path, config.APIVersion, config.Kind, want)
	}
	return config, nil
}

func parseLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("--node-labels: %q is not of the form key=value", part)
		}
		labels[key] = value
	}
	return labels, nil
}

func parseTaints(text string) ([]corev1.Taint, error) {
	var taints []corev1.Taint
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		what, effect, ok := strings.Cut(part, ":")
		if !ok {
			return nil, fmt.Errorf("--register-with-taints: %q is not of the form key=value:effect", part)
		}
		key, value, _ := strings.Cut(what, "=")
		taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return taints, nil
}
