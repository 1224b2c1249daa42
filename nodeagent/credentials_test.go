package nodeagent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"orrery.dev/nodeagent/simulate"
)

func TestRegistryAuth(t *testing.T) {
	secret := &corev1.Secret{Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{
		"https://index.docker.io/v1/": {"auth": "aHViOnB3"},
		"*.glob.example.com:5000": {"username": "g", "password": "l"},
		"registry.example.com": {"username": "u", "password": "p"},
		"https://registry.example.com/v2/team/": {"username": "t", "password": "q"}}}`)}}
	for image, want := range map[string]string{
		"busybox": "hub:pw", "docker.io/team/x": "hub:pw", "registry.example.com/x/y:1": "u:p",
		"registry.example.com/team/y@sha256:" + strings.Repeat("0", 64): "t:q u:p",
		"registry.example.com.evil/x":                                   "", "quay.io/x": "", "registry.example.com:5000/x": "",
		"a.glob.example.com:5000/x": "g:l", "a.b.glob.example.com:5000/x": "", "a.glob.example.com/x": "",
	} {
		var got []string
		for _, c := range registryAuth(secret, image) {
			got = append(got, c.auth.Username+":"+c.auth.Password)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", image, got, want)
		}
	}
}

// guarded is a registry that wants a password.
type guarded struct {
	cri.ImageManagerService
	password string
	pulls    int
}

func (g *guarded) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	g.pulls++
	if auth.GetPassword() != g.password {
		return "", errors.New("401 Unauthorized")
	}
	return g.ImageManagerService.PullImage(ctx, spec, auth, sandbox)
}

// TestImagesOfOthers is about images on the node that not every pod may use.
func TestImagesOfOthers(t *testing.T) {
	const image = "registry.example.com/app:1"
	machine, err := simulate.New("10.128.0.0/24")
	if err != nil {
		t.Fatal(err)
	}
	registry := &guarded{ImageManagerService: machine.Images(), password: "right"}
	api := fake.NewClientset()
	secret := func(namespace, password string, uid types.UID) {
		t.Helper()
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pull", UID: uid},
			Data:       map[string][]byte{corev1.DockerConfigKey: []byte(`{"registry.example.com":{"username":"u","password":"` + password + `"}}`)},
		}
		_ = api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"), namespace, "pull")
		if err := api.Tracker().Add(s); err != nil {
			t.Fatal(err)
		}
	}
	secret("owner", "right", "1")
	secret("friend", "right", "2")
	secret("thief", "wrong", "3")
	cfg := Config{NodeName: "n", RootDir: t.TempDir(), Images: registry, Log: slog.New(slog.DiscardHandler)}
	setDefaults(&cfg)
	puller := func() *imagePuller { return newImagePuller(&Agent{cfg: cfg, clients: api, log: cfg.Log}) }
	p := puller()
	n := 0
	// get is how an image comes to a pod of a namespace: "pulled", "there" or
	// the reason why not.
	get := func(namespace string, policy corev1.PullPolicy) string {
		n++
		before := registry.pulls
		one := pod(corev1.RestartPolicyAlways, "a")
		one.Namespace, one.UID = namespace, types.UID(strings.Repeat("p", n))
		one.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
		_, err := p.ensure(context.Background(), wantedImage{name: image, policy: policy, pod: one, say: func(string, string, string) {}})
		var refused *startError
		switch {
		case errors.As(err, &refused):
			return refused.reason
		case err != nil:
			return err.Error()
		case registry.pulls > before:
			return "pulled"
		}
		return "there"
	}
	check := func(what, namespace string, policy corev1.PullPolicy, want string) {
		t.Helper()
		if got := get(namespace, policy); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	const never, missing = corev1.PullNever, corev1.PullIfNotPresent

	check("who can't pull", "thief", missing, reasonPull)
	if left, _ := os.ReadDir(cfg.RootDir + "/image_manager/pulling"); len(left) > 0 {
		t.Errorf("a failed pull left %v", left)
	}
	check("the owner", "owner", missing, "pulled")
	check("the owner again", "owner", never, "there")
	check("the same password elsewhere", "friend", never, "there")
	check("another password", "thief", missing, reasonPull)
	check("another password, never pulled", "thief", never, "ErrImageNeverPull")
	check("no secret", "nobody", missing, reasonPull)

	p = puller() // after a restart
	secret("owner", "changed", "1")
	check("the owner's secret has changed", "owner", never, "there")
	check("another password after a restart", "thief", missing, reasonPull)
	p.a.cfg.Kubelet.ImagePullCredentialsVerificationPolicy = kubeletconfig.NeverVerify
	check("nothing is verified", "thief", never, "there")
	p.a.cfg.Kubelet.ImagePullCredentialsVerificationPolicy = kubeletconfig.NeverVerifyAllowlistedImages
	p.a.cfg.Kubelet.PreloadedImagesVerificationAllowlist = []string{"registry.example.com/*"}
	check("free for all", "thief", never, "there")
	p.a.cfg.Kubelet.PreloadedImagesVerificationAllowlist = nil
	check("not free for all", "thief", never, "ErrImageNeverPull")
	p.a.cfg.Kubelet.ImagePullCredentialsVerificationPolicy = ""

	registry.password = "" // public now
	check("whoever pulls it without a password", "nobody", missing, "pulled")
	check("everyone", "thief", never, "there")

	if err := p.records.prune(sets.New[string](), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	registry.password = "right"
	check("an image that the agent did not pull", "thief", never, "there")
	if _, err := p.records.begin(image); err != nil {
		t.Fatal(err)
	}
	check("an image whose pull it may not have noted", "thief", missing, reasonPull)
	check("the same", "thief", missing, reasonPull)
	check("the same", "friend", missing, "pulled")
	if left, _ := os.ReadDir(cfg.RootDir + "/image_manager/pulling"); len(left) > 0 {
		t.Errorf("a pull left %v", left)
	}
}

func TestPullPolicyOfConfiguration(t *testing.T) {
	for _, tt := range []struct {
		policy kubeletconfig.ImagePullCredentialsVerificationPolicy
		list   []string
		want   string
	}{
		{"", nil, ""},
		{kubeletconfig.AlwaysVerify, nil, ""},
		{kubeletconfig.NeverVerifyAllowlistedImages, []string{"example.com/*", "example.com:5000/a/b"}, ""},
		{"Sometimes", nil, "unknown policy"},
		{kubeletconfig.AlwaysVerify, []string{"example.com/*"}, "only for the policy"},
		{kubeletconfig.NeverVerifyAllowlistedImages, []string{"example.com/a:1"}, "is not an image's name"},
		{kubeletconfig.NeverVerifyAllowlistedImages, []string{"example.com*"}, "is not an image's name"},
	} {
		err := checkPullPolicy(&kubeletconfig.KubeletConfiguration{ImagePullCredentialsVerificationPolicy: tt.policy, PreloadedImagesVerificationAllowlist: tt.list})
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q %v: %v, want %q", tt.policy, tt.list, err, tt.want)
		}
	}
}
