package cmd

import (
	"github.com/spf13/cobra"

	"orrery.dev/dns"
)

func newDNSCommand() *cobra.Command {
	var where connection
	var o dns.Config
	c := &cobra.Command{
		Use: "cluster-dns", Short: "Answer the names of Services and pods", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.Log = logTo("cluster-dns")
			var err error
			if o.REST, err = where.config("cluster-dns"); err != nil {
				return err
			}
			return dns.Run(c.Context(), o)
		},
	}
	where.flags(c)
	f := c.Flags()
	f.StringVar(&o.Addr, "listen", ":53", "where to answer, over UDP and TCP")
	f.StringVar(&o.Domain, "domain", "cluster.local", "the cluster's domain")
	f.StringVar(&o.ResolvConf, "resolv-conf", "/etc/resolv.conf", "whose name servers are asked for all other names")
	return c
}
