package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is one kubeconfig file to be written.
type Kubeconfig struct {
	File   string // where to write it
	User   string // name of the user in it, "kubernetes-admin"
	Cert   string // file in the pki directory without ending, "admin"
	Server string // URL of the API server
	// Beside puts certificate and key into files beside it instead of into it:
	// a program that runs on reads those again when they are renewed.
	Beside bool
}

// Kubeconfigs are those of a control plane node: pki file, kubeconfig file and
// user go by the component's name. file says where a name's goes; Layout's
// Kubeconfig does.
func Kubeconfigs(file func(name string) string, server string) []Kubeconfig {
	return []Kubeconfig{
		{file("admin"), "kubernetes-admin", "admin", server, false},
		{file("controller-manager"), "system:kube-controller-manager", "controller-manager", server, true},
		{file("scheduler"), "system:kube-scheduler", "scheduler", server, true},
		NodeKubeconfig(file, server),
		{file("console"), consoleUser, "console", server, true},
		{file("kube-proxy"), "system:kube-proxy", "kube-proxy", server, false},
	}
}

// NodeKubeconfig is that of the node agent, on any node.
func NodeKubeconfig(file func(name string) string, server string) Kubeconfig {
	return Kubeconfig{file("kubelet"), "kubelet", "kubelet-client", server, true}
}

// EnsureKubeconfigs writes the files that are missing or no longer say what
// they should (a certificate was renewed, the server moved) and returns those
// it wrote. Save for those with files beside them, everything is embedded, so that
// one can be copied elsewhere.
func EnsureKubeconfigs(pki string, files ...Kubeconfig) (written []string, err error) {
	ca, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return nil, err
	}
	for _, k := range files {
		want, err := k.encode(pki, ca)
		if err == nil && k.Beside {
			err = k.copyBeside(pki)
		}
		if err != nil {
			return written, fmt.Errorf("kubeconfig %s: %w", k.File, err)
		}
		have, err := os.ReadFile(k.File)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return written, fmt.Errorf("kubeconfig %s: %w", k.File, err)
		}
		if bytes.Equal(have, want) {
			continue
		}
		if err := writeFile(k.File, 0o600, want); err != nil {
			return written, fmt.Errorf("kubeconfig %s: %w", k.File, err)
		}
		written = append(written, k.File)
	}
	return written, nil
}

func (k Kubeconfig) encode(pki string, ca []byte) ([]byte, error) {
	cert, err := os.ReadFile(filepath.Join(pki, k.Cert+".crt"))
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(filepath.Join(pki, k.Cert+".key"))
	if err != nil {
		return nil, err
	}
	const clusterName = "kubernetes"
	contextName := k.User + "@" + clusterName
	config := clientcmdapi.NewConfig()
	config.Clusters[clusterName] = &clientcmdapi.Cluster{Server: k.Server, CertificateAuthorityData: ca}
	config.AuthInfos[k.User] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	if k.Beside {
		certFile, keyFile := k.beside()
		config.AuthInfos[k.User] = &clientcmdapi.AuthInfo{ClientCertificate: filepath.Base(certFile), ClientKey: filepath.Base(keyFile)}
	}
	config.Contexts[contextName] = &clientcmdapi.Context{Cluster: clusterName, AuthInfo: k.User}
	config.CurrentContext = contextName
	return clientcmd.Write(*config)
}

// beside names the files of certificate and key; the kubeconfig has them relative
// to itself.
func (k Kubeconfig) beside() (cert, key string) {
	base := strings.TrimSuffix(k.File, filepath.Ext(k.File))
	return base + ".crt", base + ".key"
}

// copyBeside writes the key first: who reads a pair half-way gets one that does
// not fit, keeps what it has, and reads again.
func (k Kubeconfig) copyBeside(pki string) error {
	cert, key := k.beside()
	for _, f := range [][2]string{{key, ".key"}, {cert, ".crt"}} {
		data, err := os.ReadFile(filepath.Join(pki, k.Cert+f[1]))
		if err != nil {
			return err
		}
		if err := WriteIfChanged(f[0], data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
