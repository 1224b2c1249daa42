package cmd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"orrery.dev/cluster"
	"orrery.dev/server"
	"orrery.dev/server/audit"
)

// apiOptions are the flags of kube-apiserver that have a meaning here, by
// upstream's names.
type apiOptions struct {
	etcdServers                        []string
	etcdCA, etcdCert, etcdKey          string
	bind, advertise                    string
	port                               int
	cert, key, clientCA                string
	kubeletCert, kubeletKey, kubeletCA string
	proxyCA, proxyCert, proxyKey       string
	proxyNames                         []string
	serviceCIDR                        string
	audit                              audit.Config
	admit                              admissionFlags
	authn                              authnFlags
	accounts                           accountFlags
	authz                              authzFlags
	encryption                         encryptionFlags
	flow                               flowFlags
	tracing                            tracingFlags
	cbor                               bool
	ignored                            ignoredFlags
	logs                               bool
	given                              *pflag.FlagSet // all of these, for /flagz

	// components are asked for componentstatuses; nil: those on this machine.
	components []server.Check
	// dialAgents connects to node agents, whose certificates are for agentName;
	// nil and empty: they listen at their nodes' addresses.
	dialAgents func(ctx context.Context, network, address string) (net.Conn, error)
	agentName  string
}

// ignoredFlags are accepted since manifests carry them, and change nothing: what
// they ask for is always so here.
type ignoredFlags struct {
	allowPrivileged bool
}

func newAPIServerCommand() *cobra.Command {
	var o apiOptions
	c := &cobra.Command{
		Use: "kube-apiserver", Short: "Serve the Kubernetes API: the only way to the cluster's state", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runAPIServer(c.Context(), o) },
	}
	o.flags(c.Flags())
	return c
}

// flags binds the flags. What is not given on a command line has its default.
func (o *apiOptions) flags(f *pflag.FlagSet) {
	o.given = f
	f.StringSliceVar(&o.etcdServers, "etcd-servers", []string{"https://127.0.0.1:2379"}, "URLs of etcd's members")
	f.StringVar(&o.etcdCA, "etcd-cafile", "", "authority of etcd's certificates")
	f.StringVar(&o.etcdCert, "etcd-certfile", "", "client certificate for etcd")
	f.StringVar(&o.etcdKey, "etcd-keyfile", "", "its key")
	f.StringVar(&o.bind, "bind-address", "0.0.0.0", "where to listen")
	f.StringVar(&o.advertise, "advertise-address", "", "address of this server in the kubernetes Service (default: --bind-address)")
	f.IntVar(&o.port, "secure-port", 6443, "where to listen")
	f.StringVar(&o.cert, "tls-cert-file", "", "serving certificate")
	f.StringVar(&o.key, "tls-private-key-file", "", "its key")
	f.StringVar(&o.clientCA, "client-ca-file", "", "authority of client certificates")
	f.StringVar(&o.kubeletCert, "kubelet-client-certificate", "", "client certificate for node agents")
	f.StringVar(&o.kubeletKey, "kubelet-client-key", "", "its key")
	f.StringVar(&o.kubeletCA, "kubelet-certificate-authority", "", "authority of node agents' certificates (default: they are not checked)")
	f.StringVar(&o.proxyCert, "proxy-client-cert-file", "", "client certificate for aggregated API servers")
	f.StringVar(&o.proxyKey, "proxy-client-key-file", "", "its key")
	f.StringVar(&o.proxyCA, "requestheader-client-ca-file", "", "authority of front proxies")
	f.StringSliceVar(&o.proxyNames, "requestheader-allowed-names", nil, "names of front proxies (default: any that the authority vouches for)")
	f.StringVar(&o.serviceCIDR, "service-cluster-ip-range", "10.96.0.0/12", "addresses of Services")
	auditFlags(&o.audit, f)
	f.BoolVar(&o.logs, "enable-logs-handler", false, "serve this machine's /var/log at /logs")
	o.admit.flags(f)
	o.authn.flags(f)
	o.accounts.flags(f)
	o.authz.flags(f)
	o.encryption.flags(f)
	o.flow.flags(f)
	o.tracing.flags(f)
	f.Func("feature-gates", "CBORServingAndStorage=true lets clients speak CBOR", o.setGates)
	o.ignored.flags(f)
}

