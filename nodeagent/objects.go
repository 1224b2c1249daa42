package nodeagent

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// objects reads from the API what pods refer to. Reads are not cached: a pod
// must not start with an older ConfigMap than the one it was made to use.
type objects struct{ a *Agent }

var errStandalone = errors.New("there is no API server to ask")

func (o *objects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	if o.a.clients == nil {
		return nil, errStandalone
	}
	cm, err := o.a.clients.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	return cm, inKubeletWords(err, "configmap", name)
}

func (o *objects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	if o.a.clients == nil {
		return nil, errStandalone
	}
	secret, err := o.a.clients.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	return secret, inKubeletWords(err, "secret", name)
}

// inKubeletWords says `configmap "x" not found`, as events have always said,
// where the API says "configmaps".
func inKubeletWords(err error, what, name string) error {
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(corev1.Resource(what), name)
	}
	return err
}

// Token asks for a token of the pod's service account.
func (o *objects) Token(ctx context.Context, pod *corev1.Pod, audience string, seconds int64) (*authenticationv1.TokenRequestStatus, error) {
	if o.a.clients == nil {
		return nil, errStandalone
	}
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	if audience != "" {
		req.Spec.Audiences = []string{audience}
	}
	account := pod.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	resp, err := o.a.clients.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, req, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to fetch token: %w", err)
	}
	return &resp.Status, nil
}

// Volume is the PersistentVolume that a claim is bound to.
func (o *objects) Volume(ctx context.Context, namespace, claim string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	if o.a.clients == nil {
		return nil, nil, errStandalone
	}
	pvc, err := o.a.clients.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	if pvc.Status.Phase != corev1.ClaimBound || pvc.Spec.VolumeName == "" {
		return nil, nil, fmt.Errorf("PVC %s/%s is not bound", namespace, claim)
	}
	pv, err := o.a.clients.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	if pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID {
		return nil, nil, fmt.Errorf("PV %s is not bound to PVC %s/%s", pv.Name, namespace, claim)
	}
	return pvc, pv, nil
}

// TrustAnchors are the certificates that a projection asks for.
func (o *objects) TrustAnchors(ctx context.Context, p *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	if o.a.clients == nil {
		return nil, errStandalone
	}
	return o.a.trust.anchors(ctx, p)
}

// Certificate is the pod's own, for one source of one of its volumes.
func (o *objects) Certificate(ctx context.Context, pod *corev1.Pod, volume string, index int, p *corev1.PodCertificateProjection) (key, chain []byte, err error) {
	if o.a.clients == nil {
		return nil, nil, errStandalone
	}
	return o.a.certificates.bundle(ctx, pod, volume, index, p)
}

// volumeObjects are objects that fill volumes: the follower is told which
// version of each it was.
type volumeObjects struct{ objects }

func (o *volumeObjects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	cm, err := o.objects.ConfigMap(ctx, namespace, name)
	if err == nil {
		o.a.follower.note(source{resourceConfigMaps, namespace, name}, version{cm.ResourceVersion, isTrue(cm.Immutable)})
	}
	return cm, err
}

func (o *volumeObjects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := o.objects.Secret(ctx, namespace, name)
	if err == nil {
		o.a.follower.note(source{resourceSecrets, namespace, name}, version{secret.ResourceVersion, isTrue(secret.Immutable)})
	}
	return secret, err
}
