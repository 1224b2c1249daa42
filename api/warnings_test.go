package api

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// TestWarnings holds the warnings against what an upstream cluster says.
func TestSyncAppArmor(t *testing.T) {
	const warning = `metadata.annotations[container.apparmor.security.beta.kubernetes.io/a]: deprecated since v1.30; use the "appArmorProfile" field instead`
	for name, c := range map[string]struct {
		told, whole string
		profile     string // of the container
		want        []string
	}{
		"named":        {"unconfined", "", "Unconfined", []string{warning}},
		"as the pod's": {"runtime/default", "{appArmorProfile: {type: RuntimeDefault}}", "", nil},
		"none such":    {"other", "", "", []string{warning}},
	} {
		pod := read(t, `{metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/a: `+c.told+`}}, spec: {securityContext: `+c.whole+`, containers: [{name: a}]}}`, DefaultPod)
		got, profile := SyncAppArmor(pod), ""
		if s := pod.Spec.Containers[0].SecurityContext; s != nil {
			profile = string(s.AppArmorProfile.Type)
		}
		if !slices.Equal(got, c.want) || profile != c.profile {
			t.Errorf("%s: %q, profile %q; want %q, %q", name, got, profile, c.want, c.profile)
		}
	}
}

func TestWarnings(t *testing.T) {
	pod := func(spec string) []string {
		return WarnPod(read(t, "metadata: {name: p}\nspec: "+spec, DefaultPod), nil)
	}
	for name, c := range map[string]struct {
		got, want []string
	}{
		"nothing":          {pod(`{containers: [{name: a, image: x}]}`), nil},
		"name":             {WarnPod(read[corev1.Pod](t, `metadata: {name: a.b}`, nil), nil), []string{`metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]`}},
		"label of a node":  {pod(`{nodeSelector: {beta.kubernetes.io/os: linux}}`), []string{`spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`}},
		"variable twice":   {pod(`{containers: [{name: a, env: [{name: A, value: a}, {name: A, value: "$(A)b"}, {name: A, value: c}]}]}`), []string{`spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply`}},
		"part of a byte":   {pod(`{containers: [{name: a, resources: {limits: {memory: 100m}, requests: {memory: "1"}}}]}`), []string{`spec.containers[0].resources.limits[memory]: fractional byte value "100m" is invalid, must be an integer`}},
		"path in a path":   {pod(`{volumes: [{name: v, configMap: {name: c, items: [{key: a, path: x/y}, {key: b, path: x}]}}]}`), []string{`volume "v" (ConfigMap "c"): overlapping paths: "x" with "x/y"`}},
		"ports":            {pod(`{containers: [{name: a, ports: [{name: p, containerPort: 80}]}, {name: b, ports: [{name: p, containerPort: 80, hostPort: 1}]}]}`), []string{"spec.containers[1].ports[0]: overlapping port definition with spec.containers[0].ports[0]", `spec.containers[1].ports[0]: duplicate port name "p" with spec.containers[0].ports[0], services and probes that select ports by name will use spec.containers[0].ports[0]`}},
		"affinity to none": {pod(`{affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z}]}}}`), []string{"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod"}},
		"template":         {WarnDeployment(read[appsv1.Deployment](t, `{metadata: {name: d}, spec: {template: {spec: {volumes: [{name: v, rbd: {}}]}}}}`, nil), nil), []string{"spec.template.spec.volumes[0].rbd: deprecated in v1.28, non-functional in v1.31+"}},
		"same template":    {WarnDeployment(&appsv1.Deployment{}, &appsv1.Deployment{}), nil},
		"history":          {WarnStatefulSet(read[appsv1.StatefulSet](t, `{spec: {revisionHistoryLimit: -1}}`, nil), nil), []string{"spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"}},
		"schedule":         {WarnCronJob(read[batchv1.CronJob](t, `{spec: {schedule: "TZ=UTC * * * * *"}}`, nil), &batchv1.CronJob{}), []string{"cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"}},
		"quota":            {WarnResourceQuota(read[corev1.ResourceQuota](t, `{spec: {hard: {cpu: "2", limits.cpu: "1"}}}`, nil), nil), []string{"ResourceQuota cpu (2) should be less than limits.cpu (1)"}},
		"recycled":         {WarnPersistentVolume(read[corev1.PersistentVolume](t, `{spec: {persistentVolumeReclaimPolicy: Recycle}}`, nil), nil), []string{"spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."}},
		"class":            {WarnIngress(read[networkingv1.Ingress](t, `{metadata: {annotations: {kubernetes.io/ingress.class: c}}}`, nil), nil), []string{`annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead`}},
		"key":              {WarnSecret(read[corev1.Secret](t, `{type: kubernetes.io/tls}`, nil), nil), []string{"tls: failed to find any PEM data in certificate input"}},
		"headless":         {WarnService(read[corev1.Service](t, `{spec: {type: ClusterIP, clusterIP: None, loadBalancerIP: 192.0.2.1, sessionAffinity: None}}`, nil), nil), []string{"spec.loadBalancerIP is ignored for headless services"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s:\n got  %s\n want %s", name, strings.Join(c.got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}
