package nodeagent

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// credential is what a pull secret has for an image.
type credential struct {
	auth   *runtimeapi.AuthConfig
	secret kubeletconfig.ImagePullSecret
}

func (c *credential) sameSecret(s kubeletconfig.ImagePullSecret) bool {
	s.CredentialHash = c.secret.CredentialHash
	return s == c.secret
}

// pullWith tries the pod's credentials in order, or pulls without any if there
// are none, and notes what opened the registry.
func (p *imagePuller) pullWith(ctx context.Context, spec *runtimeapi.ImageSpec, creds []credential, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	undo := func() {}
	if p.records != nil {
		var err error
		if undo, err = p.records.begin(spec.UserSpecifiedImage); err != nil {
			return "", fmt.Errorf("record that the image is pulled: %w", err)
		}
	}
	tries := []*credential{nil}
	if len(creds) > 0 {
		tries = nil
		for i := range creds {
			tries = append(tries, &creds[i])
		}
	}
	var last error
	for _, c := range tries {
		var auth *runtimeapi.AuthConfig
		if c != nil {
			auth = c.auth
		}
		var ref string
		if ref, last = p.a.cfg.Images.PullImage(ctx, spec, auth, sandbox); last != nil {
			continue
		}
		if p.records != nil {
			// What can't be noted has to be pulled again: no more than that.
			if err := p.records.done(spec.UserSpecifiedImage, ref, c); err != nil {
				p.a.log.Warn("pull record not written", "image", spec.Image, "err", err)
			}
		}
		return ref, nil
	}
	undo()
	return "", last
}

// credentials are those of the pod's pull secrets that fit the image.
func (p *imagePuller) credentials(ctx context.Context, pod *corev1.Pod, image string) []credential {
	if p.a.cfg.Simulated {
		return nil
	}
	var out []credential
	get := &objects{a: p.a}
	for _, ref := range pod.Spec.ImagePullSecrets {
		secret, err := get.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			continue // as upstream: a missing pull secret is not an error of its own
		}
		out = append(out, registryAuth(secret, image)...)
	}
	return out
}

// registryEntry is one registry's in a docker configuration.
type registryEntry struct {
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
	Auth     string `json:"auth,omitempty"`
	Email    string `json:"email,omitempty"`
}

// registryAuth reads a docker configuration and picks the entries that fit the
// image's registry and path, the closest first.
func registryAuth(secret *corev1.Secret, image string) []credential {
	var auths map[string]registryEntry
	if data, ok := secret.Data[corev1.DockerConfigJsonKey]; ok {
		var file struct{ Auths map[string]registryEntry }
		if json.Unmarshal(data, &file) != nil {
			return nil
		}
		auths = file.Auths
	} else if data, ok := secret.Data[corev1.DockerConfigKey]; ok {
		if json.Unmarshal(data, &auths) != nil {
			return nil
		}
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil
	}
	type match struct {
		place string
		c     credential
	}
	var found []match
	for server, e := range auths {
		place := registryPlace(server)
		if !placeFits(place, named.Name()) {
			continue
		}
		if e.Username == "" && e.Auth != "" {
			raw, err := base64.StdEncoding.DecodeString(e.Auth)
			if err != nil {
				continue
			}
			e.Username, e.Password, _ = strings.Cut(string(raw), ":")
		}
		e.Auth = ""
		found = append(found, match{place, credential{
			auth:   &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password},
			secret: kubeletconfig.ImagePullSecret{UID: string(secret.UID), Namespace: secret.Namespace, Name: secret.Name, CredentialHash: hashOf(e)},
		}})
	}
	slices.SortFunc(found, func(a, b match) int {
		return cmp.Or(cmp.Compare(b.place, a.place), cmp.Compare(a.c.secret.CredentialHash, b.c.secret.CredentialHash))
	})
	out := make([]credential, len(found))
	for i, m := range found {
		out[i] = m.c
	}
	return out
}

// registryPlace is the host and path that a key of a docker configuration means.
func registryPlace(server string) string {
	server = strings.TrimPrefix(strings.TrimPrefix(server, "https://"), "http://")
	host, rest, _ := strings.Cut(server, "/")
	rest = "/" + rest + "/"
	if after, ok := strings.CutPrefix(rest, "/v1/"); ok {
		rest = after
	} else if after, ok := strings.CutPrefix(rest, "/v2/"); ok {
		rest = after
	}
	if host == "index.docker.io" {
		host = "docker.io"
	}
	return strings.TrimSuffix(host+"/"+strings.Trim(rest, "/"), "/")
}

// placeFits says whether a place, whose host may have wildcards for its parts,
// covers a repository.
func placeFits(place, repository string) bool {
	host, dir, _ := strings.Cut(place, "/")
	target, name, _ := strings.Cut(repository, "/")
	if dir != "" && name != dir && !strings.HasPrefix(name, dir+"/") {
		return false
	}
	split := func(s string) ([]string, string) {
		host, port, err := net.SplitHostPort(s)
		if err != nil {
			host = s
		}
		return strings.Split(host, "."), port
	}
	globs, port := split(host)
	parts, targetPort := split(target)
	if port != targetPort || len(globs) != len(parts) {
		return false
	}
	for i := range parts {
		if ok, err := path.Match(globs[i], parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
