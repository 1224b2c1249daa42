package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
)

// Addons is what runs in the cluster through the API: kube-proxy on every node,
// and DNS.
type Addons struct {
	Image     string
	APIServer string // URL that works without kube-proxy
	PodCIDR   string
	RoutePods bool // between nodes; false where another network does
	DNSIP     string
	Domain    string
}

// fieldManager owns what `orrery up` applies.
const fieldManager = "orrery"

// Apply brings the add-ons to the cluster by server-side apply, so that fields
// which an operator added stay.
func (a Addons) Apply(ctx context.Context, client dynamic.Interface) error {
	return apply(ctx, client, a.objects()...)
}

func apply(ctx context.Context, client dynamic.Interface, objects ...addonObject) error {
	for _, obj := range objects {
		data, err := json.Marshal(obj.object)
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", obj.resource.Resource, obj.name, err)
		}
		var target dynamic.ResourceInterface = client.Resource(obj.resource)
		if obj.namespace != "" {
			target = client.Resource(obj.resource).Namespace(obj.namespace)
		}
		force := true
		if _, err := target.Patch(ctx, obj.name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: fieldManager, Force: &force}); err != nil {
			return fmt.Errorf("apply %s %s: %w", obj.resource.Resource, obj.name, err)
		}
	}
	return nil
}

type addonObject struct {
	resource        schema.GroupVersionResource
	namespace, name string
	object          any
}

func (a Addons) objects() []addonObject {
	core := schema.GroupVersion{Version: "v1"}
	rbac := rbacv1.SchemeGroupVersion
	system := metav1.NamespaceSystem
	return []addonObject{
		{core.WithResource("serviceaccounts"), system, "kube-proxy", serviceAccount("kube-proxy")},
		{core.WithResource("serviceaccounts"), system, "cluster-dns", serviceAccount("cluster-dns")},
		{rbac.WithResource("clusterrolebindings"), "", "orrery:kube-proxy", bind("orrery:kube-proxy", "system:node-proxier", "kube-proxy")},
		{rbac.WithResource("clusterroles"), "", "orrery:cluster-dns", dnsRole()},
		{rbac.WithResource("clusterrolebindings"), "", "orrery:cluster-dns", bind("orrery:cluster-dns", "orrery:cluster-dns", "cluster-dns")},
		{appsv1.SchemeGroupVersion.WithResource("daemonsets"), system, "kube-proxy", a.proxy()},
		{core.WithResource("services"), system, "kube-dns", a.dnsService()},
		{appsv1.SchemeGroupVersion.WithResource("deployments"), system, "cluster-dns", a.dns()},
		{storagev1.SchemeGroupVersion.WithResource("storageclasses"), "", "local-path", localPathClass()},
	}
}

func serviceAccount(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem}}
}

func bind(name, role, account string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: metav1.NamespaceSystem, Name: account}},
	}
}

func dnsRole() *rbacv1.ClusterRole {
	read := []string{"list", "watch"}
	return &rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: "orrery:cluster-dns"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services", "namespaces", "pods"}, Verbs: read},
			{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
		},
	}
}

