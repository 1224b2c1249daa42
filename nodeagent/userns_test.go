package nodeagent

import (
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

func TestUserRanges(t *testing.T) {
	dir := t.TempDir()
	for _, uid := range []string{"a", "b", "c"} {
		if err := os.Mkdir(filepath.Join(dir, uid), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	u := &userRanges{dir: dir}
	claim := func(uid types.UID, want uint32) {
		t.Helper()
		if got, err := u.claim(uid); err != nil || got != want {
			t.Errorf("%s: %d (%v), want %d", uid, got, err, want)
		}
	}
	claim("a", 1)
	claim("b", 2)
	claim("a", 1)
	u = &userRanges{dir: dir} // another agent
	claim("c", 3)
	claim("b", 2)
	u.release("a")
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	claim("d", 1)
}

func TestOwnUsersNeedTheRuntime(t *testing.T) {
	a := &Agent{}
	pod := &corev1.Pod{Spec: corev1.PodSpec{HostUsers: ptr.To(false)}}
	if got := errText(a.mayOwnUsers(pod, "")); got != "can't set `spec.hostUsers: false`, runtime does not support user namespaces" {
		t.Errorf("%q", got)
	}
	a.runtimeFeatures.Store(&runtimeapi.StatusResponse{RuntimeHandlers: []*runtimeapi.RuntimeHandler{
		{Name: "", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {Name: "kata"},
	}})
	if err := a.mayOwnUsers(pod, ""); err != nil {
		t.Error(err)
	}
	if got := errText(a.mayOwnUsers(pod, "kata")); got != "can't set `spec.hostUsers: false`, RuntimeClass handler \"kata\" does not support user namespaces" {
		t.Errorf("%q", got)
	}
	if err := a.mayOwnUsers(&corev1.Pod{}, "kata"); err != nil {
		t.Errorf("a pod that shares the machine's users: %v", err)
	}
}
