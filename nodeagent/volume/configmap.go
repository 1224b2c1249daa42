package volume

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// configMap is a directory with a file per key.
func (h *Host) configMap(ctx context.Context, r request) (Mounted, error) {
	s := r.vol.ConfigMap
	files := payload{}
	if err := h.addConfigMap(ctx, r.pod, s.Name, s.Items, s.Optional, ptr.Deref(s.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode), files); err != nil {
		return Mounted{}, err
	}
	return h.fill(r, files, false)
}

// addConfigMap adds a ConfigMap's keys to files: all of them, or items.
func (h *Host) addConfigMap(ctx context.Context, pod *corev1.Pod, name string, items []corev1.KeyToPath, optional *bool, mode int32, files payload) error {
	cm, err := h.Objects.ConfigMap(ctx, pod.Namespace, name)
	if err != nil {
		if IsMissing(err) && optional != nil && *optional {
			return nil
		}
		return err
	}
	data := map[string][]byte{}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	return files.add(data, items, optional, mode, "config")
}

// secret is a directory in memory with a file per key.
func (h *Host) secret(ctx context.Context, r request) (Mounted, error) {
	s := r.vol.Secret
	files := payload{}
	if err := h.addSecret(ctx, r.pod, s.SecretName, s.Items, s.Optional, ptr.Deref(s.DefaultMode, corev1.SecretVolumeSourceDefaultMode), files); err != nil {
		return Mounted{}, err
	}
	return h.fill(r, files, true)
}

func (h *Host) addSecret(ctx context.Context, pod *corev1.Pod, name string, items []corev1.KeyToPath, optional *bool, mode int32, files payload) error {
	secret, err := h.Objects.Secret(ctx, pod.Namespace, name)
	if err != nil {
		if IsMissing(err) && optional != nil && *optional {
			return nil
		}
		return err
	}
	return files.add(secret.Data, items, optional, mode, "secret")
}

// add takes in keys of an object, under their own names or as items say.
func (p payload) add(data map[string][]byte, items []corev1.KeyToPath, optional *bool, mode int32, what string) error {
	if items == nil {
		for k, v := range data {
			p[k] = file{data: v, mode: mode}
		}
		return nil
	}
	for _, item := range items {
		v, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("references non-existent %s key: %s", what, item.Key)
		}
		p[item.Path] = file{data: v, mode: ptr.Deref(item.Mode, mode)}
	}
	return nil
}
