package nodeagent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// pullRecords remember which images the agent pulled and with whose credentials:
// that an image is on the node must not give it to a pod that could not pull
// it. The files are those of the kubelet: one for each image in "pulled", and
// one in "pulling" for each pull that has begun, so that an image whose pull
// the agent did not live to note is not taken for one that was there before.
type pullRecords struct {
	dir string
	mu  sync.Mutex // protects the files
}

// begin notes that image is going to be pulled. If the pull fails, undo forgets
// it, unless there was such a note already.
func (r *pullRecords) begin(image string) (undo func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := r.path("pulling", image)
	if _, err := os.Stat(path); err == nil {
		return func() {}, nil
	}
	intent := kubeletconfig.ImagePullIntent{TypeMeta: recordType("ImagePullIntent"), Image: image}
	return func() { _ = os.Remove(path) }, writeRecord(path, intent)
}

// done notes that image, which the runtime knows as ref, was pulled with creds.
func (r *pullRecords) done(image, ref string, creds *credential) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.read(ref)
	if err != nil || record == nil {
		record = &kubeletconfig.ImagePulledRecord{TypeMeta: recordType("ImagePulledRecord"), ImageRef: ref}
	}
	if record.CredentialMapping == nil {
		record.CredentialMapping = map[string]kubeletconfig.ImagePullCredentials{}
	}
	name := repository(image)
	use := record.CredentialMapping[name]
	switch {
	case use.NodePodsAccessible:
	case creds == nil:
		use = kubeletconfig.ImagePullCredentials{NodePodsAccessible: true}
	default:
		use.KubernetesSecrets = append(slices.DeleteFunc(use.KubernetesSecrets, creds.sameSecret), creds.secret)
	}
	record.CredentialMapping[name], record.LastUpdatedTime = use, metav1.Now()
	if err := writeRecord(r.path("pulled", ref), record); err != nil {
		return err
	}
	if err := os.Remove(r.path("pulling", image)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// known says whether the agent pulled the image, and who may use it for that;
// what it can't read, nobody may use.
func (r *pullRecords) known(image, ref string) (pulled bool, use kubeletconfig.ImagePullCredentials) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, err := r.read(ref)
	if err == nil && record == nil {
		_, err := os.Stat(r.path("pulling", image))
		return !errors.Is(err, os.ErrNotExist), use
	}
	if err != nil {
		return true, use
	}
	return true, record.CredentialMapping[repository(image)]
}

// prune forgets images that are not on the node any more, unless they were
// noted since then.
func (r *pullRecords) prune(present sets.Set[string], since time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries, err := os.ReadDir(filepath.Join(r.dir, "pulled"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(r.dir, "pulled", e.Name())
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var record kubeletconfig.ImagePulledRecord
		if json.Unmarshal(data, &record) == nil && (present.Has(record.ImageRef) || !record.LastUpdatedTime.Time.Before(since)) {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func (r *pullRecords) path(kind, name string) string {
	return filepath.Join(r.dir, kind, fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(name))))
}

// read is nil if there is no record.
func (r *pullRecords) read(ref string) (*kubeletconfig.ImagePulledRecord, error) {
	data, err := os.ReadFile(r.path("pulled", ref))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	record := &kubeletconfig.ImagePulledRecord{}
	return record, json.Unmarshal(data, record)
}

func recordType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: kubeletconfig.SchemeGroupVersion.String(), Kind: kind}
}

func writeRecord(path string, record any) error {
	data, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// repository is an image's name as a pod has it, without tag and digest.
func repository(image string) string {
	if named, ok := parsed(image).(reference.Named); ok {
		return named.Name()
	}
	return image
}

func parsed(image string) reference.Reference {
	ref, err := reference.Parse(image)
	if err != nil {
		return nil
	}
	return ref
}

// mayUse says whether a pod that has creds may use an image of the node without
// pulling it again.
func (p *imagePuller) mayUse(image, ref string, creds func() []credential) bool {
	if p.records == nil {
		return true
	}
	pulled, use := p.records.known(image, ref)
	switch k := p.a.cfg.Kubelet; k.ImagePullCredentialsVerificationPolicy {
	case kubeletconfig.NeverVerify:
		return true
	case kubeletconfig.NeverVerifyAllowlistedImages:
		if slices.ContainsFunc(k.PreloadedImagesVerificationAllowlist, func(pattern string) bool { return listed(pattern, repository(image)) }) {
			return true
		}
	case kubeletconfig.AlwaysVerify:
	default:
		if !pulled {
			return true
		}
	}
	if use.NodePodsAccessible {
		return true
	}
	if len(use.KubernetesSecrets) == 0 {
		return false
	}
	const most = 100 // secrets are not noted without end
	for _, c := range creds() {
		for _, s := range use.KubernetesSecrets {
			known := s.CredentialHash == c.secret.CredentialHash
			if !known && !c.sameSecret(s) {
				continue
			}
			if s != c.secret && len(use.KubernetesSecrets) < most {
				if err := p.records.done(image, ref, &c); err != nil {
					p.a.log.Warn("pull record not written", "image", image, "err", err)
				}
			}
			return known || len(use.KubernetesSecrets) < most
		}
	}
	return false
}

// listed says whether a pattern, which may end with "/*", has a repository.
func listed(pattern, repository string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(repository, prefix)
	}
	return pattern == repository
}

// checkPullPolicy looks at how the configuration wants credentials verified.
func checkPullPolicy(k *kubeletconfig.KubeletConfiguration) error {
	switch k.ImagePullCredentialsVerificationPolicy {
	case "", kubeletconfig.NeverVerify, kubeletconfig.NeverVerifyPreloadedImages, kubeletconfig.AlwaysVerify:
		if len(k.PreloadedImagesVerificationAllowlist) > 0 {
			return errors.New("preloadedImagesVerificationAllowlist: only for the policy NeverVerifyAllowlistedImages")
		}
	case kubeletconfig.NeverVerifyAllowlistedImages:
		for _, pattern := range k.PreloadedImagesVerificationAllowlist {
			name := strings.TrimSuffix(pattern, "/*")
			if parsed(name) == nil || repository(name) != name {
				return fmt.Errorf("preloadedImagesVerificationAllowlist: %q is not an image's name without tag and digest, or a prefix that ends with /*", pattern)
			}
		}
	default:
		return fmt.Errorf("imagePullCredentialsVerificationPolicy: unknown policy %q", k.ImagePullCredentialsVerificationPolicy)
	}
	return nil
}

func hashOf(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
