package cmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"orrery.dev/cluster"
	"orrery.dev/nodeagent/runtime"
)

// imageName is the name under which this binary is in the runtime.
const imageName = "orrery.dev/orrery:" + orreryVersion

// agent is the node agent's process, runtime that of containerd.
func (n *node) agent() process {
	return process{file: n.layout.Volatile("kubelet.pid"), log: n.layout.Log("kubelet")}
}

// A containerd that starts beside running shims looks for their program in PATH,
// whatever its configuration says.
func (n *node) runtime() process {
	return process{file: n.layout.Volatile("containerd.pid"), log: n.layout.Log("containerd"), path: n.layout.Bin()}
}

func (p process) running() bool { return p.pid() != 0 }

// program is the file of this binary. A machine within this one may not see it at
// its place, but can always name what its own process runs.
func (n *node) program() (string, error) {
	if n.worker {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// endpoint is the CRI socket of the runtime in use.
func (n *node) endpoint() string {
	if n.runtimeEndpoint != "" {
		return n.runtimeEndpoint
	}
	return "unix://" + n.layout.RuntimeSocket()
}

// certificates makes or renews what is needed, and the kubeconfigs.
func (n *node) certificates(context.Context) error {
	service, err := nthAddress(n.serviceCIDR, 1)
	if err != nil {
		return err
	}
	if _, err := cluster.Ensure(n.layout.PKI(""), cluster.Spec{NodeName: n.nodeName, IPs: []net.IP{net.ParseIP(n.nodeIP)}, ServiceIP: net.ParseIP(service)}); err != nil {
		return err
	}
	server := "https://" + net.JoinHostPort(n.nodeIP, "6443")
	_, err = cluster.EnsureKubeconfigs(n.layout.PKI(""), cluster.Kubeconfigs(n.layout.Kubeconfig, server)...)
	return err
}

// containerd says where the runtime that comes along keeps its things.
func (n *node) containerd() runtime.Containerd {
	return runtime.Containerd{
		DataDir:    n.layout.Containerd(),
		StateDir:   n.layout.Volatile("containerd"),
		Address:    n.layout.RuntimeSocket(),
		HelperDir:  n.layout.Bin(),
		CNIConfDir: n.layout.CNI(),

		RegistryConfigPath: n.registryConfig,
	}
}

// startRuntime starts containerd, unless another runtime was named, and waits
// until the runtime answers.
func (n *node) startRuntime(ctx context.Context) error {
	if n.runtimeEndpoint == "" {
		if err := runtime.WriteHelper(n.layout.Bin()); err != nil {
			return err
		}
		config, err := n.containerd().WriteConfig()
		if err != nil {
			return err
		}
		self, err := n.program()
		if err != nil {
			return err
		}
		if err := n.runtime().start(self, "containerd", "--config", config); err != nil {
			return err
		}
	}
	return poll(ctx, "the container runtime does not answer", func(ctx context.Context) (string, error) {
		services, _, err := runtime.Connect(ctx, n.endpoint())
		if err == nil {
			_, err = services.Version(ctx, "")
		}
		if err == nil {
			return "", nil
		}
		if n.runtimeEndpoint == "" && !n.runtime().running() {
			return "", fmt.Errorf("containerd ended: see %s", n.runtime().log)
		}
		return err.Error(), nil
	})
}

// loadImages puts this binary's own image and the pause image into the runtime.
func (n *node) loadImages(ctx context.Context) error {
	n.image = imageName
	self, err := n.program()
	if err != nil {
		return err
	}
	if n.runtimeEndpoint == "" {
		if err := runtime.ImportPause(ctx, n.layout.RuntimeSocket(), runtime.PauseImage); err != nil {
			return err
		}
		return runtime.ImportBinary(ctx, n.layout.RuntimeSocket(), n.image, self)
	}
	services, images, err := runtime.Connect(ctx, n.endpoint())
	if err != nil {
		return err
	}
	if about, err := services.Version(ctx, ""); err == nil && about.RuntimeName == "containerd" {
		return runtime.ImportBinary(ctx, strings.TrimPrefix(n.endpoint(), "unix://"), n.image, self)
	}
	have, err := images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: n.image}, false)
	if err != nil {
		return err
	}
	if have.Image == nil {
		return fmt.Errorf("the runtime at %s has no image %s: build it with the Dockerfile, and load it there", n.runtimeEndpoint, n.image)
	}
	return nil
}

