package cmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"orrery.dev/client"
	"orrery.dev/cluster"
	"orrery.dev/server/remote"
	"orrery.dev/sshd"
	"orrery.dev/tui"
)

func newConsoleServerCommand() *cobra.Command {
	var kubeconfig, key string
	var o cluster.Console
	c := &cobra.Command{
		Use:   "console-server",
		Short: "Serve the console over SSH",
		Long: `Serve the console over SSH, to the owners of public keys.

The file of keys has the form of authorized_keys; the options of a line say who
its owner is in the cluster, and are all that is known of them:

  user="alice",group="dev",group="ops" ssh-ed25519 AAAA... alice@laptop

It is read again when it changes. What users do in their consoles is done as
them: the kubeconfig's user impersonates them, and needs the right to. Nothing of
this machine can be reached from a console.`,
		Example: "  orrery console-server --listen 127.0.0.1:2222 --keys /etc/orrery/keys\n  ssh -p 2222 127.0.0.1\n  ssh -t -p 2222 127.0.0.1 nodes",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Address == "" || o.Keys == "" {
				return errors.New("--listen and --keys say where to listen, and to whom")
			}
			path, err := chooseKubeconfig(kubeconfig)
			if err != nil {
				return err
			}
			cfg, err := client.Load(path, "console-server")
			if err != nil {
				return err
			}
			if key == "" {
				if key, err = userHostKey(); err != nil {
					return err
				}
			}
			return serveConsoles(c.Context(), o, cfg, key, kubeconfigNamespace(path), logTo("console-server"))
		},
	}
	f := c.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the cluster on this machine)")
	f.StringVar(&o.Address, "listen", "127.0.0.1:2222", "where to listen")
	f.StringVar(&o.Keys, "keys", "", "file of the public keys of users")
	f.StringVar(&key, "host-key", "", "file of the key by which clients know this server; made if it is missing (default: orrery/ssh_host_key in the user's configuration)")
	return c
}

func userHostKey() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("%w; give --host-key", err)
	}
	return filepath.Join(dir, "orrery", "ssh_host_key"), nil
}

// serveConsoles lets users look at a cluster by SSH until ctx ends. cfg is whose
// rights are used to act as them.
func serveConsoles(ctx context.Context, o cluster.Console, cfg *rest.Config, key, namespace string, log *slog.Logger) error {
	keys, err := sshd.OpenKeys(o.Keys, log)
	if err != nil {
		return err
	}
	host, err := cluster.EnsureHostKey(key)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return err
	}
	machine, err := os.Hostname()
	if err != nil {
		machine = o.Address
	}
	log.Info("console served", "address", listener.Addr().String(), "hostKey", ssh.FingerprintSHA256(host.PublicKey()))
	tell := func(s *sshd.Session, err error) string {
		console := tui.Config{Terminal: s}
		console.FromEnvironment(s.Getenv)
		return console.Told(err)
	}
	return sshd.Run(ctx, sshd.Config{HostKey: host, Keys: keys, Log: log, Tell: tell, Program: func(ctx context.Context, s *sshd.Session) error {
		own := rest.CopyConfig(cfg)
		own.Impersonate = rest.ImpersonationConfig{UserName: s.User, Groups: s.Groups}
		instead, err := remote.New(own, namespace, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		console := tui.Config{REST: own, Instead: instead, Command: s.Command, Terminal: s, Machine: machine}
		console.FromEnvironment(s.Getenv)
		return tui.Run(ctx, console)
	}}, listener)
}

// checkConsole says what is wrong with the flags of `orrery up` that are about the
// console.
func checkConsole(o *cluster.Console) (err error) {
	if o.Address == "" && o.Keys == "" {
		return nil
	}
	if o.Address == "" || o.Keys == "" {
		return errors.New("--console-ssh and --console-keys go together: where the console is served, and to whom")
	}
	if _, err := netip.ParseAddrPort(o.Address); err != nil {
		return fmt.Errorf("--console-ssh %q is not of the form IP:PORT", o.Address)
	}
	if o.Keys, err = filepath.Abs(o.Keys); err != nil {
		return err
	}
	if _, err := sshd.OpenKeys(o.Keys, slog.New(slog.DiscardHandler)); err != nil {
		return fmt.Errorf("--console-keys: %w", err)
	}
	return nil
}

// withConsole adds the server of consoles to the parts of a simulated cluster, as
// the user that it is in a real one.
func withConsole(ctx context.Context, parts []func(context.Context) error, o cluster.Console, layout cluster.Layout, log *slog.Logger) ([]func(context.Context) error, error) {
	admin, err1 := client.Load(layout.Kubeconfig("admin"), "up")
	cfg, err2 := client.Load(layout.Kubeconfig("console"), "console-server")
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	admin.ContentType, admin.AcceptContentTypes = "", ""
	dyn, err := dynamic.NewForConfig(admin)
	if err == nil {
		err = o.Apply(ctx, dyn)
	}
	if err != nil || o.Address == "" {
		return parts, err
	}
	return append(parts, func(ctx context.Context) error {
		return serveConsoles(ctx, o, cfg, layout.ConsoleHostKey(), metav1.NamespaceDefault, log)
	}), nil
}

// consoleReport says how to reach a console that is served, and how to know that
// it is this one.
func consoleReport(o cluster.Console, layout cluster.Layout, host string) string {
	address, err := netip.ParseAddrPort(o.Address)
	if err != nil {
		return ""
	}
	key, err := cluster.EnsureHostKey(layout.ConsoleHostKey())
	if err != nil {
		return ""
	}
	if !address.Addr().IsUnspecified() {
		host = address.Addr().String()
	}
	return fmt.Sprintf("               ssh -p %d %s    its host key is %s\n", address.Port(), host, ssh.FingerprintSHA256(key.PublicKey()))
}
