package api

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

const goodPod = `
metadata: {name: p, namespace: d}
spec: {containers: [{name: a, image: nginx}]}
`

// faults are the errors' texts, one a line.
func faults(errs field.ErrorList) string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Error())
	}
	return strings.Join(out, "\n")
}

func read[T any](t *testing.T, manifest string, fill func(*T)) *T {
	t.Helper()
	obj := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest), obj); err != nil {
		t.Fatalf("%v in %s", err, manifest)
	}
	if fill != nil {
		fill(obj)
	}
	return obj
}

// TestCreateFaults holds the messages against what kubectl prints on an upstream
// cluster.
func TestCreateFaults(t *testing.T) {
	pod := func(manifest string) field.ErrorList { return ValidatePod(read(t, manifest, DefaultPod), nil) }
	service := func(manifest string) field.ErrorList {
		return ValidateService(read(t, manifest, wholeService), nil)
	}
	deployment := func(manifest string) field.ErrorList {
		return ValidateDeployment(read(t, manifest, DefaultDeployment), nil)
	}
	for name, c := range map[string]struct {
		errs field.ErrorList
		want string
	}{
		"good pod":      {pod(goodPod), ""},
		"no containers": {pod(`spec: {}`), `spec.containers: Required value`},
		"no image":      {pod(`spec: {containers: [{name: a}]}`), `spec.containers[0].image: Required value`},
		"bad name": {
			pod(`spec: {containers: [{name: A_b, image: x}]}`),
			`spec.containers[0].name: Invalid value: "A_b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
		},
		"same name twice": {pod(`spec: {containers: [{name: a, image: x}, {name: a, image: x}]}`), `spec.containers[1].name: Duplicate value: "a"`},
		"bad policy": {
			pod(`spec: {restartPolicy: Sometimes, containers: [{name: a, image: x}]}`),
			`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`,
		},
		"host name beside the node's": {
			pod(`spec: {hostnameOverride: a, hostNetwork: true, containers: [{name: a, image: x}]}`),
			`spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true`,
		},
		"host name beside the FQDN": {
			pod(`spec: {hostnameOverride: a, setHostnameAsFQDN: true, containers: [{name: a, image: x}]}`),
			`spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true`,
		},
		"host name too long": {
			pod(`spec: {hostnameOverride: ` + strings.Repeat("a", 65) + `, containers: [{name: a, image: x}]}`),
			`spec.hostnameOverride: Too long: may not be more than 64 bytes`,
		},
		"mount of nothing": {pod(`spec: {containers: [{name: a, image: x, volumeMounts: [{name: v, mountPath: /v}]}]}`), `spec.containers[0].volumeMounts[0].name: Not found: "v"`},
		"request over limit": {
			pod(`spec: {containers: [{name: a, image: x, resources: {requests: {cpu: "2"}, limits: {cpu: "1"}}}]}`),
			`spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`,
		},
		"port": {
			pod(`spec: {containers: [{name: a, image: x, ports: [{containerPort: 70000}]}]}`),
			`spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive`,
		},
		"probe without handler": {pod(`spec: {containers: [{name: a, image: x, livenessProbe: {}}]}`), `spec.containers[0].livenessProbe: Required value: must specify a handler type`},
		"two volume types":      {pod(`spec: {volumes: [{name: v, emptyDir: {}, hostPath: {path: /x}}], containers: [{name: a, image: x}]}`), `spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type`},
		"env of two":            {pod(`spec: {containers: [{name: a, image: x, env: [{name: E, value: v, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}`), `spec.containers[0].env[0].valueFrom: Invalid value: "": may not be specified when ` + "`value`" + ` is not empty`},
		"no ports":              {service(`spec: {selector: {a: b}}`), `spec.ports: Required value`},
		"headless without":      {service(`spec: {clusterIP: None}`), ""},
		"external":              {service(`spec: {type: ExternalName}`), `spec.externalName: Required value`},
		"two unnamed ports": {
			service(`spec: {ports: [{port: 1}, {port: 2}]}`),
			"spec.ports[0].name: Required value\nspec.ports[1].name: Required value",
		},
		"node port of cluster IP": {service(`spec: {ports: [{port: 1, nodePort: 30000}]}`), "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
		"selector and labels": {
			deployment(`spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: c}}, spec: {containers: [{name: a, image: x}]}}}`),
			"spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`",
		},
		"no selector": {
			deployment(`spec: {template: {spec: {containers: [{name: a, image: x}]}}}`),
			"spec.selector: Required value\nspec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`",
		},
		"deployment of one-offs": {
			deployment(`spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Never, containers: [{name: a, image: x}]}}}`),
			`spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`,
		},
		"negative replicas": {
			deployment(`spec: {replicas: -1, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: x}]}}}`),
			`spec.replicas: Invalid value: -1: must be greater than or equal to 0`,
		},
		"cron": {
			ValidateCronJob(read(t, `spec: {schedule: "* * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: x}]}}}}}`, DefaultCronJob), nil),
			`spec.schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]`,
		},
		"job always": {
			ValidateCronJob(read(t, `spec: {schedule: "* * * * *", jobTemplate: {spec: {template: {spec: {containers: [{name: a, image: x}]}}}}}`, DefaultCronJob), nil),
			`spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`,
		},
		"tls secret": {
			ValidateSecret(read[corev1.Secret](t, `{type: kubernetes.io/tls, data: {tls.crt: YQ==}}`, nil), nil),
			`data[tls.key]: Required value`,
		},
		"config map key": {
			ValidateConfigMap(read[corev1.ConfigMap](t, `{data: {"a b": c}}`, nil), nil),
			`data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`,
		},
		"role without verbs": {
			ValidateRole(read[rbacv1.Role](t, `{rules: [{apiGroups: [""], resources: [pods]}]}`, nil), nil),
			`rules[0].verbs: Required value`,
		},
		"path type": {
			ValidateIngress(read[networkingv1.Ingress](t, `spec: {rules: [{http: {paths: [{path: /, backend: {service: {name: s, port: {number: 1}}}}]}}]}`, nil), nil),
			`spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified`,
		},
		"two ranges of one family": {
			ValidateServiceCIDR(read[networkingv1.ServiceCIDR](t, `spec: {cidrs: [10.0.0.0/24, 10.1.0.0/24]}`, nil), nil),
			`spec.cidrs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64`,
		},
		"a range of the other family": {
			ValidateServiceCIDR(read[networkingv1.ServiceCIDR](t, `spec: {cidrs: [10.0.0.0/24, "fd00::/112"]}`, nil), read[networkingv1.ServiceCIDR](t, `spec: {cidrs: [10.0.0.0/24]}`, nil)),
			``,
		},
		"another range": {
			ValidateServiceCIDR(read[networkingv1.ServiceCIDR](t, `spec: {cidrs: [10.1.0.0/24]}`, nil), read[networkingv1.ServiceCIDR](t, `spec: {cidrs: [10.0.0.0/24]}`, nil)),
			`spec.cidrs[0]: Invalid value: "10.1.0.0/24": field is immutable`,
		},
	} {
		if got := faults(c.errs); got != c.want {
			t.Errorf("%s:\n got  %s\n want %s", name, got, c.want)
		}
	}
}

