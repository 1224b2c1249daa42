package auth

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/server/webhook"
)

// TokenWebhook asks a service whose tokens are, by TokenReviews.
type TokenWebhook struct {
	client    *webhook.Client
	version   string
	audiences authenticator.Audiences
}

// NewTokenWebhook makes one of a file in kubeconfig format. version is that of
// the reviews, v1 or v1beta1, which have the same form; audiences are those of the
// API server. Answers are remembered for ttl, refusals too.
func NewTokenWebhook(file, version string, audiences []string, ttl time.Duration) (authenticator.Token, error) {
	if version != "v1" && version != "v1beta1" {
		return nil, fmt.Errorf("unsupported authentication webhook version %q, supported versions are %q, %q", version, "v1", "v1beta1")
	}
	client, err := webhook.Open(file, webhook.Options{})
	if err != nil {
		return nil, err
	}
	hook := &TokenWebhook{client: client, version: version, audiences: audiences}
	return newTokenCache([]authenticator.Token{hook}, ttl, ttl), nil
}

// AuthenticateToken implements authenticator.Token. A service that does not know
// of audiences is taken to mean the API server's.
func (w *TokenWebhook) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	wanted, limited := authenticator.AudiencesFrom(ctx)
	question := authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/" + w.version, Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: wanted},
	}
	var answer authenticationv1.TokenReview
	if err := w.client.Post(ctx, &question, &answer); err != nil {
		return nil, false, err
	}
	status := answer.Status
	var audiences authenticator.Audiences
	if limited {
		meant := w.audiences
		if len(status.Audiences) > 0 {
			meant = status.Audiences
		}
		if audiences = wanted.Intersect(meant); len(audiences) == 0 {
			return nil, false, nil
		}
	}
	if !status.Authenticated {
		if status.Error != "" {
			return nil, false, errors.New(status.Error)
		}
		return nil, false, nil
	}
	who := &user.DefaultInfo{Name: status.User.Username, UID: status.User.UID, Groups: status.User.Groups}
	for key, values := range status.User.Extra {
		if who.Extra == nil {
			who.Extra = map[string][]string{}
		}
		who.Extra[key] = values
	}
	return &authenticator.Response{User: who, Audiences: audiences}, true, nil
}
