package api

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// projection checks the sources of one projected volume, whose files must not
// get in each other's way.
type projection struct {
	pod   *podCheck
	path  *field.Path
	files map[string]bool
	errs  field.ErrorList
}

func (c *podCheck) validProjected(v *corev1.ProjectedVolumeSource, path *field.Path) field.ErrorList {
	p := &projection{pod: c, path: path, files: map[string]bool{}, errs: validMode(v.DefaultMode, path.Child("defaultMode"))}
	for i := range v.Sources {
		p.source(&v.Sources[i], path.Child("sources").Index(i))
	}
	return p.errs
}

func (c *projection) source(s *corev1.VolumeProjection, at *field.Path) {
	types := 0
	if s.Secret != nil {
		types++
		c.keys(s.Secret.Name, s.Secret.Items, at.Child("secret"))
	}
	if s.ConfigMap != nil {
		types++
		c.keys(s.ConfigMap.Name, s.ConfigMap.Items, at.Child("configMap"))
	}
	if s.DownwardAPI != nil {
		types++
		for i := range s.DownwardAPI.Items {
			item := &s.DownwardAPI.Items[i]
			c.errs = append(c.errs, validDownwardFile(item, at.Child("downwardAPI"))...)
			if item.Path != "" {
				c.take(item.Path, item.Path)
			}
		}
	}
	if s.ServiceAccountToken != nil {
		types++
		c.token(s.ServiceAccountToken, at.Child("serviceAccountToken"))
	}
	if s.ClusterTrustBundle != nil {
		types++
		c.trustBundle(s.ClusterTrustBundle, at.Child("clusterTrustBundle"))
	}
	if s.PodCertificate != nil {
		types++
		c.certificate(s.PodCertificate, at.Child("podCertificate"))
	}
	c.errs = append(c.errs, forbid(types > 1, at, "may not specify more than 1 volume type per source")...)
}

// take notes a file; value is what an error shows when it is there already.
func (c *projection) take(file, value string) {
	c.errs = append(c.errs, refuse(c.files[file], c.path, value, "conflicting duplicate paths")...)
	c.files[file] = true
}

func (c *projection) keys(name string, items []corev1.KeyToPath, at *field.Path) {
	c.errs = append(c.errs, required(name, at.Child("name"))...)
	for i, item := range items {
		c.errs = append(c.errs, validKey(item, at.Child("items").Index(i))...)
		if item.Path != "" {
			c.take(item.Path, name)
		}
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
	// Unlike all else of the token, its path is not told of by its own name.
	c.errs = append(c.errs, required(t.Path, c.path.Child("path"))...)
	c.errs = append(c.errs, c.pod.old("token path", validLocalFile(t.Path, c.path.Child("path")))...)
}

func (c *projection) trustBundle(b *corev1.ClusterTrustBundleProjection, at *field.Path) {
	switch {
	case b.Name != nil && b.SignerName != nil:
		c.errs = append(c.errs, field.Invalid(at, shown(b), "only one of name and signerName may be used"))
	case b.Name != nil:
		c.errs = append(c.errs, need(*b.Name == "", at.Child("name"), "must be a valid object name")...)
		for _, bad := range trustBundleName(signerOfBundle(*b.Name))(*b.Name, false) {
			c.errs = append(c.errs, field.Invalid(at.Child("name"), *b.Name, "not a valid clustertrustbundlename: "+bad))
		}
		if b.LabelSelector != nil {
			c.errs = append(c.errs, field.Invalid(at.Child("labelSelector"), b.LabelSelector, "labelSelector must be unset if name is specified"))
		}
	case b.SignerName != nil:
		c.errs = append(c.errs, need(*b.SignerName == "", at.Child("signerName"), "must be a valid signer name")...)
		c.errs = append(c.errs, validSignerName(*b.SignerName, at.Child("signerName"))...)
		c.errs = append(c.errs, validLabels(b.LabelSelector, at.Child("labelSelector"))...)
	default:
		c.errs = append(c.errs, field.Required(at, "either name or signerName must be specified"))
	}
	c.errs = append(c.errs, validFilePath(b.Path, at.Child("path"))...)
	c.take(b.Path, b.Path)
}

// trustBundleName says what is wrong with the name of a ClusterTrustBundle: that of
// a signer begins with the signer's.
func trustBundleName(signer string) func(name string, prefix bool) []string {
	return func(name string, prefix bool) []string {
		if signer == "" {
			if strings.Contains(name, ":") {
				return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
			}
			return apivalidation.NameIsDNSSubdomain(name, prefix)
		}
		begin := strings.ReplaceAll(signer, "/", ":") + ":"
		rest, ok := strings.CutPrefix(name, begin)
		if !ok {
			return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, begin)}
		}
		return apivalidation.NameIsDNSSubdomain(rest, prefix)
	}
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
	c.errs = append(c.errs, need(!named, at, "specify at least one of credentialBundlePath, keyPath, and certificateChainPath")...)
}
