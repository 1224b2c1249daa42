package admission

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// TestAll keeps the order of plugins from changing unseen.
func TestAll(t *testing.T) {
	store := newFakeStore()
	chain, err := All(Config{
		Reader: store, Writer: store, Addresses: newTestAddresses(t, store, "10.96.0.0/12", PortRange{30000, 32767}),
		Authorizer: authorizer.AuthorizerFunc(nil),
		CheckGrant: func(context.Context, user.Info, runtime.Object, runtime.Object) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "NamespaceLifecycle LimitRanger ServiceAccount TaintNodesByCondition PodSecurity Priority DefaultTolerationSeconds " +
		"DefaultStorageClass StorageObjectInUseProtection PersistentVolumeClaimResize RuntimeClass CertificateApproval CertificateSigning " +
		"ClusterTrustBundleAttest CertificateSubjectRestriction DefaultIngressClass PodTopologyLabels NodeDeclaredFeatureValidator PodResizeValidator MutatingAdmissionPolicy MutatingAdmissionWebhook ServiceAddresses DeviceRights GrantCheck ValidatingAdmissionPolicy ValidatingAdmissionWebhook ResourceQuota"
	if got := strings.Join(names(chain), " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
