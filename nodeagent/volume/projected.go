package volume

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
)

// projected is several sources in one directory; a later source overrides an
// earlier one.
func (h *Host) projected(ctx context.Context, r request) (Mounted, error) {
	mode := ptr.Deref(r.vol.Projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	files := payload{}
	var errs []error
	for i, s := range r.vol.Projected.Sources {
		var err error
		switch {
		case s.ConfigMap != nil:
			err = h.addConfigMap(ctx, r.pod, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, mode, files)
		case s.Secret != nil:
			err = h.addSecret(ctx, r.pod, s.Secret.Name, s.Secret.Items, s.Secret.Optional, mode, files)
		case s.DownwardAPI != nil:
			err = h.addDownward(r.pod, s.DownwardAPI.Items, mode, files)
		case s.ServiceAccountToken != nil:
			err = h.addToken(ctx, r.pod, s.ServiceAccountToken, mode, files)
		case s.ClusterTrustBundle != nil:
			err = h.addTrustAnchors(ctx, r.pod, s.ClusterTrustBundle, mode, files)
		case s.PodCertificate != nil:
			err = h.addCertificate(ctx, r, i, s.PodCertificate, mode, files)
		}
		errs = append(errs, err)
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return Mounted{}, err
	}
	return h.fill(r, files, true)
}

// addToken adds a service account token.
func (h *Host) addToken(ctx context.Context, pod *corev1.Pod, s *corev1.ServiceAccountTokenProjection, mode int32, files payload) error {
	seconds := int64(3600)
	if s.ExpirationSeconds != nil {
		seconds = *s.ExpirationSeconds
	}
	value, err := h.token(ctx, pod, s.Audience, seconds)
	if err != nil {
		return err
	}
	files[s.Path] = personal(pod, []byte(value), mode)
	return nil
}

func (h *Host) addTrustAnchors(ctx context.Context, pod *corev1.Pod, s *corev1.ClusterTrustBundleProjection, mode int32, files payload) error {
	anchors, err := h.Objects.TrustAnchors(ctx, s)
	if err != nil {
		return err
	}
	files[s.Path] = personal(pod, anchors, mode)
	return nil
}

// addCertificate adds the pod's own certificate and its key, in one file or in
// two.
func (h *Host) addCertificate(ctx context.Context, r request, index int, s *corev1.PodCertificateProjection, mode int32, files payload) error {
	key, chain, err := h.Objects.Certificate(ctx, r.pod, r.vol.Name, index, s)
	if err != nil {
		return err
	}
	for path, data := range map[string][]byte{s.CredentialBundlePath: slices.Concat(key, chain), s.KeyPath: key, s.CertificateChainPath: chain} {
		if path != "" {
			files[path] = personal(r.pod, data, mode)
		}
	}
	return nil
}

// personal is a file that only those may read who need it, as far as can be
// told: the pod's group, or the one user of all containers.
func personal(pod *corev1.Pod, data []byte, mode int32) file {
	f := file{data: data, mode: mode}
	if user, ok := onlyUser(pod); ok {
		f.mode, f.user = 0o600, &user
	}
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		f.mode = 0o600
	}
	return f
}

// onlyUser is the user that all containers run as, if the pod says so.
func onlyUser(pod *corev1.Pod) (int64, bool) {
	var user *int64
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for _, c := range list {
			var u *int64
			if c.SecurityContext != nil {
				u = c.SecurityContext.RunAsUser
			}
			if u == nil && pod.Spec.SecurityContext != nil {
				u = pod.Spec.SecurityContext.RunAsUser
			}
			if u == nil || user != nil && *u != *user {
				return 0, false
			}
			user = u
		}
	}
	if user == nil {
		return 0, false
	}
	return *user, true
}
