package registry

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"orrery.dev/test/conformance/images"
)

// TestPull pulls with a client that others wrote.
func TestPull(t *testing.T) {
	dir := t.TempDir()
	image, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	image = mutate.MediaType(image, types.OCIManifestSchema1)
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(image, layout.WithAnnotations(map[string]string{images.NameAnnotation: "group/tool:1"})); err != nil {
		t.Fatal(err)
	}
	handler, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()

	pull := func(reference string) (v1.Image, error) {
		ref, err := name.ParseReference(server.Listener.Addr().String() + "/" + reference)
		if err != nil {
			return nil, err
		}
		return remote.Image(ref)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, reference := range []string{"group/tool:1", "group/tool@" + digest.String()} {
		got, err := pull(reference)
		if err != nil {
			t.Fatalf("%s: %v", reference, err)
		}
		if err := validate.Image(got); err != nil {
			t.Errorf("%s: %v", reference, err)
		}
	}
	if _, err := pull("group/tool:2"); err == nil {
		t.Error("pulled an image that is not there")
	}
	for _, path := range []string{"/v2/x/blobs/sha256:../../index.json", "/v3/"} {
		reply, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if reply.StatusCode < 400 {
			t.Errorf("GET %s: %s", path, reply.Status)
		}
	}
}
