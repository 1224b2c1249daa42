package cmd

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"orrery.dev/client"
	"orrery.dev/controllers"
	"orrery.dev/server/auth"
)

func newControllerManagerCommand() *cobra.Command {
	var where connection
	var o controllers.Config
	var rootCA, accountKey, address string
	c := &cobra.Command{
		Use: "kube-controller-manager", Short: "Make the cluster what it is asked to be", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			logTo("kube-controller-manager")
			var err error
			if o.REST, err = where.config("kube-controller-manager"); err != nil {
				return err
			}
			if o.Trace, err = client.Spans(o.REST, "kube-controller-manager"); err != nil {
				return err
			}
			if rootCA != "" {
				if o.RootCA, err = os.ReadFile(rootCA); err != nil {
					return fmt.Errorf("--root-ca-file: %w", err)
				}
			}
			if accountKey != "" {
				if o.AccountToken, err = accountTokens(accountKey); err != nil {
					return fmt.Errorf("--service-account-private-key-file: %w", err)
				}
			}
			return together(c.Context(), o.Trace.Run,
				func(ctx context.Context) error {
					return serveHealth(ctx, address, client.Measured(o.Trace), zpages{component: "kube-controller-manager", flags: c.Flags()})
				},
				func(ctx context.Context) error { return controllers.Run(ctx, o) })
		},
	}
	where.flags(c)
	f := c.Flags()
	f.BoolVar(&o.LeaderElect, "leader-elect", true, "take turns with other instances")
	f.StringSliceVar(&o.Only, "controllers", []string{"*"}, `controllers to run: "*" are those on by default, "-name" leaves one out`)
	f.BoolVar(&o.AllocateNodeCIDRs, "allocate-node-cidrs", false, "give each node a part of --cluster-cidr")
	f.StringVar(&o.ClusterCIDR, "cluster-cidr", "", "addresses of pods")
	f.StringVar(&o.ServiceCIDR, "service-cluster-ip-range", "", "addresses of Services")
	f.IntVar(&o.NodeCIDRMask, "node-cidr-mask-size", 24, "size of a node's part of --cluster-cidr")
	f.DurationVar(&o.NodeMonitorGracePeriod, "node-monitor-grace-period", 0, "how long a node may be silent (default 40s)")
	f.StringVar(&o.SigningCert, "cluster-signing-cert-file", "", "authority that signs certificate requests")
	f.StringVar(&o.SigningKey, "cluster-signing-key-file", "", "its key")
	f.StringVar(&o.LocalPath, "local-path", "", "directory on nodes where the provisioner orrery.dev/local-path makes volumes (default /var/lib/orrery/volumes)")
	f.StringVar(&rootCA, "root-ca-file", "", "authority of the API server, published in every namespace")
	f.StringVar(&accountKey, "service-account-private-key-file", "", "key that signs the tokens in Secrets of service accounts")
	f.StringVar(&address, "health-address", "127.0.0.1:10257", "where to serve health and metrics")
	return c
}

// accountTokens makes what signs tokens for the controllers with the key of a
// file.
func accountTokens(file string) (func(account *corev1.ServiceAccount, secret string) (string, error), error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := auth.ParsePrivateKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	issuer, err := auth.NewIssuer(auth.IssuerConfig{Key: key})
	if err != nil {
		return nil, err
	}
	return issuer.LegacyToken, nil
}
