package volume

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// shelf holds objects by name.
type shelf struct {
	maps    map[string]map[string]string
	secrets map[string]map[string][]byte
	tokens  int
}

func (s *shelf) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	data, ok := s.maps[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
	}
	return &corev1.ConfigMap{Data: data}, nil
}

func (s *shelf) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	data, ok := s.secrets[name]
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
	}
	return &corev1.Secret{Data: data}, nil
}

func (s *shelf) Token(context.Context, *corev1.Pod, string, int64) (*authenticationv1.TokenRequestStatus, error) {
	s.tokens++
	return &authenticationv1.TokenRequestStatus{Token: "token", ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))}, nil
}

func (s *shelf) Volume(context.Context, string, string) (*corev1.PersistentVolumeClaim, *corev1.PersistentVolume, error) {
	return nil, nil, apierrors.NewNotFound(corev1.Resource("persistentvolumeclaims"), "x")
}

func (s *shelf) TrustAnchors(_ context.Context, p *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	if data, ok := s.maps[*p.Name]; ok {
		return []byte(data["ca.pem"]), nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("clustertrustbundles"), *p.Name)
}

func (s *shelf) Certificate(_ context.Context, _ *corev1.Pod, volume string, index int, _ *corev1.PodCertificateProjection) (key, chain []byte, err error) {
	return []byte("key of " + volume + "\n"), []byte(fmt.Sprintf("chain %d\n", index)), nil
}

func volumePod(sources map[string]corev1.VolumeSource) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", Labels: map[string]string{"app": "web"}}}
	for name, s := range sources {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: s})
	}
	return p
}

func needRoot(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := mountTmpfs(dir, 0); err != nil {
		t.Skipf("mounting needs root: %v", err)
	}
	if err := unmount(dir); err != nil {
		t.Fatal(err)
	}
}

func host(t *testing.T, s *shelf) *Host {
	t.Helper()
	h := &Host{RootDir: t.TempDir(), Objects: s, NodeAllocatable: func() corev1.ResourceList { return nil }}
	t.Cleanup(func() {
		if err := h.TearDown("u"); err != nil {
			t.Error(err)
		}
	})
	return h
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestConfigMapFollowsItsObject(t *testing.T) {
	s := &shelf{maps: map[string]map[string]string{"c": {"a": "1", "b": "2"}}}
	h := host(t, s)
	p := volumePod(map[string]corev1.VolumeSource{"v": {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}, DefaultMode: ptr.To(int32(0o640))}}})
	mounted, err := h.SetUp(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	dir := mounted["v"].Path
	if got := read(t, dir+"/a") + read(t, dir+"/b"); got != "12" {
		t.Errorf("contents %q", got)
	}
	if info, _ := os.Stat(dir + "/a"); info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v", info.Mode())
	}
	first, _ := os.Readlink(dir + "/..data")
	if _, err := h.SetUp(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.Readlink(dir + "/..data"); again != first {
		t.Error("unchanged contents were written again")
	}
	s.maps["c"] = map[string]string{"a": "3", "c": "4"}
	if _, err := h.SetUp(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	if got := read(t, dir+"/a") + read(t, dir+"/c"); got != "34" {
		t.Errorf("contents after change %q", got)
	}
	if _, err := os.Lstat(dir + "/b"); !os.IsNotExist(err) {
		t.Error("removed key is still visible")
	}
	if entries, _ := filepath.Glob(dir + "/..2*"); len(entries) != 1 {
		t.Errorf("old contents left: %v", entries)
	}
}

func TestMissingSources(t *testing.T) {
	ref := corev1.LocalObjectReference{Name: "nope"}
	has := corev1.LocalObjectReference{Name: "c"}
	s := &shelf{maps: map[string]map[string]string{"c": {"a": "1"}}}
	tests := map[string]struct {
		source corev1.VolumeSource
		want   string
	}{
		"missing":      {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref}}, `MountVolume.SetUp failed for volume "v" : configmaps "nope" not found`},
		"optional":     {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref, Optional: ptr.To(true)}}, ""},
		"missing key":  {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: has, Items: []corev1.KeyToPath{{Key: "z", Path: "z"}}}}, "references non-existent config key: z"},
		"optional key": {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: has, Optional: ptr.To(true), Items: []corev1.KeyToPath{{Key: "z", Path: "z"}}}}, ""},
		"way out":      {corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: has, Items: []corev1.KeyToPath{{Key: "a", Path: "../x"}}}}, `invalid path "../x"`},
		"unknown type": {corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{}}, "no volume plugin matched"},
	}
	for name, tt := range tests {
		_, err := host(t, s).SetUp(context.Background(), volumePod(map[string]corev1.VolumeSource{"v": tt.source}))
		if got := errorText(err); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestProjected(t *testing.T) {
	needRoot(t)
	s := &shelf{maps: map[string]map[string]string{"c": {"ca.crt": "pem"}}}
	h := host(t, s)
	p := volumePod(map[string]corev1.VolumeSource{"v": {Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "pod/namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
	}}}})
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(1000)), FSGroup: ptr.To(int64(2000))}
	p.Spec.Containers = []corev1.Container{{Name: "a"}}
	for range 2 {
		mounted, err := h.SetUp(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		dir := mounted["v"].Path
		if got := read(t, dir+"/token") + read(t, dir+"/ca.crt") + read(t, dir+"/pod/namespace"); got != "tokenpemns" {
			t.Errorf("contents %q", got)
		}
		info, err := os.Stat(dir + "/token")
		if err != nil || info.Mode().Perm() != 0o640 || groupOf(info) != 2000 {
			t.Errorf("token's mode %v group %d", info.Mode(), groupOf(info))
		}
		if !isMounted(dir) {
			t.Error("not in memory")
		}
	}
	if s.tokens != 1 {
		t.Errorf("%d tokens were asked for, want 1", s.tokens)
	}
}

