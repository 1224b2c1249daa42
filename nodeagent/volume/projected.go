package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// projected is several sources in one directory; a later source overrides an
// earlier one.
func (h *Host) projected(ctx context.Context, r request) (Mounted, error) {
	mode := modeOr(r.vol.Projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	files := payload{}
	for _, s := range r.vol.Projected.Sources {
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
		}
		if err != nil {
			return Mounted{}, err
		}
	}
	return h.fill(r, files, true)
}

// addToken adds a service account token. Only those who need it may read it,
// as far as can be told: the pod's group, or the one user of all containers.
func (h *Host) addToken(ctx context.Context, pod *corev1.Pod, s *corev1.ServiceAccountTokenProjection, mode int32, files payload) error {
	seconds := int64(3600)
	if s.ExpirationSeconds != nil {
		seconds = *s.ExpirationSeconds
	}
	value, err := h.token(ctx, pod, s.Audience, seconds)
	if err != nil {
		return err
	}
	f := file{data: []byte(value), mode: mode}
	if user, ok := onlyUser(pod); ok {
		f.mode, f.user = 0o600, &user
	}
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		f.mode = 0o600
	}
	files[s.Path] = f
	return nil
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
