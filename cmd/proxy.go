package cmd

import (
	"context"

	"github.com/spf13/cobra"

	"orrery.dev/client"
	"orrery.dev/nodeagent/proxy"
)

func newProxyCommand() *cobra.Command {
	var where connection
	var o proxy.Config
	c := &cobra.Command{
		Use: "kube-proxy", Short: "Route Services to pods on this node", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Log = logTo("kube-proxy")
			var err error
			if o.REST, err = where.config("kube-proxy"); err != nil {
				return err
			}
			o.Pages = zpages{component: "kube-proxy", flags: c.Flags(), paths: func() []string {
				return []string{"/flagz", "/healthz", "/metrics", "/proxyMode", "/statusz"}
			}}.handlers()
			if o.Trace, err = client.Spans(o.REST, "kube-proxy"); err != nil {
				return err
			}
			return together(c.Context(), o.Trace.Run, func(ctx context.Context) error { return proxy.Run(ctx, o) })
		},
	}
	where.flags(c)
	f := c.Flags()
	f.StringVar(&o.NodeName, "hostname-override", "", "name of this node (default: the host name)")
	f.StringVar(&o.Mode, "proxy-mode", "", "nftables or iptables (default: what this machine can do best)")
	f.BoolVar(&o.RoutePods, "route-pods", false, "route other nodes' pods to them, where no other network does")
	f.StringVar(&o.ClusterCIDR, "cluster-cidr", "", "addresses of pods; traffic from elsewhere is masqueraded")
	return c
}
