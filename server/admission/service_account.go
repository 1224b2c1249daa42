package admission

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/sets"

	"orrery.dev/api"
)

const (
	tokenMountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenVolumePrefix = "kube-api-access-"
	// tokenSeconds is an hour and a bit; the issuer knows this very number.
	tokenSeconds = 3607
	// enforceMountable on a service account limits its pods to its own secrets.
	enforceMountable = "kubernetes.io/enforce-mountable-secrets"
	// defaultAccountWait is how often a new namespace is given 100 ms for its
	// controller to make the default account.
	defaultAccountWait = 10
)

// serviceAccount gives each pod its service account and a volume with the
// account's token, the cluster's CA and the namespace.
func serviceAccount(reader Reader) Plugin {
	return Plugin{
		Name: "ServiceAccount",
		On:   either(on("", "pods", Create), on("", "pods/ephemeralcontainers", Update)),
		Mutate: func(ctx context.Context, r *Request) error {
			pod, ok := r.Object.(*corev1.Pod)
			if !ok || r.Subresource != "" {
				return nil
			}
			if api.IsMirror(pod) {
				return refuseMirrorSecrets(r, pod)
			}
			if pod.Spec.ServiceAccountName == "" {
				pod.Spec.ServiceAccountName = "default"
			}
			pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
			account, err := findAccount(ctx, reader, r.Namespace, pod.Spec.ServiceAccountName)
			if err != nil {
				return r.forbid("error looking up service account %s/%s: %w", r.Namespace, pod.Spec.ServiceAccountName, err)
			}
			if wantsToken(pod, account) {
				mountToken(pod)
			}
			if len(pod.Spec.ImagePullSecrets) == 0 {
				pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, account.ImagePullSecrets...)
			}
			return nil
		},
		Validate: func(ctx context.Context, r *Request) error {
			pod, ok := r.Object.(*corev1.Pod)
			if !ok || api.IsMirror(pod) {
				return nil
			}
			account, err := get[*corev1.ServiceAccount](ctx, reader, core("serviceaccounts"), r.Namespace, pod.Spec.ServiceAccountName)
			if err != nil {
				return r.forbid("error looking up service account %s/%s: %w", r.Namespace, pod.Spec.ServiceAccountName, err)
			}
			if account.Annotations[enforceMountable] != "true" {
				return nil
			}
			return limitSecrets(r, pod, account)
		},
	}
}

// refuseMirrorSecrets: what a node made up must not pull secrets into the
// node's reach.
func refuseMirrorSecrets(r *Request, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return r.forbid("a mirror pod may not reference service accounts")
	}
	for name := range podReferences(pod) {
		if strings.HasPrefix(name, "secrets/") {
			return r.forbid("a mirror pod may not reference secrets")
		}
	}
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ServiceAccountToken != nil {
				return r.forbid("a mirror pod may not use ServiceAccountToken volume projections")
			}
		}
	}
	return nil
}

func findAccount(ctx context.Context, reader Reader, namespace, name string) (*corev1.ServiceAccount, error) {
	for try := 1; ; try++ {
		account, err := get[*corev1.ServiceAccount](ctx, reader, core("serviceaccounts"), namespace, name)
		if err == nil || !apierrors.IsNotFound(err) {
			return account, err
		}
		if name != "default" || try == defaultAccountWait {
			return nil, apierrors.NewNotFound(corev1.Resource("serviceaccount"), name)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func wantsToken(pod *corev1.Pod, account *corev1.ServiceAccount) bool {
	if pod.Spec.AutomountServiceAccountToken != nil {
		return *pod.Spec.AutomountServiceAccountToken
	}
	return account.AutomountServiceAccountToken == nil || *account.AutomountServiceAccountToken
}

// mountToken mounts the token volume in each container that has nothing at its
// place, and adds the volume if any has need of it.
func mountToken(pod *corev1.Pod) {
	name, have, names := "", false, sets.New[string]()
	for _, v := range pod.Spec.Volumes {
		names.Insert(v.Name)
		if strings.HasPrefix(v.Name, tokenVolumePrefix) {
			name, have = v.Name, true
		}
	}
	for name == "" || !have && names.Has(name) {
		name = tokenVolumePrefix + rand.String(5)
	}
	needed := false
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			if c := &containers[i]; !mounts(c, tokenMountPath) {
				c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: tokenMountPath})
				needed = true
			}
		}
	}
	if needed && !have {
		pod.Spec.Volumes = append(pod.Spec.Volumes, tokenVolume(name))
	}
}

func mounts(c *corev1.Container, path string) bool {
	for _, m := range c.VolumeMounts {
		if m.MountPath == path {
			return true
		}
	}
	return false
}

func tokenVolume(name string) corev1.Volume {
	mode, seconds := int32(0o644), int64(tokenSeconds)
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		DefaultMode: &mode,
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}},
			}}},
		},
	}}}
}

// limitSecrets holds a pod to the secrets that its account lists.
func limitSecrets(r *Request, pod *corev1.Pod, account *corev1.ServiceAccount) error {
	mountable, pullable := sets.New[string](), sets.New[string]()
	for _, s := range account.Secrets {
		mountable.Insert(s.Name)
	}
	for _, s := range account.ImagePullSecrets {
		pullable.Insert(s.Name)
	}
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !mountable.Has(v.Secret.SecretName) {
			return r.forbid("volume with secret.secretName=%q is not allowed because service account %s does not reference that secret", v.Secret.SecretName, account.Name)
		}
	}
	refuse := func(kind, container, where, secret string) error {
		return r.forbid("%s %s %s referencing secret.secretName=%q is not allowed because service account %s does not reference that secret", kind, container, where, secret, account.Name)
	}
	check := func(kind, container string, env []corev1.EnvVar, from []corev1.EnvFromSource) error {
		for _, f := range from {
			if f.SecretRef != nil && !mountable.Has(f.SecretRef.Name) {
				return refuse(kind, container, "with envFrom", f.SecretRef.Name)
			}
		}
		for _, e := range env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && !mountable.Has(e.ValueFrom.SecretKeyRef.Name) {
				return refuse(kind, container, fmt.Sprintf("with envVar %s", e.Name), e.ValueFrom.SecretKeyRef.Name)
			}
		}
		return nil
	}
	for _, c := range pod.Spec.InitContainers {
		if err := check("init container", c.Name, c.Env, c.EnvFrom); err != nil {
			return err
		}
	}
	for _, c := range pod.Spec.Containers {
		if err := check("container", c.Name, c.Env, c.EnvFrom); err != nil {
			return err
		}
	}
	for _, c := range pod.Spec.EphemeralContainers {
		if err := check("ephemeral container", c.Name, c.Env, c.EnvFrom); err != nil {
			return err
		}
	}
	for _, s := range pod.Spec.ImagePullSecrets {
		if !pullable.Has(s.Name) {
			return r.forbid("imagePullSecrets[].name=%q is not allowed because service account %s does not reference that imagePullSecret", s.Name, account.Name)
		}
	}
	return nil
}
