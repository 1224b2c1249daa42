package api

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// projection checks the sources of one projected volume, whose files must not
// get in each other's way.
type projection struct {
	path  *field.Path
	files map[string]bool
	errs  field.ErrorList
}

func validProjected(p *corev1.ProjectedVolumeSource, path *field.Path) field.ErrorList {
	c := &projection{path: path, files: map[string]bool{}, errs: validMode(p.DefaultMode, path.Child("defaultMode"))}
	for i := range p.Sources {
		s, at := &p.Sources[i], path.Child("sources").Index(i)
		if n, second := countSources(s); n > 1 {
			c.errs = append(c.errs, field.Forbidden(at.Child(second), "may not specify more than 1 volume type per source"))
		}
		switch {
		case s.Secret != nil:
			c.keys(s.Secret.Name, s.Secret.Items, at.Child("secret"))
		case s.ConfigMap != nil:
			c.keys(s.ConfigMap.Name, s.ConfigMap.Items, at.Child("configMap"))
		case s.DownwardAPI != nil:
			c.errs = append(c.errs, validDownward(s.DownwardAPI.Items, at.Child("downwardAPI"))...)
			for _, item := range s.DownwardAPI.Items {
				c.take(item.Path, item.Path)
			}
		case s.ServiceAccountToken != nil:
			c.token(s.ServiceAccountToken, at.Child("serviceAccountToken"))
		case s.ClusterTrustBundle != nil:
			c.trustBundle(s.ClusterTrustBundle, at.Child("clusterTrustBundle"))
		case s.PodCertificate != nil:
			c.certificate(s.PodCertificate, at.Child("podCertificate"))
		}
	}
	return c.errs
}

// take notes a file; value is what an error shows when it is there already.
func (c *projection) take(file, value string) {
	if file != "" && c.files[file] {
		c.errs = append(c.errs, field.Invalid(c.path, value, "conflicting duplicate paths"))
	}
	c.files[file] = true
}

func (c *projection) keys(name string, items []corev1.KeyToPath, at *field.Path) {
	c.errs = append(c.errs, required(name, at.Child("name"))...)
	c.errs = append(c.errs, validKeys(items, at.Child("items"))...)
	for _, item := range items {
		c.take(item.Path, name)
	}
}

func (c *projection) token(t *corev1.ServiceAccountTokenProjection, at *field.Path) {
	if s := t.ExpirationSeconds; s == nil {
		c.errs = append(c.errs, field.Required(at.Child("expirationSeconds"), ""))
	} else if *s < 10*60 {
		c.errs = append(c.errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration less than 10 minutes"))
	} else if *s > 1<<32 {
		c.errs = append(c.errs, field.Invalid(at.Child("expirationSeconds"), *s, "may not specify a duration larger than 2^32 seconds"))
	}
	c.errs = append(c.errs, validFilePath(t.Path, c.path.Child("path"))...)
}

func (c *projection) trustBundle(b *corev1.ClusterTrustBundleProjection, at *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		c.errs = append(c.errs, field.Invalid(at, b, "only one of name and signerName may be used"))
	case b.Name != nil:
		if *b.Name == "" {
			c.errs = append(c.errs, field.Required(at.Child("name"), "must be a valid object name"))
		}
		for _, bad := range badTrustBundleName(*b.Name, signerOfBundle(*b.Name)) {
			c.errs = append(c.errs, field.Invalid(at.Child("name"), *b.Name, "not a valid clustertrustbundlename: "+bad))
		}
		if b.LabelSelector != nil {
			c.errs = append(c.errs, field.Invalid(at.Child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified"))
		}
	case b.SignerName != nil:
		if *b.SignerName == "" {
			c.errs = append(c.errs, field.Required(at.Child("signerName"), "must be a valid signer name"))
		}
		c.errs = append(c.errs, validSignerName(*b.SignerName, at.Child("signerName"))...)
		if b.LabelSelector != nil {
			c.errs = append(c.errs, metavalidation.ValidateLabelSelector(b.LabelSelector, metavalidation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
		}
	default:
		c.errs = append(c.errs, field.Required(at, "either name or signerName must be specified"))
	}
	c.errs = append(c.errs, validFilePath(b.Path, at.Child("path"))...)
	c.take(b.Path, b.Path)
}

// badTrustBundleName says what is wrong with the name of a ClusterTrustBundle:
// that of a signer begins with the signer's.
func badTrustBundleName(name, signer string) []string {
	if signer == "" {
		if strings.Contains(name, ":") {
			return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
		}
		return apivalidation.NameIsDNSSubdomain(name, false)
	}
	prefix := strings.ReplaceAll(signer, "/", ":") + ":"
	rest, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, prefix)}
	}
	return apivalidation.NameIsDNSSubdomain(rest, false)
}

// signerOfBundle is the signer that a ClusterTrustBundle's name tells of.
func signerOfBundle(name string) string {
	i := strings.LastIndexByte(name, ':')
	if i < 0 {
		return ""
	}
	return strings.ReplaceAll(name[:i], ":", "/")
}

// How long a certificate for a pod may last, in seconds.
const (
	certificateLifeMin           = 60 * 60
	certificateLifeMax           = 91 * 24 * 60 * 60
	certificateLifeMaxKubernetes = 24 * 60 * 60 // of Kubernetes' own signers
)

func (c *projection) certificate(p *corev1.PodCertificateProjection, at *field.Path) {
	c.errs = append(c.errs, validSignerName(p.SignerName, at.Child("signerName"))...)
	c.errs = append(c.errs, validUserAnnotations(p.UserAnnotations, at.Child("userAnnotations"))...)
	types := []string{"RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"}
	if !slices.Contains(types, p.KeyType) {
		c.errs = append(c.errs, field.NotSupported(at.Child("keyType"), p.KeyType, types))
	}
	if s := p.MaxExpirationSeconds; s != nil {
		longest := longestCertificateLife(p.SignerName)
		if *s < certificateLifeMin {
			c.errs = append(c.errs, field.Invalid(at.Child("maxExpirationSeconds"), *s, fmt.Sprintf("if provided, maxExpirationSeconds must be >= %d", certificateLifeMin)))
		}
		if *s > longest {
			c.errs = append(c.errs, field.Invalid(at.Child("maxExpirationSeconds"), *s, fmt.Sprintf("if provided, maxExpirationSeconds must be <= %d", longest)))
		}
	}
	named := false
	for _, f := range []struct{ name, path string }{
		{"credentialBundlePath", p.CredentialBundlePath}, {"keyPath", p.KeyPath}, {"certificateChainPath", p.CertificateChainPath},
	} {
		if f.path == "" {
			continue
		}
		named = true
		c.errs = append(c.errs, validFilePath(f.path, at.Child(f.name))...)
		c.take(f.path, f.path)
	}
	if !named {
		c.errs = append(c.errs, field.Required(at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"))
	}
}
