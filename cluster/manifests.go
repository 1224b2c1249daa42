package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// ControlPlane is what the static pods of a control-plane node need to know.
type ControlPlane struct {
	Layout      Layout
	NodeName    string
	NodeIP      string
	Image       string // the image that holds this binary
	ServiceCIDR string
	PodCIDR     string
	APIPort     int32
	EtcdCluster string // --initial-cluster
	// APIServerArgs are further flags of the API server, APIServerMounts further
	// directories that it may read. Those of files that flags name need no mention.
	APIServerArgs, APIServerMounts []string
	Console                        Console
}

// component is one static pod: a program of the control plane.
type component struct {
	name   string
	args   []string
	cpu    string // request
	env    []corev1.EnvVar
	mounts []string // host directories, mounted at the same path; "+" in front: writable
	probe  probe
	// confined takes all from it that a program which only talks to others can do
	// without.
	confined bool
}

// probe is the component's own health endpoint on loopback.
type probe struct {
	scheme      corev1.URIScheme
	port        int32
	live, ready string
}

// Components lists the control plane in starting order.
func (c ControlPlane) components() []component {
	l, pki := c.Layout, c.Layout.PKI
	return []component{{
		name: "etcd", cpu: "100m",
		args: []string{
			"--name=" + c.NodeName,
			"--data-dir=" + l.Etcd(),
			fmt.Sprintf("--listen-client-urls=https://127.0.0.1:2379,https://%s:2379", c.NodeIP),
			fmt.Sprintf("--advertise-client-urls=https://%s:2379", c.NodeIP),
			fmt.Sprintf("--listen-peer-urls=https://%s:2380", c.NodeIP),
			fmt.Sprintf("--initial-advertise-peer-urls=https://%s:2380", c.NodeIP),
			"--initial-cluster=" + c.EtcdCluster,
			"--listen-metrics-urls=http://127.0.0.1:2381",
			"--cert-file=" + pki("etcd/server.crt"), "--key-file=" + pki("etcd/server.key"),
			"--trusted-ca-file=" + pki("etcd/ca.crt"), "--client-cert-auth=true",
			"--peer-cert-file=" + pki("etcd/peer.crt"), "--peer-key-file=" + pki("etcd/peer.key"),
			"--peer-trusted-ca-file=" + pki("etcd/ca.crt"), "--peer-client-cert-auth=true",
		},
		// So that `kubectl exec etcd-NODE -- etcdctl endpoint health` needs no flags.
		env: []corev1.EnvVar{
			{Name: "ETCDCTL_ENDPOINTS", Value: "https://127.0.0.1:2379"},
			{Name: "ETCDCTL_CACERT", Value: pki("etcd/ca.crt")},
			{Name: "ETCDCTL_CERT", Value: pki("etcd/healthcheck-client.crt")},
			{Name: "ETCDCTL_KEY", Value: pki("etcd/healthcheck-client.key")},
		},
		mounts: []string{"+" + l.Etcd(), pki("etcd")},
		probe:  probe{corev1.URISchemeHTTP, 2381, "/livez", "/readyz"},
	}, {
		name: "kube-apiserver", cpu: "250m",
		args: WithArgs([]string{
			"--advertise-address=" + c.NodeIP,
			fmt.Sprintf("--secure-port=%d", c.APIPort),
			"--allow-privileged=true",
			"--authorization-mode=Node,RBAC",
			"--client-ca-file=" + pki("ca.crt"),
			"--enable-admission-plugins=NodeRestriction",
			"--enable-bootstrap-token-auth=true",
			"--etcd-servers=https://127.0.0.1:2379",
			"--etcd-cafile=" + pki("etcd/ca.crt"),
			"--etcd-certfile=" + pki("apiserver-etcd-client.crt"),
			"--etcd-keyfile=" + pki("apiserver-etcd-client.key"),
			"--kubelet-client-certificate=" + pki("apiserver-kubelet-client.crt"),
			"--kubelet-client-key=" + pki("apiserver-kubelet-client.key"),
			"--kubelet-certificate-authority=" + pki("ca.crt"),
			"--proxy-client-cert-file=" + pki("front-proxy-client.crt"),
			"--proxy-client-key-file=" + pki("front-proxy-client.key"),
			"--requestheader-client-ca-file=" + pki("front-proxy-ca.crt"),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file=" + pki("sa.pub"),
			"--service-account-signing-key-file=" + pki("sa.key"),
			"--service-cluster-ip-range=" + c.ServiceCIDR,
			"--tls-cert-file=" + pki("apiserver.crt"),
			"--tls-private-key-file=" + pki("apiserver.key"),
		}, c.APIServerArgs),
		mounts: distinct(slices.Concat([]string{pki("")}, argMounts(c.APIServerArgs), c.APIServerMounts)),
		probe:  probe{corev1.URISchemeHTTPS, c.APIPort, "/livez", "/readyz"},
	}, {
		name: "kube-controller-manager", cpu: "200m",
		args: []string{
			"--kubeconfig=" + l.Kubeconfig("controller-manager"),
			"--allocate-node-cidrs=true",
			"--cluster-cidr=" + c.PodCIDR,
			"--service-cluster-ip-range=" + c.ServiceCIDR,
			"--cluster-signing-cert-file=" + pki("ca.crt"),
			"--cluster-signing-key-file=" + pki("ca.key"),
			"--root-ca-file=" + pki("ca.crt"),
			"--service-account-private-key-file=" + pki("sa.key"),
			"--local-path=" + l.Volumes(),
			"--leader-elect=true",
		},
		mounts: []string{pki(""), filepath.Dir(l.Kubeconfig("controller-manager"))},
		probe:  probe{corev1.URISchemeHTTPS, 10257, "/healthz", "/healthz"},
	}, {
		name: "kube-scheduler", cpu: "100m",
		args: []string{
			"--kubeconfig=" + l.Kubeconfig("scheduler"),
			"--leader-elect=true",
		},
		mounts: []string{filepath.Dir(l.Kubeconfig("scheduler"))},
		probe:  probe{corev1.URISchemeHTTPS, 10259, "/livez", "/readyz"},
	}}
}

