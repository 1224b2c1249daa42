package tui

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gdamore/tcell/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func releaseSecret(t *testing.T, name string, version int, status string) *corev1.Secret {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	fmt.Fprintf(w, `{"name":%q,"version":%d,"manifest":"---\nkind: Service # %d\n","config":{"replicas":%d},"info":{"status":%q,"description":"Upgrade complete","last_deployed":"2026-01-01T00:00:00.5Z"},"chart":{"metadata":{"name":"shop","version":"1.2.%d","appVersion":"9"}}}`, name, version, version, version, status, version)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, version), Labels: map[string]string{"owner": "helm", "name": name}},
		Data: map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(packed.Bytes()))}}
}

func TestReleasesOfHelmAreListed(t *testing.T) {
	s := newShow(t, Config{}, 150, 30, allowing(t, nil, releaseSecret(t, "web", 9, "superseded"), releaseSecret(t, "web", 10, "deployed"), releaseSecret(t, "db", 1, "failed"),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}}))
	s.await("db-0")
	s.keys(":hm", tcell.KeyEnter)
	s.await("releases[2]", "● web", "✗ db", "shop-1.2.10", "history", "values")
	s.keys("/", "name:web", tcell.KeyEnter)
	s.await("releases[1/2]")
	s.keys("v")
	s.await("replicas: 10")
	s.keys(tcell.KeyEscape, "r")
	s.await("revisions ‹web›[2]", "superseded", "shop-1.2.9")
	s.keys("j", tcell.KeyEnter)
	s.await("kind: Service # 9")
}

func TestReleaseGoesBackByTheUsersHelm(t *testing.T) {
	secrets := func() func(*app) {
		return allowing(t, nil, releaseSecret(t, "web", 9, "superseded"), releaseSecret(t, "web", 10, "deployed"))
	}
	history := func(s *show) {
		s.await("db-0")
		s.keys(":hm", tcell.KeyEnter)
		s.await("releases[1]")
		s.keys("r")
		s.await("revisions ‹web›[2]", "roll back")
		s.keys("j", "r")
		s.await("roll web back to revision 9", "- kind: Service # 10", "+ kind: Service # 9", "$ helm rollback web 9 --namespace shop")
	}
	asked := make(chan []string, 1)
	s := newShow(t, Config{Context: "east", Helm: func(_ context.Context, context string, args ...string) error {
		asked <- append(args, context)
		return errors.New("helm rollback: exit status 1: Error: a hook failed")
	}}, 150, 30, secrets())
	history(s)
	s.keys(tcell.KeyTab, tcell.KeyEnter)
	s.await("a hook failed")
	if got, want := <-asked, []string{"rollback", "web", "9", "--namespace", "shop", "east"}; !slices.Equal(got, want) {
		t.Errorf("asked helm for %q", got)
	}

	without := newShow(t, Config{}, 150, 30, secrets())
	history(without)
	without.await("helm is not on this machine", "copy")
	without.keys(tcell.KeyTab, tcell.KeyEnter)
	without.await("copied")
}