func (n *node) manifests(context.Context) error {
	if n.console.Address != "" { // its pod may only read
		if _, err := cluster.EnsureHostKey(n.layout.ConsoleHostKey()); err != nil {
			return err
		}
	}
	return cluster.ControlPlane{
		Layout: n.layout, NodeName: n.nodeName, NodeIP: n.nodeIP, Image: n.image,
		ServiceCIDR: n.serviceCIDR, PodCIDR: n.podCIDR, APIPort: 6443,
		APIServerArgs: n.apiServerArgs, APIServerMounts: n.apiServerMounts, Console: n.console,
		EtcdCluster: fmt.Sprintf("%s=https://%s", n.nodeName, net.JoinHostPort(n.nodeIP, "2380")),
	}.WriteManifests()
}

// startAgent writes the node agent's configuration and starts it.
func (n *node) startAgent(context.Context) error {
	dns, err := nthAddress(n.serviceCIDR, 10)
	if err != nil {
		return err
	}
	off := false
	config := kubeletv1beta1.KubeletConfiguration{
		TypeMeta:                    metav1.TypeMeta{APIVersion: kubeletv1beta1.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"},
		StaticPodPath:               n.layout.Manifests(),
		ClusterDNS:                  []string{dns},
		ClusterDomain:               "cluster.local",
		ContainerRuntimeEndpoint:    n.endpoint(),
		MaxPods:                     110,
		ImageGCHighThresholdPercent: new(int32(85)),
		ImageGCLowThresholdPercent:  new(int32(80)),
		TLSCertFile:                 n.layout.PKI("kubelet.crt"),
		TLSPrivateKeyFile:           n.layout.PKI("kubelet.key"),
		PodLogsDir:                  n.layout.PodLogs(),
		FailSwapOn:                  &off,
		FailCgroupV1:                &off,
		CgroupRoot:                  n.cgroupRoot,
		Authentication: kubeletv1beta1.KubeletAuthentication{
			X509:      kubeletv1beta1.KubeletX509Authentication{ClientCAFile: n.layout.PKI("ca.crt")},
			Anonymous: kubeletv1beta1.KubeletAnonymousAuthentication{Enabled: &off},
		},
	}
	data, err := yaml.Marshal(config)
	if err != nil {
		return err
	}
	if err := cluster.WriteIfChanged(n.layout.KubeletConfig(), data, 0o600); err != nil {
		return err
	}
	self, err := n.program()
	if err != nil {
		return err
	}
	args := []string{self, "kubelet",
		"--config=" + n.layout.KubeletConfig(),
		"--kubeconfig=" + n.layout.Kubeconfig("kubelet"),
		"--hostname-override=" + n.nodeName,
		"--node-ip=" + n.nodeIP,
		"--root-dir=" + n.layout.Kubelet(),
		"--cni-conf-dir=" + n.cniConfDir(),
		"--cluster-cidr=" + n.podCIDR,
		"--data-dir=" + n.dataDir,
	}
	if !n.worker {
		args = append(args, "--register-with-taints=node-role.kubernetes.io/control-plane=:NoSchedule")
	}
	return n.agent().start(args...)
}

// cniConfDir is where the node agent writes the pod network's configuration once
// it knows the node's range; another runtime brings a network of its own.
func (n *node) cniConfDir() string {
	if n.runtimeEndpoint != "" {
		return ""
	}
	return n.layout.CNI()
}

// anyRange stands in for --node-cidr where machines are only found, not made.
const anyRange = "0.0.0.0/0"

// existing describes the cluster that is on this machine already.
func existing(dataDir string) (*node, error) {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return nil, err
	}
	n := &node{upOptions: upOptions{dataDir: dir, nodes: 1, nodeCIDR: anyRange}, layout: cluster.Layout{Dir: dir}}
	data, err := os.ReadFile(n.layout.KubeletConfig())
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("no cluster at %s: start one with `orrery up`, or name its place with --data-dir", dir)
	}
	if err != nil {
		return nil, err
	}
	var config kubeletv1beta1.KubeletConfiguration
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", n.layout.KubeletConfig(), err)
	}
	if own := "unix://" + n.layout.RuntimeSocket(); config.ContainerRuntimeEndpoint != own {
		n.runtimeEndpoint = config.ContainerRuntimeEndpoint
	}
	return n, nil
}
