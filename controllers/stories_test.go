package controllers_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// More stories for TestStories: the controllers of small kinds.

func attributesClassStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	classes, claims := c.client.StorageV1().VolumeAttributesClasses(), c.client.CoreV1().PersistentVolumeClaims(ns)
	_, err := classes.Create(t.Context(), &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, DriverName: "disks.example.com", Parameters: map[string]string{"iops": "3000"},
	}, metav1.CreateOptions{})
	check(t, err)
	eventually(t, func() error {
		class, err := classes.Get(t.Context(), "fast", metav1.GetOptions{})
		if err != nil || len(class.Finalizers) != 1 {
			return fmt.Errorf("%v: finalizers %v", err, class.Finalizers)
		}
		return nil
	})
	_, err = claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr("none"), VolumeAttributesClassName: ptr("fast"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}, metav1.CreateOptions{})
	check(t, err)
	eventually(t, func() error { // the controllers know of the claim once it is guarded
		claim, err := claims.Get(t.Context(), "fast", metav1.GetOptions{})
		if err != nil || len(claim.Finalizers) == 0 {
			return fmt.Errorf("%v: %+v", err, claim)
		}
		return nil
	})
	check(t, classes.Delete(t.Context(), "fast", metav1.DeleteOptions{}))
	if class, err := classes.Get(t.Context(), "fast", metav1.GetOptions{}); err != nil || class.DeletionTimestamp == nil {
		t.Errorf("the class is in use, and yet: %v", err)
	}
	check(t, claims.Delete(t.Context(), "fast", metav1.DeleteOptions{}))
	eventually(t, func() error {
		if _, err := classes.Get(t.Context(), "fast", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the class is still there: %v", err)
		}
		return nil
	})
}

func serviceRangeStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	ranges, services := c.client.NetworkingV1().ServiceCIDRs(), c.client.CoreV1().Services(ns)
	_, err := ranges.Create(t.Context(), &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "more"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"192.0.2.0/24"}},
	}, metav1.CreateOptions{})
	check(t, err)
	readiness := func(want metav1.ConditionStatus) {
		t.Helper()
		eventually(t, func() error {
			r, err := ranges.Get(t.Context(), "more", metav1.GetOptions{})
			if err != nil || !slices.Contains(r.Finalizers, "networking.k8s.io/service-cidr-finalizer") || len(r.Status.Conditions) != 1 || r.Status.Conditions[0].Status != want {
				return fmt.Errorf("%v: %v %+v", err, r.Finalizers, r.Status)
			}
			return nil
		})
	}
	readiness(metav1.ConditionTrue)
	eventually(t, func() error {
		_, err := services.Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "s"}, Spec: corev1.ServiceSpec{
			ClusterIP: "192.0.2.7", Ports: []corev1.ServicePort{{Port: 80}},
		}}, metav1.CreateOptions{})
		return err
	})
	check(t, ranges.Delete(t.Context(), "more", metav1.DeleteOptions{}))
	readiness(metav1.ConditionFalse)
	check(t, services.Delete(t.Context(), "s", metav1.DeleteOptions{}))
	eventually(t, func() error {
		if _, err := ranges.Get(t.Context(), "more", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the range is still there: %v", err)
		}
		return nil
	})
}

// authority is a certificate authority's certificate.
func authority(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func trustBundleStory(t *testing.T, c *cluster) {
	bundles := c.client.CertificatesV1().ClusterTrustBundles()
	_, err := bundles.Create(t.Context(), &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes.io:kube-apiserver-serving:former"},
		Spec:       certificatesv1.ClusterTrustBundleSpec{SignerName: "kubernetes.io/kube-apiserver-serving", TrustBundle: string(authority(t))},
	}, metav1.CreateOptions{})
	check(t, err)
	eventually(t, func() error {
		found, err := bundles.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.signerName=kubernetes.io/kube-apiserver-serving"})
		check(t, err)
		published, err := c.client.CoreV1().ConfigMaps("default").Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		if err != nil || len(found.Items) != 1 || found.Items[0].Spec.TrustBundle != published.Data["ca.crt"] {
			return fmt.Errorf("%v: bundles %+v", err, found.Items)
		}
		return nil
	})
}

// A pod gets the device claim that it describes, keeps it while it runs, and
// leaves nothing behind.
func deviceStory(t *testing.T, c *cluster) {
	ns := c.namespace(t)
	claims, pods := c.client.ResourceV1().ResourceClaims(ns), c.client.CoreV1().Pods(ns)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "user"}, Spec: template(nil, "image:1").Spec}
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr("one-gpu")}}
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	check(t, err)
	_, err = c.client.ResourceV1().ResourceClaimTemplates(ns).Create(t.Context(), &resourcev1.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "one-gpu"},
		Spec: resourcev1.ResourceClaimTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"of": "user"}}, Spec: resourcev1.ResourceClaimSpec{
			Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu"}}}},
		}},
	}, metav1.CreateOptions{})
	check(t, err)
	var claim *resourcev1.ResourceClaim
	eventually(t, func() error {
		pod, err := pods.Get(t.Context(), "user", metav1.GetOptions{})
		if err != nil || len(pod.Status.ResourceClaimStatuses) != 1 {
			return fmt.Errorf("%v: claims of the pod: %v", err, pod.Status.ResourceClaimStatuses)
		}
		claim, err = claims.Get(t.Context(), *pod.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
		if err != nil || !metav1.IsControlledBy(claim, pod) || claim.Labels["of"] != "user" || len(claim.Spec.Devices.Requests) != 1 {
			return fmt.Errorf("%v: claim %+v", err, claim)
		}
		return nil
	})
	// What the scheduler does, but for the reservation: the pod was bound before.
	claim.Finalizers = append(claim.Finalizers, resourcev1.Finalizer)
	claim, err = claims.Update(t.Context(), claim, metav1.UpdateOptions{})
	check(t, err)
	claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "r", Driver: "gpus.example.com", Pool: "p", Device: "d"}},
	}}
	claim, err = claims.UpdateStatus(t.Context(), claim, metav1.UpdateOptions{})
	check(t, err)
	eventually(t, func() error {
		claim, err := claims.Get(t.Context(), claim.Name, metav1.GetOptions{})
		if err != nil || len(claim.Status.ReservedFor) != 1 || claim.Status.ReservedFor[0].Name != "user" {
			return fmt.Errorf("%v: reserved for %v", err, claim.Status.ReservedFor)
		}
		return nil
	})
	check(t, pods.Delete(t.Context(), "user", metav1.DeleteOptions{}))
	eventually(t, func() error {
		left, err := claims.List(t.Context(), metav1.ListOptions{})
		if err != nil || len(left.Items) > 0 {
			return fmt.Errorf("%v: %+v", err, left.Items)
		}
		return nil
	})
}
