package auth

import (
	"context"
	"crypto/subtle"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// BootstrapTokens knows tokens of the form ID.SECRET by the secrets
// bootstrap-token-ID in kube-system: what a machine shows when it joins.
type BootstrapTokens struct{ Reader Reader }

var (
	bootstrapToken = regexp.MustCompile(`^([a-z0-9]{6})\.([a-z0-9]{16})$`)
	bootstrapGroup = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)
)

// AuthenticateToken implements authenticator.Token.
func (b BootstrapTokens) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	parts := bootstrapToken.FindStringSubmatch(token)
	if parts == nil {
		return nil, false, nil
	}
	id := parts[1]
	obj, err := b.Reader.Get(ctx, core("secrets"), "kube-system", "bootstrap-token-"+id)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	secret, ok := obj.(*corev1.Secret)
	if !ok || !bootstrapSecretIsFor(secret, id, parts[2], time.Now()) {
		return nil, false, nil
	}
	groups := []string{"system:bootstrappers"}
	for _, g := range strings.Split(string(secret.Data["auth-extra-groups"]), ",") {
		switch {
		case g == "":
		case !bootstrapGroup.MatchString(g):
			return nil, false, nil
		default:
			groups = append(groups, g)
		}
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: "system:bootstrap:" + id, Groups: groups}}, true, nil
}

func bootstrapSecretIsFor(s *corev1.Secret, id, secret string, now time.Time) bool {
	if s.DeletionTimestamp != nil || s.Type != "bootstrap.kubernetes.io/token" || string(s.Data["token-id"]) != id {
		return false
	}
	if len(s.Data["token-secret"]) == 0 || subtle.ConstantTimeCompare(s.Data["token-secret"], []byte(secret)) != 1 {
		return false
	}
	if text := string(s.Data["expiration"]); text != "" {
		end, err := time.Parse(time.RFC3339, text)
		if err != nil || !now.Before(end) {
			return false
		}
	}
	return string(s.Data["usage-bootstrap-authentication"]) == "true"
}
