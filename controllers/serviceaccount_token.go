package controllers

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// isAccountSecret says whether a Secret asks for the token of the service account that
// its annotations name.
func isAccountSecret(s *corev1.Secret) bool { return s.Type == corev1.SecretTypeServiceAccountToken }

// ofAccount says whether a secret belongs to an account; without a UID it is
// meant for whatever has the name.
func ofAccount(s *corev1.Secret, account *corev1.ServiceAccount) bool {
	uid := s.Annotations[corev1.ServiceAccountUIDKey]
	return s.Annotations[corev1.ServiceAccountNameKey] == account.Name && (uid == "" || uid == string(account.UID))
}

// newServiceAccountToken fills the Secrets that ask for an account's token, and
// deletes them when the account is gone.
func newServiceAccountToken(e *env) Controller {
	t := accountTokenSecrets{e: e, secrets: e.factory.Core().V1().Secrets().Informer(), accounts: e.factory.Core().V1().ServiceAccounts().Informer()}
	return Controller{
		Name: "serviceaccount-token-controller",
		Reads: []Source{
			wakes(t.secrets, func(s *corev1.Secret) []string {
				if !isAccountSecret(s) {
					return nil
				}
				return []string{keyOf(s)}
			}),
			wakes(t.accounts, func(a *corev1.ServiceAccount) (keys []string) {
				for _, s := range inNamespace[*corev1.Secret](t.secrets, a.Namespace) {
					if isAccountSecret(s) && s.Annotations[corev1.ServiceAccountNameKey] == a.Name {
						keys = append(keys, keyOf(s))
					}
				}
				return keys
			}),
		},
		Writes:  []string{"secrets", "serviceaccounts"},
		Workers: 5,
		Sync:    t.sync,
	}
}

type accountTokenSecrets struct {
	e                 *env
	secrets, accounts cache.SharedIndexInformer
}

func (t *accountTokenSecrets) sync(ctx context.Context, key string) (time.Duration, error) {
	secret := cached[corev1.Secret](t.secrets, key)
	if secret == nil {
		return 0, t.forget(ctx, key)
	}
	if !isAccountSecret(secret) || secret.DeletionTimestamp != nil {
		return 0, nil
	}
	name := secret.Annotations[corev1.ServiceAccountNameKey]
	account := cached[corev1.ServiceAccount](t.accounts, secret.Namespace+"/"+name)
	if account == nil || !ofAccount(secret, account) {
		// The cache may lag behind an account that was made with its secret.
		live, err := t.e.clients.CoreV1().ServiceAccounts(secret.Namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return 0, err
		}
		if err != nil || !ofAccount(secret, live) {
			return 0, ignoreGone(t.e.clients.CoreV1().Secrets(secret.Namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: sameObject(secret)}))
		}
		account = live
	}
	return 0, t.fill(ctx, secret, account)
}

// fill puts what is missing into a secret.
func (t *accountTokenSecrets) fill(ctx context.Context, secret *corev1.Secret, account *corev1.ServiceAccount) error {
	root := t.e.cfg.RootCA
	data := secret.Data
	oldRoot := len(root) > 0 && !bytes.Equal(data[corev1.ServiceAccountRootCAKey], root)
	noNamespace, noToken := len(data[corev1.ServiceAccountNamespaceKey]) == 0, len(data[corev1.ServiceAccountTokenKey]) == 0
	if !oldRoot && !noNamespace && !noToken {
		return nil
	}
	filled := secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&filled.ObjectMeta, corev1.ServiceAccountUIDKey, string(account.UID))
	if filled.Data == nil {
		filled.Data = map[string][]byte{}
	}
	if oldRoot {
		filled.Data[corev1.ServiceAccountRootCAKey] = root
	}
	if noNamespace {
		filled.Data[corev1.ServiceAccountNamespaceKey] = []byte(secret.Namespace)
	}
	if noToken {
		token, err := t.e.cfg.AccountToken(account, secret.Name)
		if err != nil {
			return fmt.Errorf("token of service account %s: %w", keyOf(account), err)
		}
		filled.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	_, err := t.e.clients.CoreV1().Secrets(secret.Namespace).Update(ctx, filled, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// forget takes a secret that is gone out of the lists of its namespace's
// accounts.
func (t *accountTokenSecrets) forget(ctx context.Context, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	isIt := func(r corev1.ObjectReference) bool { return r.Name == name }
	for _, account := range inNamespace[*corev1.ServiceAccount](t.accounts, namespace) {
		if !slices.ContainsFunc(account.Secrets, isIt) {
			continue
		}
		changed := account.DeepCopy()
		changed.Secrets = slices.DeleteFunc(changed.Secrets, isIt)
		if _, err := t.e.clients.CoreV1().ServiceAccounts(namespace).Update(ctx, changed, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
