package admission

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// credentials is a kubeconfig whose users are named by the webhooks' servers that
// they are for: name.namespace.svc, host:port, *.domain, or * for all.
type credentials struct{ file *clientcmdapi.Config }

// readCredentials reads the file that a webhook plugin's configuration points to;
// nil: it does not.
func readCredentials(raw []byte) (*credentials, error) {
	if raw == nil {
		return nil, nil
	}
	var config struct {
		APIVersion         string `json:"apiVersion"`
		Kind               string `json:"kind"`
		KubeConfigFile     string `json:"kubeConfigFile"`
		StaticManifestsDir string `json:"staticManifestsDir"`
	}
	if err := decodeConfiguration(raw, &config,
		schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1", Kind: "WebhookAdmissionConfiguration"},
		schema.GroupVersionKind{Group: "apiserver.config.k8s.io", Version: "v1alpha1", Kind: "WebhookAdmission"}); err != nil {
		return nil, err
	}
	switch {
	case config.StaticManifestsDir != "":
		return nil, errors.New("staticManifestsDir needs the feature ManifestBasedAdmissionControlConfig, which is off")
	case config.KubeConfigFile == "":
		return nil, nil
	case !filepath.IsAbs(config.KubeConfigFile):
		return nil, field.Invalid(field.NewPath("kubeConfigFile"), config.KubeConfigFile, "must be an absolute file path")
	}
	file, err := clientcmd.LoadFromFile(config.KubeConfigFile)
	if err != nil {
		return nil, err
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, err
	}
	return &credentials{file}, nil
}

// of is the user to be for a server, host:port; nil: nobody.
func (c *credentials) of(server string) *clientcmdapi.AuthInfo {
	names := []string{server}
	addWider := func(name string) {
		for at := strings.IndexByte(name, '.'); at >= 0; {
			name = name[at+1:]
			names = append(names, "*."+name)
			at = strings.IndexByte(name, '.')
		}
	}
	addWider(server)
	if host, port, err := net.SplitHostPort(server); err == nil && port == "443" {
		names = append(names, host)
		addWider(host)
	}
	for _, name := range append(names, "*") {
		if user := c.file.AuthInfos[name]; user != nil {
			return user
		}
	}
	if current := c.file.Contexts[c.file.CurrentContext]; current != nil {
		return c.file.AuthInfos[current.AuthInfo]
	}
	return nil
}

// wrap makes the requests of a transport be from the user for a server.
func (c *credentials) wrap(transport *http.Transport, target *url.URL) (http.RoundTripper, error) {
	if c == nil {
		return transport, nil
	}
	server := target.Host
	if target.Port() == "" {
		server = net.JoinHostPort(target.Hostname(), "443")
	}
	user := c.of(server)
	if user == nil {
		return transport, nil
	}
	if user.AuthProvider != nil {
		return nil, errors.New("auth provider not supported")
	}
	config := &rest.Config{
		BearerToken: user.Token, BearerTokenFile: user.TokenFile, Username: user.Username, Password: user.Password, ExecProvider: user.Exec,
		Impersonate: rest.ImpersonationConfig{UserName: user.Impersonate, UID: user.ImpersonateUID, Groups: user.ImpersonateGroups, Extra: user.ImpersonateUserExtra},
	}
	certificate := &config.TLSClientConfig
	certificate.CertFile, certificate.CertData, certificate.KeyFile, certificate.KeyData = user.ClientCertificate, user.ClientCertificateData, user.ClientKey, user.ClientKeyData
	security, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	if security != nil {
		transport.TLSClientConfig.Certificates, transport.TLSClientConfig.GetClientCertificate = security.Certificates, security.GetClientCertificate
	}
	return rest.HTTPWrappersForConfig(config, transport)
}
