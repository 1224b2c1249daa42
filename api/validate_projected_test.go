package api

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestProjectedFaults holds the messages for projected volumes against what
// kubectl prints on an upstream cluster.
func TestProjectedFaults(t *testing.T) {
	const at = "spec.volumes[0].projected"
	for name, c := range map[string]struct{ sources, want string }{
		"good": {`
- {secret: {name: s}}
- {serviceAccountToken: {path: token}}
- {clusterTrustBundle: {name: "a.b:c:d", path: ca.pem}}
- {clusterTrustBundle: {signerName: a.b/c, labelSelector: {}, path: all.pem}}
- {podCertificate: {signerName: a.b/c, keyType: ED25519, credentialBundlePath: creds.pem}}`, ""},
		"same path": {`
- {downwardAPI: {items: [{path: x, fieldRef: {fieldPath: metadata.name}}]}}
- {podCertificate: {signerName: a.b/c, keyType: ED25519, keyPath: x}}`, at + `: Invalid value: "x": conflicting duplicate paths`},
		"two in one":        {`- {secret: {name: s}, configMap: {name: c}}`, at + `.sources[0]: Forbidden: may not specify more than 1 volume type per source`},
		"token for a while": {`- {serviceAccountToken: {path: token, expirationSeconds: 5}}`, at + `.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 5: may not specify a duration less than 10 minutes`},
		"bundle of nobody":  {`- {clusterTrustBundle: {path: x}}`, at + `.sources[0].clusterTrustBundle: Required value: either name or signerName must be specified`},
		"bundle by name and labels": {`- {clusterTrustBundle: {name: x, labelSelector: {}, path: x}}`,
			at + `.sources[0].clusterTrustBundle.labelSelector: Invalid value: {}: labelSelector must be unset if name is specified`},
		"bundle's way out": {`- {clusterTrustBundle: {name: x, path: ../x}}`, at + `.sources[0].clusterTrustBundle.path: Invalid value: "../x": must not contain '..'`},
		"signer's name":    {`- {clusterTrustBundle: {signerName: a/b, path: x}}`, at + `.sources[0].clusterTrustBundle.signerName: Invalid value: "a": should be a domain with at least two segments separated by dots`},
		"too long":         {`- {podCertificate: {signerName: a.b/c, keyType: ED25519, keyPath: x, maxExpirationSeconds: 7862401}}`, at + `.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 7862401: if provided, maxExpirationSeconds must be <= 7862400`},
		"too long for us":  {`- {podCertificate: {signerName: kubernetes.io/c, keyType: ED25519, keyPath: x, maxExpirationSeconds: 86401}}`, at + `.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 86401: if provided, maxExpirationSeconds must be <= 86400`},
		"too short":        {`- {podCertificate: {signerName: a.b/c, keyType: ED25519, keyPath: x, maxExpirationSeconds: 3599}}`, at + `.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 3599: if provided, maxExpirationSeconds must be >= 3600`},
		"nowhere":          {`- {podCertificate: {signerName: a.b/c, keyType: ED25519}}`, at + `.sources[0].podCertificate: Required value: specify at least one of credentialBundlePath, keyPath, and certificateChainPath`},
		"key type":         {`- {podCertificate: {signerName: a.b/c, keyType: DSA, keyPath: x}}`, at + `.sources[0].podCertificate.keyType: Unsupported value: "DSA": supported values: "RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"`},
	} {
		manifest := "spec:\n  serviceAccountName: a\n  containers: [{name: a, image: x}]\n  volumes:\n  - name: v\n    projected:\n      sources:\n" +
			strings.ReplaceAll(strings.TrimPrefix(c.sources, "\n"), "- {", "      - {")
		if got := faults(ValidatePod(read[corev1.Pod](t, manifest, DefaultPod), nil)); got != c.want {
			t.Errorf("%s:\n got  %s\n want %s", name, got, c.want)
		}
	}
}
