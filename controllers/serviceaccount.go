package controllers

import (
	"context"
	"time"

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
