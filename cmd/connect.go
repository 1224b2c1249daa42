package cmd

import (
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"orrery.dev/client"
)

// Where a pod finds its service account's credentials; see "Accessing the
// Kubernetes API from a Pod".
const (
	accountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	accountCA    = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
)

// connection is how a component is told where the API server is.
type connection struct{ kubeconfig, master string }

func (o *connection) flags(c *cobra.Command) {
	c.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: the service account of this pod)")
	c.Flags().StringVar(&o.master, "master", "", "URL of the API server; overrides the one in the kubeconfig or of the pod")
}

// config makes the client configuration. With a master named, a pod needs no
// Service to reach the API server: kube-proxy and DNS start before Services work.
func (o *connection) config(component string) (*rest.Config, error) {
	if o.kubeconfig == "" && o.master != "" {
		return client.ForComponent(&rest.Config{
			Host: o.master, BearerTokenFile: accountToken, TLSClientConfig: rest.TLSClientConfig{CAFile: accountCA},
		}, component), nil
	}
	cfg, err := client.Load(o.kubeconfig, component)
	if err == nil && o.master != "" {
		cfg.Host = o.master
	}
	return cfg, err
}
