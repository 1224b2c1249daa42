package cmd

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"orrery.dev/client"
	"orrery.dev/scheduler"
)

func newSchedulerCommand() *cobra.Command {
	var kubeconfig, name, address string
	var elect bool
	c := &cobra.Command{
		Use: "kube-scheduler", Short: "Decide on which node each pod runs", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			log := logTo("kube-scheduler")
			clients, cfg, err := client.New(kubeconfig, "kube-scheduler")
			if err != nil {
				return err
			}
			spans, err := client.Spans(cfg, "kube-scheduler")
			if err != nil {
				return err
			}
			metrics := prometheus.NewRegistry()
			return together(c.Context(), spans.Run,
				func(ctx context.Context) error {
					return serveHealth(ctx, address, client.Measured(spans, metrics), zpages{component: "kube-scheduler", flags: c.Flags()})
				},
				func(ctx context.Context) error {
					return scheduler.Run(ctx, scheduler.Config{Clients: clients, Name: name, LeaderElect: elect, Log: log, Metrics: metrics, Trace: spans})
				})
		},
	}
	f := c.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: the service account of this pod)")
	f.StringVar(&name, "scheduler-name", "", "schedule pods whose spec.schedulerName is this (default: default-scheduler)")
	f.StringVar(&address, "health-address", "127.0.0.1:10259", "where to serve health and metrics")
	f.BoolVar(&elect, "leader-elect", true, "take turns with other instances")
	return c
}
