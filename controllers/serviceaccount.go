package controllers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newServiceAccount keeps the service account "default" in every namespace. Its
// tokens come from the API server, on request.
func newServiceAccount(e *env) Controller {
	const name = "default"
	namespaces := e.factory.Core().V1().Namespaces().Informer()
	accounts := e.factory.Core().V1().ServiceAccounts().Informer()
	return Controller{
		Name: "serviceaccount-controller",
		Reads: []Source{
			wakesSelf(namespaces),
			wakes(accounts, func(sa *corev1.ServiceAccount) []string { return []string{sa.Namespace} }),
		},
		Writes: []string{"serviceaccounts"},
		Sync: func(ctx context.Context, namespace string) (time.Duration, error) {
			if !namespaceActive(cached[corev1.Namespace](namespaces, namespace)) || cached[corev1.ServiceAccount](accounts, namespace+"/"+name) != nil {
				return 0, nil
			}
			sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
			_, err := e.clients.CoreV1().ServiceAccounts(namespace).Create(ctx, sa, metav1.CreateOptions{})
			return 0, settled(err)
		},
	}
}

func namespaceActive(ns *corev1.Namespace) bool {
	return ns != nil && ns.DeletionTimestamp == nil && ns.Status.Phase != corev1.NamespaceTerminating
}

// settled forgives errors of a creation that mean that there is nothing to do:
// the object is there, or its namespace is going or gone.
func settled(err error) error {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// rootCAName is the ConfigMap by which pods verify the API server.
const rootCAName = "kube-root-ca.crt"

// newRootCA keeps that ConfigMap in every namespace.
func newRootCA(e *env) Controller {
	const name = rootCAName
	const description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
	namespaces := e.factory.Core().V1().Namespaces().Informer()
	maps := e.factory.Core().V1().ConfigMaps().Informer()
	want := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"kubernetes.io/description": description}},
		Data:       map[string]string{"ca.crt": string(e.cfg.RootCA)},
	}
	return Controller{
		Name: "root-ca-certificate-publisher-controller",
		Reads: []Source{
			wakesSelf(namespaces),
			wakes(maps, func(m *corev1.ConfigMap) []string {
				if m.Name != name {
					return nil
				}
				return []string{m.Namespace}
			}),
		},
		Writes: []string{"configmaps"},
		Sync: func(ctx context.Context, namespace string) (time.Duration, error) {
			if !namespaceActive(cached[corev1.Namespace](namespaces, namespace)) {
				return 0, nil
			}
			have := cached[corev1.ConfigMap](maps, namespace+"/"+name)
			if have == nil {
				_, err := e.clients.CoreV1().ConfigMaps(namespace).Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
				return 0, settled(err)
			}
			if len(have.Data) == 1 && have.Data["ca.crt"] == want.Data["ca.crt"] && have.Annotations["kubernetes.io/description"] != "" {
				return 0, nil
			}
			changed := have.DeepCopy()
			changed.Data = want.Data
			changed.Annotations = withLabel(changed.Annotations, "kubernetes.io/description", description)
			_, err := e.clients.CoreV1().ConfigMaps(namespace).Update(ctx, changed, metav1.UpdateOptions{})
			return 0, err
		},
	}
}

// servingSigner stands for whoever signs the API server's own certificates.
const servingSigner = "kubernetes.io/kube-apiserver-serving"

// newServingTrust publishes what newRootCA puts into every namespace once more as
// a ClusterTrustBundle, and takes away those of former authorities. The name has
// a part of the contents' hash in it.
func newServingTrust(e *env) Controller {
	bundles := e.factory.Certificates().V1().ClusterTrustBundles().Informer()
	hash := sha256.Sum256(e.cfg.RootCA)
	want := &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(servingSigner, "/", ":") + ":" + hex.EncodeToString(hash[:12])},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: servingSigner, TrustBundle: string(e.cfg.RootCA)},
	}
	return Controller{
		Name: "kube-apiserver-serving-clustertrustbundle-publisher-controller",
		Reads: []Source{wakes(bundles, func(b *certificatesv1.ClusterTrustBundle) []string {
			if b.Spec.SignerName != servingSigner {
				return nil
			}
			return []string{b.Name}
		})},
		Writes: []string{"certificates.k8s.io/clustertrustbundles"},
		Every:  time.Hour, // begins with one
		Sync: func(ctx context.Context, name string) (time.Duration, error) {
			client := e.clients.CertificatesV1().ClusterTrustBundles()
			if name != "" && name != want.Name {
				if cached[certificatesv1.ClusterTrustBundle](bundles, name) == nil {
					return 0, nil
				}
				return 0, ignoreNotFound(client.Delete(ctx, name, metav1.DeleteOptions{}))
			}
			have := cached[certificatesv1.ClusterTrustBundle](bundles, want.Name)
			if have == nil {
				_, err := client.Create(ctx, want.DeepCopy(), metav1.CreateOptions{})
				return 0, settled(err)
			}
			if have.Spec.TrustBundle == want.Spec.TrustBundle {
				return 0, nil
			}
			changed := have.DeepCopy()
			changed.Spec.TrustBundle = want.Spec.TrustBundle
			_, err := client.Update(ctx, changed, metav1.UpdateOptions{})
			return 0, err
		},
	}
}
