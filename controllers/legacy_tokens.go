package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

const (
	// tokenUnusedFor is how long a generated token has to be without use to be
	// marked as invalid, and then again to be deleted.
	tokenUnusedFor = 365 * 24 * time.Hour

	tokenLastUsed     = "kubernetes.io/legacy-token-last-used"
	tokenInvalidSince = "kubernetes.io/legacy-token-invalid-since"
	// tokenTracking says since when the API server notes the use of tokens.
	tokenTracking = "kube-apiserver-legacy-service-account-token-tracking"
)

// legacyTokens clears away the Secrets with tokens that Kubernetes made for every
// service account before 1.24: a cluster restored from those days may have many.
// Those that users asked for are not in their account's list, and stay.
type legacyTokens struct {
	*env
	secrets, accounts cache.SharedIndexInformer
}

func newLegacyTokens(e *env) Controller {
	c := &legacyTokens{env: e, secrets: e.factory.Core().V1().Secrets().Informer(), accounts: e.factory.Core().V1().ServiceAccounts().Informer()}
	return Controller{
		Name:   "legacy-serviceaccount-token-cleaner-controller",
		Reads:  []Source{reads(c.secrets), reads(c.accounts), reads(e.pods())},
		Writes: []string{"secrets"},
		Every:  24 * time.Hour,
		Sync:   c.sync,
	}
}

func (c *legacyTokens) sync(ctx context.Context, _ string) (time.Duration, error) {
	tracking, err := c.clients.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, tokenTracking, metav1.GetOptions{})
	if err != nil {
		return 0, err
	}
	since, err := time.Parse(time.DateOnly, tracking.Data["since"])
	if err != nil {
		return 0, fmt.Errorf("config map %s: %w", tokenTracking, err)
	}
	now := time.Now().UTC()
	if now.Before(since.AddDate(0, 0, 1).Add(tokenUnusedFor)) {
		return 0, nil // what was used before is not known
	}
	for _, secret := range everything[corev1.Secret](c.secrets) {
		if !c.isGenerated(secret) {
			continue
		}
		fate := tokenFate(secret, now)
		if fate == tokenKeep || c.isMounted(secret) {
			continue
		}
		if err := c.carryOut(ctx, secret, fate, now); ignoreGone(err) != nil {
			return 0, fmt.Errorf("unused token %s: %w", keyOf(secret), err)
		}
	}
	return 0, nil
}

func (c *legacyTokens) carryOut(ctx context.Context, secret *corev1.Secret, fate int, now time.Time) error {
	secrets := c.clients.CoreV1().Secrets(secret.Namespace)
	if fate == tokenDelete { // unless it was used just now
		return secrets.Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &secret.ResourceVersion}})
	}
	patch := metadataPatch(map[string]any{"uid": secret.UID, "labels": map[string]string{tokenInvalidSince: now.Format(time.DateOnly)}})
	_, err := secrets.Patch(ctx, secret.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// isGenerated says whether the secret's account lists it.
func (c *legacyTokens) isGenerated(secret *corev1.Secret) bool {
	if !isAccountSecret(secret) || secret.DeletionTimestamp != nil {
		return false
	}
	account := cached[corev1.ServiceAccount](c.accounts, secret.Namespace+"/"+secret.Annotations[corev1.ServiceAccountNameKey])
	return account != nil && ofAccount(secret, account) && slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret.Name })
}

// isMounted says whether a pod has the secret, for whatever it is that reads the
// token there.
func (c *legacyTokens) isMounted(secret *corev1.Secret) bool {
	return slices.ContainsFunc(inNamespace[*corev1.Pod](c.pods(), secret.Namespace), func(pod *corev1.Pod) bool {
		return namesSecret(&pod.Spec, secret.Name)
	})
}

func namesSecret(spec *corev1.PodSpec, name string) bool {
	if slices.ContainsFunc(spec.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return r.Name == name }) {
		return true
	}
	for _, v := range spec.Volumes {
		switch {
		case v.Secret != nil && v.Secret.SecretName == name,
			v.CSI != nil && v.CSI.NodePublishSecretRef != nil && v.CSI.NodePublishSecretRef.Name == name,
			v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.Secret != nil && s.Secret.Name == name }):
			return true
		}
	}
	containers := slices.Concat(spec.InitContainers, spec.Containers)
	for _, c := range spec.EphemeralContainers {
		containers = append(containers, corev1.Container(c.EphemeralContainerCommon))
	}
	return slices.ContainsFunc(containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.EnvFrom, func(e corev1.EnvFromSource) bool { return e.SecretRef != nil && e.SecretRef.Name == name }) ||
			slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
				return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name == name
			})
	})
}

// What is to become of a generated token.
const (
	tokenKeep = iota
	tokenInvalidate
	tokenDelete
)

// tokenFate decides by age, last use and the time since when the token has been
// invalid. Days are compared as text, which orders as they do.
func tokenFate(secret *corev1.Secret, now time.Time) int {
	limit := now.Add(-tokenUnusedFor)
	day := limit.Format(time.DateOnly)
	if !secret.CreationTimestamp.Time.Before(limit) {
		return tokenKeep
	}
	if used, ok := secret.Labels[tokenLastUsed]; ok && (!isDay(used) || used >= day) {
		return tokenKeep
	}
	invalid := secret.Labels[tokenInvalidSince]
	switch {
	case !isDay(invalid):
		return tokenInvalidate
	case invalid >= day:
		return tokenKeep
	}
	return tokenDelete
}

func isDay(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}