func TestUpdateFaults(t *testing.T) {
	pod := func(change func(*corev1.Pod)) func() field.ErrorList {
		return func() field.ErrorList {
			old := read(t, goodPod, DefaultPod)
			now := old.DeepCopy()
			change(now)
			return ValidatePod(now, old)
		}
	}
	changed := func(kind string, was, is string) func() field.ErrorList {
		return func() field.ErrorList {
			switch kind {
			case "job":
				return ValidateJob(read(t, is, DefaultJob), read(t, was, DefaultJob))
			case "claim":
				return ValidatePersistentVolumeClaim(read(t, is, DefaultPersistentVolumeClaim), read(t, was, DefaultPersistentVolumeClaim))
			case "volume":
				return ValidatePersistentVolume(read(t, is, DefaultPersistentVolume), read(t, was, DefaultPersistentVolume))
			case "slice":
				return ValidateEndpointSlice(read(t, is, DefaultEndpointSlice), read(t, was, DefaultEndpointSlice))
			}
			return ValidateNode(read(t, is, DefaultNode), read(t, was, DefaultNode))
		}
	}
	const volume = "spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /a}}"
	const claim = "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}"
	const job = "spec: {manualSelector: true, selector: {matchLabels: {a: b}}, completions: 3, template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Never, containers: [{name: a, image: x}]}}}"
	sealed := true
	for name, c := range map[string]struct {
		run  func() field.ErrorList
		want string // how the only error begins
	}{
		// Values of upstream's own types are shown in the form that these have.
		"source of a volume": {changed("volume", volume, strings.Replace(volume, "/a", "/b", 1)), "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n@@ -2,7 +2,7 @@\n  \"GCEPersistentDisk\": null,"},
		"a claim":            {changed("claim", claim, strings.Replace(claim, "Once", "Many", 1)), "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n"},
		"completions":        {changed("job", job, strings.Replace(job, "3", "4", 1)), "spec.completions: Invalid value: 4: field is immutable"},
		"template of a job":  {changed("job", job, strings.Replace(job, "image: x", "image: z", 1)), `spec.template: Invalid value: {"labels":{"a":"b"},"Spec":{"Volumes":null,"InitContainers":null,"Containers":[{"Name":"a","Image":"z",`},
		"type of addresses":  {changed("slice", "addressType: IPv4", "addressType: IPv6"), "addressType: Invalid value: null: field is immutable"},
		"id of a node":       {changed("node", "spec: {providerID: a}", "spec: {providerID: b}"), "spec.providerID: Invalid value: null: field cannot be modified once set"},
		"image":              {pod(func(p *corev1.Pod) { p.Spec.Containers[0].Image = "nginx:2" }), ""},
		"a toleration":       {pod(func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: "Exists"}} }), ""},
		"command":            {pod(func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} }), "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"},
		"node":               {pod(func(p *corev1.Pod) { p.Spec.NodeName = "n" }), "spec: Forbidden: pod updates may not change fields"},
		"a container": {
			pod(func(p *corev1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
				p.Spec.Containers[1].Name = "b"
			}),
			"spec.containers: Forbidden: pod updates may not add or remove containers",
		},
		"selector of a deployment": {
			func() field.ErrorList {
				old := read(t, `spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b, c: d}}, spec: {containers: [{name: a, image: x}]}}}`, DefaultDeployment)
				now := old.DeepCopy()
				now.Spec.Selector.MatchLabels["c"] = "d"
				return ValidateDeployment(now, old)
			},
			`spec.selector: Invalid value: {"matchLabels":{"a":"b","c":"d"}}: field is immutable`,
		},
		"service name of a set": {
			func() field.ErrorList {
				old := read(t, `spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: x}]}}}`, DefaultStatefulSet)
				now := old.DeepCopy()
				now.Spec.ServiceName = "other"
				return ValidateStatefulSet(now, old)
			},
			`spec.serviceName: Invalid value: "other": field is immutable`,
		},
		"cluster IP": {
			func() field.ErrorList {
				old := read(t, `spec: {clusterIP: 10.96.0.7, ports: [{port: 80}]}`, wholeService)
				now := read(t, `spec: {clusterIP: 10.96.0.8, ports: [{port: 80}]}`, wholeService)
				return ValidateService(now, old)
			},
			`spec.clusterIPs[0]: Invalid value: ["10.96.0.8"]: may not change once set`,
		},
		"sealed config map": {
			func() field.ErrorList {
				old := &corev1.ConfigMap{Immutable: &sealed}
				return ValidateConfigMap(&corev1.ConfigMap{Immutable: &sealed, Data: map[string]string{"a": "b"}}, old)
			},
			"data: Forbidden: field is immutable when `immutable` is set",
		},
		"role of a binding": {
			func() field.ErrorList {
				ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "a"}
				old := &rbacv1.RoleBinding{RoleRef: ref}
				ref.Name = "b"
				return ValidateRoleBinding(&rbacv1.RoleBinding{RoleRef: ref}, old)
			},
			"roleRef: Invalid value:",
		},
	} {
		errs := c.run()
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), c.want)) {
			t.Errorf("%s:\n got  %s\n want %s", name, faults(errs), c.want)
		}
	}
}

// TestValidateEmpty checks that no validation falls over an object without
// anything in it, as a client may send.
func TestValidateEmpty(t *testing.T) {
	for _, errs := range []field.ErrorList{
		ValidatePod(&corev1.Pod{}, nil), ValidateService(&corev1.Service{}, nil), ValidateDeployment(&appsv1.Deployment{}, nil),
		ValidateJob(&batchv1.Job{}, nil), ValidateStatefulSet(&appsv1.StatefulSet{}, nil), ValidateDaemonSet(&appsv1.DaemonSet{}, nil),
	} {
		if len(errs) == 0 {
			t.Error("an empty object passes")
		}
	}
}
