package cmd

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"

	"orrery.dev/client"
	"orrery.dev/nodeagent"
	"orrery.dev/nodeagent/simulate"
)

// maxSimulatedNodes is how many /24 ranges 10.128.0.0/9 has.
const maxSimulatedNodes = 1 << 15

// runSimulatedNodes runs node agents over runtimes that pretend, as clients of
// any cluster, until ctx ends. base.NodeName is the nodes' common prefix. They
// share the address; each agent that has a certificate to serve with listens on a
// port of its own.
func runSimulatedNodes(ctx context.Context, nodes int, base nodeagent.Config) error {
	if nodes > maxSimulatedNodes {
		return fmt.Errorf("--simulate %d: at most %d", nodes, maxSimulatedNodes)
	}
	if base.REST == nil {
		return fmt.Errorf("--simulate needs --kubeconfig: credentials that may act for every node")
	}
	var err error
	if base.Clients, err = kubernetes.NewForConfig(base.REST); err != nil {
		return err
	}
	if base.NodeName == "" {
		base.NodeName = "node"
	}
	if base.Kubelet.Port == 0 {
		base.Kubelet.Port = 10250
	}
	streams, err := simulate.NewStreams()
	if err != nil {
		return err
	}
	agents, err := simulatedAgents(ctx, nodes, streams, base, func(c *nodeagent.Config, number int) {
		c.NodeName = fmt.Sprintf("%s-%d", base.NodeName, number)
		c.Kubelet.Port = base.Kubelet.Port + int32(number-1)
	})
	if err != nil {
		return err
	}
	return together(ctx, append(agents, streams.Run)...)
}

// simulatedAgents makes a node agent per node; place gives the node of a number
// (from 1) what is its own. They share one watch of the pods and one recorder of
// events, so that thousands fit into a process.
func simulatedAgents(ctx context.Context, nodes int, streams *simulate.Streams, base nodeagent.Config, place func(c *nodeagent.Config, number int)) ([]func(context.Context) error, error) {
	shared, err := nodeagent.NewSharedPods(base.Clients)
	if err != nil {
		return nil, err
	}
	base.Simulated, base.Version = true, kubernetesVersion
	base.Pods, base.Events = shared, client.Events(ctx, base.Clients, "kubelet", "")
	base.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	run := []func(context.Context) error{shared.Run}
	for i := range nodes {
		runtime, err := simulate.New(fmt.Sprintf("10.%d.%d.0/24", 128+i/256, i%256))
		if err != nil {
			return nil, err
		}
		streams.Add(runtime)
		config := base
		config.Runtime, config.Images = runtime, runtime.Images()
		place(&config, i+1)
		run = append(run, func(ctx context.Context) error { return nodeagent.Run(ctx, config) })
	}
	return run, nil
}
