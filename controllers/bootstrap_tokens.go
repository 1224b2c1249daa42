package controllers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	tokenSecretType  = "bootstrap.kubernetes.io/token"
	tokenSecretName  = "bootstrap-token-"
	clusterInfoKey   = metav1.NamespacePublic + "/cluster-info"
	signaturePrefix  = "jws-kubeconfig-"
	clusterInfoField = "kubeconfig"
)

// bootstrapToken reads a token secret; ok is false for secrets that are none.
func bootstrapToken(s *corev1.Secret) (id, secret string, expires time.Time, ok bool) {
	if s.Namespace != metav1.NamespaceSystem || s.Type != tokenSecretType {
		return "", "", time.Time{}, false
	}
	id, secret = string(s.Data["token-id"]), string(s.Data["token-secret"])
	if id == "" || secret == "" || s.Name != tokenSecretName+id {
		return "", "", time.Time{}, false
	}
	if text := string(s.Data["expiration"]); text != "" {
		var err error
		if expires, err = time.Parse(time.RFC3339, text); err != nil {
			expires = time.Unix(0, 0) // unreadable counts as past
		}
	}
	return id, secret, expires, true
}

// newBootstrapSigner signs the public cluster-info with every join token, so that
// a machine that has only a token can tell the true cluster from a false one.
func newBootstrapSigner(e *env) Controller {
	secrets, maps := e.factory.Core().V1().Secrets().Informer(), e.factory.Core().V1().ConfigMaps().Informer()
	return Controller{
		Name: "bootstrap-signer-controller",
		Reads: []Source{
			wakes(maps, func(m *corev1.ConfigMap) []string {
				if keyOf(m) != clusterInfoKey {
					return nil
				}
				return []string{clusterInfoKey}
			}),
			wakes(secrets, func(s *corev1.Secret) []string {
				if s.Namespace != metav1.NamespaceSystem || s.Type != tokenSecretType {
					return nil
				}
				return []string{clusterInfoKey}
			}),
		},
		Writes: []string{"configmaps"},
		Sync: func(ctx context.Context, key string) (time.Duration, error) {
			info := cached[corev1.ConfigMap](maps, key)
			if info == nil || info.Data[clusterInfoField] == "" {
				return 0, nil
			}
			data := signedClusterInfo(info.Data, inNamespace[*corev1.Secret](secrets, metav1.NamespaceSystem), time.Now())
			if data == nil {
				return 0, nil
			}
			changed := info.DeepCopy()
			changed.Data = data
			if _, err := e.clients.CoreV1().ConfigMaps(info.Namespace).Update(ctx, changed, metav1.UpdateOptions{}); err != nil {
				return 0, fmt.Errorf("sign cluster-info: %w", err)
			}
			return 0, nil
		},
	}
}

// signedClusterInfo returns the data with a signature for each valid token, nil
// if nothing changes.
func signedClusterInfo(data map[string]string, secrets []*corev1.Secret, now time.Time) map[string]string {
	out := map[string]string{}
	for k, v := range data {
		if !strings.HasPrefix(k, signaturePrefix) {
			out[k] = v
		}
	}
	for _, s := range secrets {
		id, secret, expires, ok := bootstrapToken(s)
		if !ok || string(s.Data["usage-bootstrap-signing"]) != "true" || !expires.IsZero() && expires.Before(now) {
			continue
		}
		out[signaturePrefix+id] = detachedSignature(data[clusterInfoField], id, secret)
	}
	if maps.Equal(out, data) {
		return nil
	}
	return out
}

// detachedSignature is a JWS (RFC 7515, HS256) whose payload is left out: the
// reader has it already.
func detachedSignature(content, id, secret string) string {
	enc := base64.RawURLEncoding.EncodeToString
	header := enc([]byte(fmt.Sprintf(`{"alg":"HS256","kid":%q}`, id)))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(header + "." + enc([]byte(content))))
	return header + ".." + enc(mac.Sum(nil))
}

// newTokenCleaner deletes join tokens that have expired.
func newTokenCleaner(e *env) Controller {
	secrets := e.factory.Core().V1().Secrets().Informer()
	return Controller{
		Name:   "token-cleaner-controller",
		Reads:  []Source{wakesSelf(secrets)},
		Writes: []string{"secrets"},
		Sync: func(ctx context.Context, key string) (time.Duration, error) {
			s := cached[corev1.Secret](secrets, key)
			if s == nil {
				return 0, nil
			}
			_, _, expires, ok := bootstrapToken(s)
			if !ok || expires.IsZero() {
				return 0, nil
			}
			if left := time.Until(expires); left > 0 {
				return left, nil
			}
			return 0, ignoreGone(e.clients.CoreV1().Secrets(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{Preconditions: sameObject(s)}))
		},
	}
}