func TestProjectedTrust(t *testing.T) {
	needRoot(t)
	s := &shelf{maps: map[string]map[string]string{"roots": {"ca.pem": "root\n"}}}
	h := host(t, s)
	bundle := func(name string) corev1.VolumeProjection {
		return corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: &name, Path: name + ".pem"}}
	}
	p := volumePod(map[string]corev1.VolumeSource{"v": {Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		bundle("roots"),
		{PodCertificate: &corev1.PodCertificateProjection{CredentialBundlePath: "both.pem", KeyPath: "key.pem"}},
	}}}})
	mounted, err := h.SetUp(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	dir := mounted["v"].Path
	if got := read(t, dir+"/roots.pem") + read(t, dir+"/both.pem") + read(t, dir+"/key.pem"); got != "root\nkey of v\nchain 1\nkey of v\n" {
		t.Errorf("contents %q", got)
	}
	if info, _ := os.Stat(dir + "/key.pem"); info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v: the default mode is for files that any user may need", info.Mode())
	}
	p.Spec.Volumes[0].Projected.Sources = append(p.Spec.Volumes[0].Projected.Sources, bundle("nope"), bundle("neither"))
	_, err = h.SetUp(context.Background(), p)
	if want := `MountVolume.SetUp failed for volume "v" : [clustertrustbundles "nope" not found, clustertrustbundles "neither" not found]`; errorText(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestRefreshLeavesOthersAlone sees to it that only what can change is looked at
// again: a hostPath of the wrong type keeps a pod from starting, but is no
// trouble for one that runs.
func TestRefreshLeavesOthersAlone(t *testing.T) {
	s := &shelf{maps: map[string]map[string]string{"c": {"a": "1"}}}
	h := host(t, s)
	dir := t.TempDir()
	p := volumePod(map[string]corev1.VolumeSource{
		"h": {HostPath: &corev1.HostPathVolumeSource{Path: dir + "/x", Type: ptr.To(corev1.HostPathDirectoryOrCreate)}},
		"c": {ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "c"}}},
	})
	mounted, err := h.SetUp(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir + "/x"); err != nil {
		t.Fatal(err)
	}
	s.maps["c"] = map[string]string{"a": "2"}
	if err := h.Refresh(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	if read(t, mounted["c"].Path+"/a") != "2" {
		t.Error("the ConfigMap's contents are old")
	}
	if _, err := os.Stat(dir + "/x"); !os.IsNotExist(err) {
		t.Error("the hostPath was made again")
	}
}

