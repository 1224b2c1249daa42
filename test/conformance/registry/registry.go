// Package registry serves an OCI layout as a read-only registry. Blobs come from
// disk as they are asked for, so it needs next to no memory.
package registry

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"orrery.dev/test/conformance/images"
)

// Handler answers the pulling half of the distribution API.
type Handler struct {
	dir    string
	byName map[string]v1.Descriptor // repository:tag
	byHash map[string]v1.Descriptor // of manifests
}

// New serves the layout in dir.
func New(dir string) (*Handler, error) {
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("the images in %s: %w", dir, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("the images in %s: %w", dir, err)
	}
	h := &Handler{dir: dir, byName: map[string]v1.Descriptor{}, byHash: map[string]v1.Descriptor{}}
	for _, d := range manifest.Manifests {
		h.byName[d.Annotations[images.NameAnnotation]] = d
		h.byHash[d.Digest.String()] = d
	}
	return h, nil
}

// /v2/REPOSITORY/manifests/TAG-OR-DIGEST and /v2/REPOSITORY/blobs/DIGEST.
var route = regexp.MustCompile(`^/v2/(.+)/(manifests|blobs)/([^/]+)$`)

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED")
		return
	}
	if r.URL.Path == "/v2/" {
		return
	}
	parts := route.FindStringSubmatch(r.URL.Path)
	if parts == nil {
		refuse(w, http.StatusNotFound, "NAME_UNKNOWN")
		return
	}
	repository, kind, reference := parts[1], parts[2], parts[3]
	if kind == "blobs" {
		h.serveBlob(w, r, reference, "application/octet-stream")
		return
	}
	d, found := h.byHash[reference]
	if !found {
		d, found = h.byName[repository+":"+reference]
	}
	if !found {
		refuse(w, http.StatusNotFound, "MANIFEST_UNKNOWN")
		return
	}
	h.serveBlob(w, r, d.Digest.String(), string(d.MediaType))
}

func (h *Handler) serveBlob(w http.ResponseWriter, r *http.Request, digest, mediaType string) {
	hash, err := v1.NewHash(digest) // hexadecimal, so it cannot lead out of the folder
	if err != nil {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID")
		return
	}
	file, err := os.Open(filepath.Join(h.dir, "blobs", hash.Algorithm, hash.Hex))
	if errors.Is(err, os.ErrNotExist) {
		refuse(w, http.StatusNotFound, "BLOB_UNKNOWN")
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	http.ServeContent(w, r, "", info.ModTime(), file)
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors":[{"code":%q}]}`, code)
}

// WriteHosts tells container runtimes, in the hosts.toml files of dir, to ask
// the registry at address and no other one.
func WriteHosts(dir, address string) error {
	text := strings.ReplaceAll("server = \"http://ADDRESS\"\n\n[host.\"http://ADDRESS\"]\n  capabilities = [\"pull\", \"resolve\"]\n", "ADDRESS", address)
	for _, host := range []string{"registry.k8s.io", "_default"} {
		if err := os.MkdirAll(filepath.Join(dir, host), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, host, "hosts.toml"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