// setGates reads --feature-gates. What upstream has behind other gates is either
// always there or never.
func (o *apiOptions) setGates(text string) error {
	for _, pair := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(pair, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%s is true or false, not %q", name, value)
		}
		if name != "CBORServingAndStorage" {
			return fmt.Errorf("no gate is called %q", name)
		}
		o.cbor = on
	}
	return nil
}

func (i *ignoredFlags) flags(f *pflag.FlagSet) {
	f.BoolVar(&i.allowPrivileged, "allow-privileged", true, "always true")
}

func runAPIServer(ctx context.Context, o apiOptions) error {
	log := logTo("kube-apiserver")
	if o.advertise == "" {
		o.advertise = o.bind
	}
	etcd, err := o.etcdClient(log)
	if err != nil {
		return err
	}
	defer etcd.Close()
	api, err := newAPI(o, etcd, log)
	if err != nil {
		return err
	}
	return together(ctx, api.run, func(ctx context.Context) error { return o.serve(ctx, api.server) })
}

// etcdClient connects to etcd. It does not wait for etcd to be there: the API
// server says that it is not ready, and becomes so by itself.
func (o *apiOptions) etcdClient(log *slog.Logger) (*clientv3.Client, error) {
	cfg := clientv3.Config{
		Endpoints: o.etcdServers, DialTimeout: 20 * time.Second,
		DialKeepAliveTime: 30 * time.Second, DialKeepAliveTimeout: 10 * time.Second,
		Logger: nopZap(),
		// Etcd and we start side by side: look often whether it is there.
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}, MinConnectTimeout: 5 * time.Second})},
	}
	if o.etcdCert != "" {
		certificate, err := cluster.NewReloadingCertificate(o.etcdCert, o.etcdKey)
		if err != nil {
			return nil, fmt.Errorf("--etcd-certfile: %w", err)
		}
		pool, err := cluster.ReadPool(o.etcdCA)
		if err != nil {
			return nil, fmt.Errorf("--etcd-cafile: %w", err)
		}
		cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, GetClientCertificate: certificate.GetClientCertificate}
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("--etcd-servers %s: %w", strings.Join(o.etcdServers, ","), err)
	}
	log.Info("etcd", "servers", strings.Join(o.etcdServers, ","))
	return client, nil
}

// serve answers requests until ctx ends, and then lets those in progress finish.
func (o *apiOptions) serve(ctx context.Context, s *server.Server) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(o.bind, fmt.Sprint(o.port)))
	if err != nil {
		return fmt.Errorf("--secure-port: %w", err)
	}
	certificate, err := cluster.NewReloadingCertificate(o.cert, o.key)
	if err != nil {
		return fmt.Errorf("--tls-cert-file: %w", err)
	}
	listening := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 32 * time.Second, MaxHeaderBytes: 1 << 20,
		// Watches are streams of one connection; the default of 250 is too few
		// for a controller manager.
		HTTP2:    &http.HTTP2Config{MaxConcurrentStreams: 1000},
		ErrorLog: s.ErrorLog(),
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate,
			// The authenticator judges certificates: a wrong one is a 401 with a
			// body, not a broken handshake.
			ClientAuth: tls.RequestClientCert, ClientCAs: o.acceptableCAs(),
		},
	}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		grace, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if listening.Shutdown(grace) != nil {
			listening.Close()
		}
	})
	err = listening.ServeTLS(listener, "", "")
	if !stop() {
		<-done
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve: %w", err)
}

// acceptableCAs tells clients which of their certificates to show.
func (o *apiOptions) acceptableCAs() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, file := range []string{o.clientCA, o.proxyCA} {
		if data, err := os.ReadFile(file); err == nil {
			pool.AppendCertsFromPEM(data)
		}
	}
	return pool
}