// StaticPods are the pods of the control plane, in starting order.
func (c ControlPlane) StaticPods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, comp := range c.components() {
		pods = append(pods, c.staticPod(comp))
	}
	if c.Console.Address != "" {
		pods = append(pods, c.staticPod(c.Console.component(c.Layout)))
	}
	return pods
}

func (c ControlPlane) staticPod(comp component) *corev1.Pod {
	container := corev1.Container{
		Name:            comp.name,
		Image:           c.Image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         append([]string{comp.name}, comp.args...),
		Env:             comp.env,
		Resources:       corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(comp.cpu)}},
		StartupProbe:    comp.probe.check(comp.probe.live, 1, 240),
		LivenessProbe:   comp.probe.check(comp.probe.live, 10, 8),
		ReadinessProbe:  comp.probe.check(comp.probe.ready, 1, 3),
	}
	if comp.confined {
		confine(&container)
	}
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: comp.name, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{"component": comp.name, "tier": "control-plane"},
		},
		Spec: corev1.PodSpec{
			HostNetwork:                   true,
			PriorityClassName:             "system-node-critical",
			SecurityContext:               &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			TerminationGracePeriodSeconds: new(int64(10)),
		},
	}
	for i, dir := range comp.mounts {
		writable := dir[0] == '+'
		if writable {
			dir = dir[1:]
		}
		name := fmt.Sprintf("dir-%d", i)
		kind := corev1.HostPathDirectoryOrCreate
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: dir, Type: &kind}}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: dir, ReadOnly: !writable})
	}
	pod.Spec.Containers = []corev1.Container{container}
	return pod
}

func (p probe) check(path string, period, failures int32) *corev1.Probe {
	if p.port == 0 {
		return nil
	}
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Host: "127.0.0.1", Path: path, Port: intstr.FromInt32(p.port), Scheme: p.scheme}},
		PeriodSeconds:    period,
		TimeoutSeconds:   15,
		FailureThreshold: failures,
	}
}

// WriteManifests writes the static pods into the layout's manifest directory. A
// file whose content is right already is left alone, so that its pod is too.
func (c ControlPlane) WriteManifests() error {
	if err := os.MkdirAll(c.Layout.Manifests(), 0o700); err != nil {
		return err
	}
	if c.Console.Address == "" { // any more
		if err := os.Remove(filepath.Join(c.Layout.Manifests(), consoleServer+".yaml")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, pod := range c.StaticPods() {
		data, err := yaml.Marshal(pod)
		if err != nil {
			return fmt.Errorf("manifest of %s: %w", pod.Name, err)
		}
		if err := WriteIfChanged(filepath.Join(c.Layout.Manifests(), pod.Name+".yaml"), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}
