package client

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"orrery.dev/trace"
)

// Load reads a kubeconfig file; an empty path means the service account of the
// pod that we run in. The configuration speaks protobuf, names component in the
// User-Agent, and does not throttle: the server's own fair queuing does that.
func Load(kubeconfig, component string) (*rest.Config, error) {
	var cfg *rest.Config
	var err error
	if kubeconfig == "" {
		cfg, err = rest.InClusterConfig()
	} else {
		cfg, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	return ForComponent(cfg, component), nil
}

// ForComponent returns a copy of cfg with the settings that Load gives.
func ForComponent(cfg *rest.Config, component string) *rest.Config {
	out := rest.CopyConfig(cfg)
	out.UserAgent = "orrery/" + component
	out.QPS, out.Burst = -1, -1
	out.ContentType = runtime.ContentTypeProtobuf
	out.Wrap(trace.Propagate)
	out.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return out
}

// New makes a typed client from a kubeconfig file, as Load does.
func New(kubeconfig, component string) (kubernetes.Interface, *rest.Config, error) {
	cfg, err := Load(kubeconfig, component)
	if err != nil {
		return nil, nil, err
	}
	set, err := kubernetes.NewForConfig(cfg)
	return set, cfg, err
}
