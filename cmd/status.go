package cmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"

	"orrery.dev/client"
)

func newStatusCommand() *cobra.Command {
	var dataDir string
	c := &cobra.Command{
		Use:   "status",
		Short: "Tell how the cluster on this machine is",
		Long: `Tell how the cluster on this machine is: its processes, nodes and system pods.
The exit status is 0 if everything is well, 1 if something is not.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), 10*time.Second)
			defer cancel()
			return runStatus(ctx, c.OutOrStdout(), dataDir)
		},
	}
	dataDirFlag(c, &dataDir)
	return c
}

// line is one row of the status: a part, whether it is well, and what it says.
type line struct {
	part string
	well bool
	says string
}

func runStatus(ctx context.Context, out io.Writer, dataDir string) error {
	n, err := existing(dataDir)
	if os.IsPermission(err) {
		return fmt.Errorf("%w: run it with sudo", err)
	}
	if err != nil {
		return err
	}
	var lines []line
	if n.runtimeEndpoint == "" {
		lines = append(lines, processLine("container runtime", n.runtime()))
	}
	lines = append(lines, processLine("node agent", n.agent()))
	for _, m := range n.machines() {
		lines = append(lines, processLine("machine of node "+filepath.Base(m.Dir), n.process(m)))
	}
	clients, _, err := client.New(n.layout.Kubeconfig("admin"), "status")
	if err != nil {
		return err
	}
	lines = append(lines, clusterLines(ctx, clients)...)

	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	bad := 0
	for _, l := range lines {
		mark := "ok"
		if !l.well {
			mark, bad = "!!", bad+1
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", mark, l.part, l.says)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return exitCode(1)
	}
	return nil
}

func processLine(part string, p process) line {
	if pid := p.pid(); pid != 0 {
		return line{part, true, fmt.Sprintf("process %d", pid)}
	}
	return line{part, false, "does not run: start it with `orrery up`; its log is " + p.log}
}

func clusterLines(ctx context.Context, clients kubernetes.Interface) []line {
	if _, err := clients.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return []line{{"API server", false, firstLine(err.Error())}}
	}
	lines := []line{{"API server", true, "ready"}}
	nodes, err := clients.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return append(lines, line{"nodes", false, err.Error()})
	}
	for i := range nodes.Items {
		lines = append(lines, nodeLine(&nodes.Items[i]))
	}
	pods, err := clients.CoreV1().Pods(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		return append(lines, line{"system pods", false, err.Error()})
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		why := whyNotReady(pod)
		says := "ready for " + duration.HumanDuration(time.Since(pod.CreationTimestamp.Time))
		if why != "" {
			says = why
		}
		lines = append(lines, line{"pod " + pod.Name, why == "", says})
	}
	return lines
}

func nodeLine(node *corev1.Node) line {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return line{"node " + node.Name, true, "ready, " + node.Status.NodeInfo.ContainerRuntimeVersion}
			}
			return line{"node " + node.Name, false, "not ready: " + c.Message}
		}
	}
	return line{"node " + node.Name, false, "has not reported yet"}
}

func firstLine(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return first
}
