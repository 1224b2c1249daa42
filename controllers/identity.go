package controllers

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/oauth2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"orrery.dev/trace"
)

// A controller acts as a service account of its own in kube-system, which the
// bootstrap roles give just the rights that it needs; and the audit log tells who
// did what. Only the shared caches read as the controller manager itself.

// actingAs returns an env for one controller: the same caches, but clients that
// show the account's token. Without an account it acts as the controller manager,
// as all do without a client configuration (tests).
func (e *env) actingAs(account string) (*env, error) {
	if e.cfg.REST == nil || account == "" {
		return e, nil
	}
	cfg := rest.AnonymousClientConfig(e.cfg.REST)
	cfg.UserAgent = e.cfg.REST.UserAgent + "/" + account
	source := transport.NewCachedTokenSource(&accountTokens{clients: e.cfg.Clients, account: account})
	cfg.Wrap(transport.TokenSourceWrapTransport(source))
	cfg.Wrap(trace.Propagate)
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", account, err)
	}
	objects, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("metadata client of %s: %w", account, err)
	}
	own := *e
	own.clients, own.metadata = clients, objects
	return &own, nil
}

// accountTokens requests tokens of a service account, and makes the account when
// it is missing.
type accountTokens struct {
	clients kubernetes.Interface
	account string
}

// tokenLife is what upstream's controller manager asks for.
const tokenLife = time.Hour

// tokenTimeout bounds a request: Token has no context to go by.
const tokenTimeout = 10 * time.Second

// Token implements oauth2.TokenSource.
func (a *accountTokens) Token() (*oauth2.Token, error) {
	ctx, cancel := context.WithTimeout(context.Background(), tokenTimeout)
	defer cancel()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenLife.Seconds()))}}
	accounts := a.clients.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	answer, err := accounts.CreateToken(ctx, a.account, request, metav1.CreateOptions{})
	if apierrors.IsNotFound(err) {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.account, Namespace: metav1.NamespaceSystem}}
		if _, err = accounts.Create(ctx, account, metav1.CreateOptions{}); err == nil || apierrors.IsAlreadyExists(err) {
			answer, err = accounts.CreateToken(ctx, a.account, request, metav1.CreateOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("token of service account %s: %w", a.account, err)
	}
	return &oauth2.Token{AccessToken: answer.Status.Token, TokenType: "Bearer", Expiry: answer.Status.ExpirationTimestamp.Time}, nil
}
