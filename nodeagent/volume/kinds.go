package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Objects is what volumes are filled from.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Token(ctx context.Context, pod *corev1.Pod, audience string, seconds int64) (*authenticationv1.TokenRequestStatus, error)
	Volume(ctx context.Context, namespace, claim string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error)
	TrustAnchors(ctx context.Context, p *corev1.ClusterTrustBundleProjection) ([]byte, error)
	Certificate(ctx context.Context, pod *corev1.Pod, volume string, index int, p *corev1.PodCertificateProjection) (key, chain []byte, err error)
}

// Host makes volumes on this machine, below RootDir/pods/UID.
type Host struct {
	RootDir         string
	Objects         Objects
	NodeAllocatable func() corev1.ResourceList

	mu     sync.Mutex // protects tokens
	tokens map[tokenKey]token
}

// Mounted is a volume as a container may mount it.
type Mounted struct {
	Path     string
	ReadOnly bool
	Relabel  bool
	Image    string // an image volume: the runtime mounts it
}

// request is one volume to be made.
type request struct {
	pod *corev1.Pod
	vol *corev1.Volume
	dir string // its own directory, for those that need one
}

// kind is a type of volume.
type kind struct {
	name  string // of its directory
	is    func(*corev1.VolumeSource) bool
	setUp func(*Host, context.Context, request) (Mounted, error)
	// follows says that the contents follow something that may change while the
	// pod runs.
	follows bool
}

// kinds lists the types of volume.
func kinds() []kind {
	return []kind{
		{"kubernetes.io~empty-dir", func(s *corev1.VolumeSource) bool { return s.EmptyDir != nil || *s == (corev1.VolumeSource{}) }, (*Host).emptyDir, false},
		{"kubernetes.io~host-path", func(s *corev1.VolumeSource) bool { return s.HostPath != nil }, (*Host).hostPath, false},
		{"kubernetes.io~configmap", func(s *corev1.VolumeSource) bool { return s.ConfigMap != nil }, (*Host).configMap, true},
		{"kubernetes.io~secret", func(s *corev1.VolumeSource) bool { return s.Secret != nil }, (*Host).secret, true},
		{"kubernetes.io~downward-api", func(s *corev1.VolumeSource) bool { return s.DownwardAPI != nil }, (*Host).downwardAPI, true},
		{"kubernetes.io~projected", func(s *corev1.VolumeSource) bool { return s.Projected != nil }, (*Host).projected, true},
		{"kubernetes.io~claim", func(s *corev1.VolumeSource) bool { return s.PersistentVolumeClaim != nil || s.Ephemeral != nil }, (*Host).claim, false},
		{"kubernetes.io~image", func(s *corev1.VolumeSource) bool { return s.Image != nil }, (*Host).image, false},
		{"kubernetes.io~csi", func(s *corev1.VolumeSource) bool { return s.CSI != nil }, (*Host).csi, false},
	}
}

// SetUp makes all volumes of a pod, or brings them up to date. One that can't
// be made does not keep the others from being made.
func (h *Host) SetUp(ctx context.Context, pod *corev1.Pod) (map[string]Mounted, error) {
	out := map[string]Mounted{}
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		m, err := h.setUpOne(ctx, pod, v, kindOf(v))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[v.Name] = m
	}
	return out, errors.Join(errs...)
}

// Refresh brings the volumes up to date whose contents follow something. All
// were set up before.
func (h *Host) Refresh(ctx context.Context, pod *corev1.Pod) error {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if k := kindOf(v); k != nil && k.follows {
			_, err := h.setUpOne(ctx, pod, v, k)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (h *Host) setUpOne(ctx context.Context, pod *corev1.Pod, v *corev1.Volume, k *kind) (m Mounted, err error) {
	if k == nil {
		err = errors.New("no volume plugin matched")
	} else {
		m, err = k.setUp(h, ctx, request{pod: pod, vol: v, dir: filepath.Join(h.podDir(pod.UID), "volumes", k.name, v.Name)})
	}
	if err != nil {
		return m, fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
	}
	return m, nil
}

// kindOf is the type of a volume; nil when it is none of ours.
func kindOf(v *corev1.Volume) *kind {
	for _, k := range kinds() {
		if k.is(&v.VolumeSource) {
			return &k
		}
	}
	return nil
}

// Sources names the ConfigMaps and Secrets that fill a pod's volumes.
func Sources(pod *corev1.Pod) (configMaps, secrets []string) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i].VolumeSource
		switch {
		case v.ConfigMap != nil:
			configMaps = append(configMaps, v.ConfigMap.Name)
		case v.Secret != nil:
			secrets = append(secrets, v.Secret.SecretName)
		case v.Projected != nil:
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					configMaps = append(configMaps, s.ConfigMap.Name)
				}
				if s.Secret != nil {
					secrets = append(secrets, s.Secret.Name)
				}
			}
		}
	}
	return configMaps, secrets
}

func (h *Host) podDir(uid types.UID) string { return filepath.Join(h.RootDir, "pods", string(uid)) }

// TearDown unmounts and removes all volumes of a pod. Nothing is removed before
// everything is unmounted: a subpath may be bound to what is not the pod's.
func (h *Host) TearDown(uid types.UID) error {
	dir := h.podDir(uid)
	if err := unmountBelow(dir); err != nil {
		return err
	}
	for _, sub := range []string{"volume-subpaths", "volumes"} {
		if err := os.RemoveAll(filepath.Join(dir, sub)); err != nil {
			return err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range h.tokens {
		if k.pod == uid {
			delete(h.tokens, k)
		}
	}
	return nil
}

// Usage is how many bytes a volume takes up.
func (h *Host) Usage(uid types.UID, kind, name string) int64 {
	var sum int64
	root := filepath.Join(h.podDir(uid), "volumes", kind, name)
	_ = filepath.WalkDir(root, func(_ string, d os.DirEntry, err error) error {
		if err != nil {
			return nil // it changes while we look
		}
		if info, err := d.Info(); err == nil {
			sum += blocksOf(info)
		}
		return nil
	})
	return sum
}

// IsMissing says whether err means that an object is not there.
func IsMissing(err error) bool { return apierrors.IsNotFound(err) }

// tokenKey is what a service account token is asked for.
type tokenKey struct {
	pod      types.UID
	audience string
	seconds  int64
}

type token struct {
	value   string
	refresh time.Time
}

// token returns the pod's token, a new one when the old has lived four fifths
// of its time, or a day.
func (h *Host) token(ctx context.Context, pod *corev1.Pod, audience string, seconds int64) (string, error) {
	key := tokenKey{pod.UID, audience, seconds}
	h.mu.Lock()
	have, ok := h.tokens[key]
	h.mu.Unlock()
	if ok && time.Now().Before(have.refresh) {
		return have.value, nil
	}
	asked := time.Now()
	got, err := h.Objects.Token(ctx, pod, audience, seconds)
	if err != nil {
		if ok {
			return have.value, nil // still good for a while; asked again at the next look
		}
		return "", err
	}
	life := got.ExpirationTimestamp.Sub(asked)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tokens == nil {
		h.tokens = map[tokenKey]token{}
	}
	h.tokens[key] = token{got.Token, asked.Add(min(life*4/5, 24*time.Hour))}
	return got.Token, nil
}
