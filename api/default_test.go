package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// TestDefaults compares defaulted manifests with what kubectl get -o yaml shows
// of the same manifests on an upstream cluster, and checks that a second pass
// changes nothing.
func TestDefaults(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
		run      func(in string) (string, error)
	}{
		"pod": {
			run: defaulted(DefaultPod),
			in: `
spec:
  hostNetwork: true
  containers:
  - name: a
    image: reg:5000/nginx
    ports: [{containerPort: 80}]
    resources: {limits: {cpu: 500m}}
    livenessProbe: {httpGet: {port: 80}}
    env: [{name: X, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
  volumes: [{name: v}, {name: c, configMap: {name: c}}]
`,
			want: `
metadata: {}
spec:
  containers:
  - env:
    - name: X
      valueFrom: {fieldRef: {apiVersion: v1, fieldPath: status.podIP}}
    image: reg:5000/nginx
    imagePullPolicy: Always
    livenessProbe: {failureThreshold: 3, httpGet: {path: /, port: 80, scheme: HTTP}, periodSeconds: 10, successThreshold: 1, timeoutSeconds: 1}
    name: a
    ports: [{containerPort: 80, hostPort: 80, protocol: TCP}]
    resources: {limits: {cpu: 500m}, requests: {cpu: 500m}}
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
  dnsPolicy: ClusterFirst
  enableServiceLinks: true
  hostNetwork: true
  restartPolicy: Always
  schedulerName: default-scheduler
  securityContext: {}
  terminationGracePeriodSeconds: 30
  volumes: [{name: v, emptyDir: {}}, {name: c, configMap: {name: c, defaultMode: 420}}]
status: {}
`,
		},
		"service": {
			run: defaulted(wholeService),
			in:  `spec: {type: NodePort, clusterIP: 10.96.0.7, selector: {a: b}, ports: [{port: 80}]}`,
			want: `
metadata: {}
spec:
  clusterIP: 10.96.0.7
  clusterIPs: [10.96.0.7]
  externalTrafficPolicy: Cluster
  internalTrafficPolicy: Cluster
  ports: [{port: 80, protocol: TCP, targetPort: 80}]
  selector: {a: b}
  sessionAffinity: None
  type: NodePort
status: {loadBalancer: {}}
`,
		},
		"job": {
			run: defaulted(DefaultJob),
			in:  `spec: {parallelism: 2, template: {spec: {restartPolicy: Never}}}`,
			want: `
metadata: {}
spec:
  backoffLimit: 6
  completionMode: NonIndexed
  manualSelector: false
  parallelism: 2
  podReplacementPolicy: TerminatingOrFailed
  suspend: false
  template:
    metadata: {}
    spec: {containers: null, dnsPolicy: ClusterFirst, restartPolicy: Never, schedulerName: default-scheduler, securityContext: {}, terminationGracePeriodSeconds: 30}
status: {}
`,
		},
		"deployment": {
			run: defaulted(DefaultDeployment),
			in:  `spec: {selector: {matchLabels: {a: b}}, template: {spec: {containers: [{name: a, image: "nginx@sha256:00"}]}}}`,
			want: `
metadata: {}
spec:
  progressDeadlineSeconds: 600
  replicas: 1
  revisionHistoryLimit: 10
  selector: {matchLabels: {a: b}}
  strategy: {rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}, type: RollingUpdate}
  template:
    metadata: {}
    spec:
      containers: [{name: a, image: "nginx@sha256:00", imagePullPolicy: IfNotPresent, resources: {}, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File}]
      dnsPolicy: ClusterFirst
      restartPolicy: Always
      schedulerName: default-scheduler
      securityContext: {}
      terminationGracePeriodSeconds: 30
status: {}
`,
		},
	} {
		once, err := c.run(c.in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tree(t, c.want), tree(t, once)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if twice, err := c.run(once); err != nil || twice != once {
			t.Errorf("%s: a second pass changes it (%v):\n%s", name, err, cmp.Diff(once, twice))
		}
	}
}

func defaulted[T any](f func(*T)) func(string) (string, error) {
	return func(in string) (string, error) {
		obj := new(T)
		if err := yaml.Unmarshal([]byte(in), obj); err != nil {
			return "", err
		}
		f(obj)
		out, err := sigsyaml.Marshal(obj)
		return string(out), err
	}
}

func tree(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := sigsyaml.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		"nginx": corev1.PullAlways, "nginx:latest": corev1.PullAlways, "nginx:1": corev1.PullIfNotPresent,
		"reg:5000/nginx": corev1.PullAlways, "reg:5000/nginx:1": corev1.PullIfNotPresent,
		"nginx@sha256:00": corev1.PullIfNotPresent, "nginx:latest@sha256:" + strings.Repeat("0", 64): corev1.PullAlways, "nginx@sha256:" + strings.Repeat("0", 64): corev1.PullIfNotPresent, "No name!": corev1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}

func TestAutoscalerRoundTrip(t *testing.T) {
	percent := int32(60)
	before := &autoscalingv1.HorizontalPodAutoscaler{Spec: autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: 3, TargetCPUUtilizationPercentage: &percent}}
	before.Annotations = map[string]string{
		"mine":     "stays",
		hpaMetrics: `[{"type":"Pods","pods":{"metricName":"qps","targetAverageValue":"10"}}]`,
	}
	v2, err := HPAToV2(before)
	if err != nil || len(v2.Spec.Metrics) != 2 || v2.Spec.Metrics[1].Pods.Metric.Name != "qps" || len(v2.Annotations) != 1 {
		t.Fatalf("to v2: %+v, %v", v2, err)
	}
	after, err := HPAToV1(v2)
	if err != nil {
		t.Fatal(err)
	}
	after.TypeMeta = before.TypeMeta
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("there and back:\n%s", diff)
	}
}

// wholeService is a Service as validation sees it.
func wholeService(s *corev1.Service) {
	DefaultService(s)
	if s.Spec.ClusterIP != "" {
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
	}
}
