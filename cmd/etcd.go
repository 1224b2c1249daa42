package cmd

import (
	"strings"

	"github.com/spf13/cobra"

	"orrery.dev/cluster"
)

func newEtcdCommand() *cobra.Command {
	var o cluster.EtcdConfig
	var state string

	c := &cobra.Command{
		Use: "etcd", Short: "Keep the cluster's state: one member of an etcd cluster", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			logTo("etcd")
			o.Existing = strings.EqualFold(state, "existing")
			return cluster.RunEtcd(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Name, "name", "default", "name of this member")
	f.StringVar(&o.DataDir, "data-dir", "default.etcd", "where to keep the data")
	f.StringSliceVar(&o.ListenClientURLs, "listen-client-urls", []string{"https://127.0.0.1:2379"}, "where to serve clients")
	f.StringSliceVar(&o.AdvertiseClientURLs, "advertise-client-urls", nil, "where clients reach this member")
	f.StringSliceVar(&o.ListenPeerURLs, "listen-peer-urls", []string{"https://127.0.0.1:2380"}, "where to listen for other members")
	f.StringSliceVar(&o.AdvertisePeerURLs, "initial-advertise-peer-urls", nil, "where other members reach this one")
	f.StringSliceVar(&o.ListenMetricsURLs, "listen-metrics-urls", nil, "where to serve health and metrics without TLS")
	f.StringVar(&o.InitialCluster, "initial-cluster", "", "members of a new cluster: name=url,...")
	f.StringVar(&o.ClusterToken, "initial-cluster-token", "", "keeps clusters apart that are made from the same configuration")
	f.StringVar(&state, "initial-cluster-state", "new", "new or existing")
	f.StringVar(&o.Client.CertFile, "cert-file", "", "serving certificate")
	f.StringVar(&o.Client.KeyFile, "key-file", "", "its key")
	f.StringVar(&o.Client.TrustedCAFile, "trusted-ca-file", "", "authority of clients")
	f.BoolVar(&o.Client.ClientCertAuth, "client-cert-auth", true, "let in only who shows a certificate")
	f.StringVar(&o.Peer.CertFile, "peer-cert-file", "", "certificate towards other members")
	f.StringVar(&o.Peer.KeyFile, "peer-key-file", "", "its key")
	f.StringVar(&o.Peer.TrustedCAFile, "peer-trusted-ca-file", "", "authority of other members")
	f.BoolVar(&o.Peer.ClientCertAuth, "peer-client-cert-auth", true, "let in only members that show a certificate")
	f.Int64Var(&o.QuotaBytes, "quota-backend-bytes", 0, "how large the database may grow (default 8 GiB)")
	f.Uint64Var(&o.SnapshotCount, "snapshot-count", 0, "how many changes are kept for slow members")
	f.StringVar(&o.LogLevel, "log-level", "", "debug, info, warn, error (default error)")
	return c
}