func (a Addons) proxy() *appsv1.DaemonSet {
	labels := map[string]string{"k8s-app": "kube-proxy"}
	directory, file := corev1.HostPathDirectory, corev1.HostPathFileOrCreate
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: metav1.NamespaceSystem, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					HostNetwork:        true,
					PriorityClassName:  "system-node-critical",
					ServiceAccountName: "kube-proxy",
					Tolerations:        []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{
						Name: "kube-proxy", Image: a.Image, ImagePullPolicy: corev1.PullIfNotPresent,
						Command: []string{"kube-proxy", "--master=" + a.APIServer, "--hostname-override=$(NODE_NAME)", "--cluster-cidr=" + a.PodCIDR, fmt.Sprintf("--route-pods=%t", a.RoutePods)},
						Env: []corev1.EnvVar{{Name: "NODE_NAME", ValueFrom: &corev1.EnvVarSource{
							FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}}},
						SecurityContext: &corev1.SecurityContext{Privileged: new(true)},
						ReadinessProbe:  httpProbe("/healthz", 10256, 2),
						VolumeMounts: []corev1.VolumeMount{
							{Name: "modules", MountPath: "/lib/modules", ReadOnly: true},
							{Name: "host", MountPath: "/host", ReadOnly: true},
							{Name: "xtables", MountPath: "/run/xtables.lock"},
						},
					}},
					Volumes: []corev1.Volume{
						{Name: "modules", VolumeSource: hostPath("/lib/modules", nil)},
						{Name: "host", VolumeSource: hostPath("/", &directory)},
						{Name: "xtables", VolumeSource: hostPath("/run/xtables.lock", &file)},
					},
				},
			},
		},
	}
}

func (a Addons) dnsService() *corev1.Service {
	port := func(name string, p corev1.Protocol, n int32) corev1.ServicePort {
		return corev1.ServicePort{Name: name, Protocol: p, Port: n, TargetPort: intstr.FromInt32(n)}
	}
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: metav1.NamespaceSystem, Labels: map[string]string{
			"k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true", "kubernetes.io/name": "ClusterDNS"}},
		Spec: corev1.ServiceSpec{
			ClusterIP: a.DNSIP,
			Selector:  map[string]string{"k8s-app": "kube-dns"},
			Ports:     []corev1.ServicePort{port("dns", corev1.ProtocolUDP, 53), port("dns-tcp", corev1.ProtocolTCP, 53), port("metrics", corev1.ProtocolTCP, 9153)},
		},
	}
}

func (a Addons) dns() *appsv1.Deployment {
	labels := map[string]string{"k8s-app": "kube-dns"}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: "cluster-dns", Namespace: metav1.NamespaceSystem, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					PriorityClassName:  "system-cluster-critical",
					ServiceAccountName: "cluster-dns",
					DNSPolicy:          corev1.DNSDefault,
					Tolerations: []corev1.Toleration{
						{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
						{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
					},
					Containers: []corev1.Container{{
						Name: "dns", Image: a.Image, ImagePullPolicy: corev1.PullIfNotPresent,
						Command: []string{"cluster-dns", "--master=" + a.APIServer, "--domain=" + a.Domain},
						Ports: []corev1.ContainerPort{
							{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP},
							{Name: "dns-tcp", ContainerPort: 53, Protocol: corev1.ProtocolTCP},
							{Name: "metrics", ContainerPort: 9153, Protocol: corev1.ProtocolTCP},
						},
						Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("70Mi")},
							Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("170Mi")},
						},
						SecurityContext: &corev1.SecurityContext{
							AllowPrivilegeEscalation: new(false),
							ReadOnlyRootFilesystem:   new(true),
							Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_BIND_SERVICE"}},
						},
						ReadinessProbe: httpProbe("/ready", 8181, 1),
						LivenessProbe:  httpProbe("/health", 8080, 10),
					}},
				},
			},
		},
	}
}

func localPathClass() *storagev1.StorageClass {
	reclaim, mode := corev1.PersistentVolumeReclaimDelete, storagev1.VolumeBindingWaitForFirstConsumer
	return &storagev1.StorageClass{
		TypeMeta: metav1.TypeMeta{APIVersion: "storage.k8s.io/v1", Kind: "StorageClass"},
		ObjectMeta: metav1.ObjectMeta{Name: "local-path", Annotations: map[string]string{
			"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:       "orrery.dev/local-path",
		ReclaimPolicy:     &reclaim,
		VolumeBindingMode: &mode,
	}
}

func httpProbe(path string, port, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(port), Scheme: corev1.URISchemeHTTP}},
		PeriodSeconds: period,
	}
}

func hostPath(path string, kind *corev1.HostPathType) corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: kind}}
}
