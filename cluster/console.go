package cluster

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

const (
	consoleUser = "system:orrery:console" // who serves it
	consoleRole = "orrery:console"
	// consoleServer is the program, and its pod.
	consoleServer = "console-server"
)

// Console is the console that a cluster serves by SSH; with no address, it serves
// none.
type Console struct {
	Address string // where it listens, IP:PORT
	Keys    string // the file of its users' keys
}

// component is its pod. It has no more of the machine than the directory of the
// keys, which must not be the file alone: one that is replaced would not be seen.
func (c Console) component(l Layout) component {
	return component{
		name: consoleServer, cpu: "10m", confined: true,
		args: []string{"--listen=" + c.Address, "--keys=" + c.Keys, "--kubeconfig=" + l.Kubeconfig("console"), "--host-key=" + l.ConsoleHostKey()},
		// The directory of the kubeconfig has the host key, too.
		mounts: distinct([]string{filepath.Dir(l.Kubeconfig("console")), filepath.Dir(c.Keys)}),
	}
}

// Apply gives the server of consoles its rights, or, where there is none, takes
// them back. It may be anybody whom the constrained modes of impersonation let it
// be, and so neither a node, nor a service account, nor system:masters; and
// nothing as itself.
func (c Console) Apply(ctx context.Context, client dynamic.Interface) error {
	role := &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: consoleRole},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"users", "groups"}, Verbs: []string{"impersonate:user-info"}},
			{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: asSomebody("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")},
			{NonResourceURLs: []string{"*"}, Verbs: asSomebody("get", "post", "put", "patch", "delete", "head", "options")},
		},
	}
	binding := bind(consoleRole, consoleRole, "")
	binding.Subjects = []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: consoleUser}}
	roles, bindings := rbacv1.SchemeGroupVersion.WithResource("clusterroles"), rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
	if c.Address != "" {
		return apply(ctx, client, addonObject{roles, "", consoleRole, role}, addonObject{bindings, "", consoleRole, binding})
	}
	if err := client.Resource(bindings).Delete(ctx, consoleRole, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take back the rights of the console: %w", err)
	}
	return nil
}

// asSomebody are the verbs of doing something as somebody else.
func asSomebody(verbs ...string) []string {
	for i, verb := range verbs {
		verbs[i] = "impersonate-on:user-info:" + verb
	}
	return verbs
}

// EnsureHostKey reads the key by which SSH clients know a server, and makes it if
// there is none. It has the form that ssh-keygen reads.
func EnsureHostKey(path string) (ssh.Signer, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		block, err := ssh.MarshalPrivateKey(key, "")
		if err != nil {
			return nil, err
		}
		data = pem.EncodeToMemory(block)
		if err := writeFile(path, 0o600, data); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	key, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("host key %s: %w", path, err)
	}
	return key, nil
}

// confine takes from a container what a program that only talks to others does not
// need.
func confine(c *corev1.Container) {
	c.SecurityContext = &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE", "DAC_READ_SEARCH"}},
	}
}
