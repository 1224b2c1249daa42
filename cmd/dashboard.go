package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"orrery.dev/api"
	"orrery.dev/client"
	"orrery.dev/server/remote"
	"orrery.dev/web"
)

// dashboardAccount is the service account whose token `orrery dashboard --token` prints:
// an administrator's, as whoever has the kubeconfig is one already.
const dashboardAccount = "orrery-dashboard"

// dashboardTokenLife is a working day.
const dashboardTokenLife = 12 * 60 * 60 // seconds

// dashboardOptions are the command's flags.
type dashboardOptions struct {
	kubeconfig           string
	tokenOnly, noBrowser bool
	serve                bool
	port                 uint16
	out, problems        io.Writer
}

func newDashboardCommand() *cobra.Command {
	var o dashboardOptions
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Open the dashboard in a browser",
		Long: `Open the dashboard in a browser, signed in as the kubeconfig's user.

An orrery cluster's API server serves the dashboard itself. For any other
Kubernetes cluster, or with --serve, this command does, on this machine only and
until it is interrupted: what the page asks goes to the cluster with the
kubeconfig's rights.

The link that is printed is good once, for five minutes.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o.out, o.problems = c.OutOrStdout(), c.ErrOrStderr()
			o.serve = o.serve || c.Flags().Changed("port")
			return o.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the cluster on this machine)")
	f.BoolVar(&o.serve, "serve", false, "serve the page here, even if the API server does")
	f.Uint16Var(&o.port, "port", 0, "serve the page on this port of 127.0.0.1 (default: any)")
	f.BoolVar(&o.tokenOnly, "token", false, "print an administrator's token, good for twelve hours, and nothing else")
	f.BoolVar(&o.noBrowser, "no-browser", false, "do not start a browser")
	return c
}

func (o *dashboardOptions) run(ctx context.Context) error {
	path, err := chooseKubeconfig(o.kubeconfig)
	if err != nil {
		return err
	}
	clients, cfg, err := client.New(path, "dashboard")
	if err != nil {
		return err
	}
	if o.tokenOnly {
		token, err := dashboardToken(ctx, clients)
		if err == nil {
			fmt.Fprintln(o.out, token)
		}
		return err
	}
	if !o.serve {
		link, err := serversLink(ctx, clients)
		if err == nil {
			o.open(ctx, strings.TrimSuffix(cfg.Host, "/")+link)
			return nil
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) { // who may not ask can't know
			return err
		}
	}
	return o.serveHere(ctx, cfg, kubeconfigNamespace(path))
}

// serversLink asks orrery's API server for a link to its own page.
func serversLink(ctx context.Context, clients kubernetes.Interface) (string, error) {
	raw, err := clients.Discovery().RESTClient().Post().AbsPath(api.SignInPath).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return "", err
	}
	var answer api.SignIn
	err = json.Unmarshal(raw, &answer)
	return answer.Link, err
}

// open shows an address, and tries to have a browser show it.
func (o *dashboardOptions) open(ctx context.Context, address string) {
	fmt.Fprintln(o.out, "Dashboard ", address)
	if o.noBrowser {
		return
	}
	if err := openBrowser(ctx, address); err != nil {
		fmt.Fprintln(o.problems, "No browser could be started here: open the address above yourself.")
	}
}

// serveHere serves the page on this machine until ctx ends.
func (o *dashboardOptions) serveHere(ctx context.Context, cfg *rest.Config, namespace string) error {
	cluster, err := remote.New(cfg, namespace, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	who, err := cluster.User(ctx)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", o.port))
	if err != nil {
		return err
	}
	dashboard, err := web.New(web.Config{
		API: cluster, Loopback: listener.Addr().String(),
		As: func(ctx context.Context, _ web.User) context.Context { return ctx }, // there is only the kubeconfig's
	})
	if err != nil {
		return err
	}
	link, err := dashboard.Link(webUser(who), time.Time{})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.RedirectHandler(web.Prefix, http.StatusFound))
	mux.Handle(web.Prefix, dashboard)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	o.open(ctx, "http://"+listener.Addr().String()+link)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// dashboardToken makes sure that the account exists and returns a fresh token.
func dashboardToken(ctx context.Context, clients kubernetes.Interface) (string, error) {
	accounts := clients.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: dashboardAccount}}
	if _, err := accounts.Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("account of the dashboard: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: dashboardAccount},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: dashboardAccount}},
	}
	if _, err := clients.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("rights of the dashboard's account: %w", err)
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(dashboardTokenLife))}}
	answer, err := accounts.CreateToken(ctx, dashboardAccount, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token for the dashboard: %w", err)
	}
	return answer.Status.Token, nil
}

func openBrowser(ctx context.Context, address string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return errors.New("no browser")
	}
	return exec.CommandContext(ctx, path, address).Start()
}