func TestEmptyDir(t *testing.T) {
	needRoot(t)
	h := host(t, &shelf{})
	limit := resource.MustParse("1Mi")
	p := volumePod(map[string]corev1.VolumeSource{
		"disk": {EmptyDir: &corev1.EmptyDirVolumeSource{}},
		"mem":  {EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit}},
	})
	mounted, err := h.SetUp(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range mounted {
		if info, err := os.Stat(m.Path); err != nil || info.Mode().Perm() != 0o777 {
			t.Errorf("%s: mode %v (%v)", name, info.Mode(), err)
		}
	}
	if isMounted(mounted["disk"].Path) || !isMounted(mounted["mem"].Path) {
		t.Error("the one in memory should be mounted, the other not")
	}
	if err := os.WriteFile(mounted["mem"].Path+"/big", make([]byte, 2<<20), 0o644); err == nil {
		t.Error("the size limit does not hold")
	}
	if err := h.TearDown("u"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mounted["disk"].Path); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
}

func TestHostPathTypes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path string
		kind corev1.HostPathType
		want string
	}{
		{dir + "/nothing", corev1.HostPathUnset, ""},
		{dir, corev1.HostPathDirectory, ""},
		{file, corev1.HostPathDirectory, "is not a directory"},
		{file, corev1.HostPathFile, ""},
		{dir, corev1.HostPathFile, "is not a file"},
		{dir + "/new/dir", corev1.HostPathDirectoryOrCreate, ""},
		{dir + "/newfile", corev1.HostPathFileOrCreate, ""},
		{file, corev1.HostPathSocket, "is not a socket file"},
		{"/dev/null", corev1.HostPathCharDev, ""},
		{"/dev/null", corev1.HostPathBlockDev, "is not a block device"},
	}
	for _, tt := range tests {
		got := errorText(checkHostPath(tt.path, &tt.kind))
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s as %q: %q, want %q", tt.path, tt.kind, got, tt.want)
		}
	}
}

func TestSubPathStaysInItsVolume(t *testing.T) {
	needRoot(t)
	h := host(t, &shelf{})
	vol := t.TempDir()
	outside := t.TempDir()
	for link, to := range map[string]string{"out": outside, "up": "../..", "in": "real"} {
		if err := os.Symlink(to, filepath.Join(vol, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(vol, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(vol, "real/file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{"real": true, "real/file": true, "made/here": true, "in/file": true, "out": false, "up/x": false}
	for path, ok := range tests {
		got, err := h.SubPath(Sub{Pod: "u", Volume: Mounted{Path: vol}, Name: "v", Container: "c", Path: path, Mode: 0o750})
		if (err == nil) != ok {
			t.Errorf("%s: %v, want ok %v", path, err, ok)
		}
		if err == nil && strings.HasSuffix(path, "file") && read(t, got) != "x" {
			t.Errorf("%s: wrong file", path)
		}
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Error("something was made outside the volume")
	}
	if err := h.TearDown("u"); err != nil {
		t.Fatal(err)
	}
	if read(t, filepath.Join(vol, "real/file")) != "x" {
		t.Error("tearing down touched the volume")
	}
}

func TestResourceValue(t *testing.T) {
	p := &corev1.Pod{}
	p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m")},
		Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
	}}}
	node := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("2Gi")}
	tests := []struct{ name, divisor, want string }{
		{"limits.cpu", "", "2"},
		{"limits.cpu", "1m", "1500"},
		{"requests.memory", "1Mi", "64"},
		{"limits.memory", "1Gi", "2"},
		{"requests.cpu", "", "0"},
	}
	for _, tt := range tests {
		ref := &corev1.ResourceFieldSelector{Resource: tt.name}
		if tt.divisor != "" {
			ref.Divisor = resource.MustParse(tt.divisor)
		}
		if got, err := ResourceValue(p, ref, "a", node); err != nil || got != tt.want {
			t.Errorf("%s in %q: %q (%v), want %q", tt.name, tt.divisor, got, err, tt.want)
		}
	}
}
