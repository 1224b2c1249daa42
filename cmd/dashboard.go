package cmd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"orrery.dev/client"
)

// dashboardAccount is the service account whose token `orrery dashboard` prints:
// an administrator's, as whoever has the kubeconfig is one already.
const dashboardAccount = "orrery-dashboard"

// dashboardTokenLife is a working day.
const dashboardTokenLife = 12 * 60 * 60 // seconds

func newDashboardCommand() *cobra.Command {
	var kubeconfig string
	var tokenOnly, noBrowser bool
	c := &cobra.Command{
		Use:   "dashboard",
		Short: "Open the dashboard in a browser",
		Long: `Open the dashboard, which the API server serves, in a browser, and print a
token to sign in with. The token is good for twelve hours and acts as an
administrator; any other token of the cluster works too, with the rights that it
has.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			path, err := chooseKubeconfig(kubeconfig)
			if err != nil {
				return err
			}
			clients, cfg, err := client.New(path, "dashboard")
			if err != nil {
				return err
			}
			token, err := dashboardToken(c.Context(), clients)
			if err != nil {
				return err
			}
			if tokenOnly {
				fmt.Fprintln(c.OutOrStdout(), token)
				return nil
			}
			address := strings.TrimSuffix(cfg.Host, "/") + "/ui/"
			fmt.Fprintf(c.OutOrStdout(), "Dashboard  %s\nSign in    %s\n", address, token)
			if noBrowser {
				return nil
			}
			if err := openBrowser(c.Context(), address); err != nil {
				fmt.Fprintln(c.ErrOrStderr(), "No browser could be started here: open the address above yourself.")
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: $KUBECONFIG, ~/.kube/config, or the cluster on this machine)")
	f.BoolVar(&tokenOnly, "token", false, "print the token and nothing else")
	f.BoolVar(&noBrowser, "no-browser", false, "do not start a browser")
	return c
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
