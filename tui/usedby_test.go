package tui

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestUses(t *testing.T) {
	var spec corev1.PodSpec
	err := yaml.Unmarshal([]byte(`
serviceAccountName: robot
priorityClassName: first
imagePullSecrets: [{name: pull}]
initContainers: [{name: i, envFrom: [{secretRef: {name: all}}, {configMapRef: {name: settings}}]}]
containers: [{name: c, env: [{name: A, value: b}, {name: P, valueFrom: {secretKeyRef: {name: one, key: k}}}, {name: Q, valueFrom: {configMapKeyRef: {name: line, key: k}}}]}]
volumes: [{name: a, secret: {secretName: file}}, {name: b, configMap: {name: dir}}, {name: c, persistentVolumeClaim: {claimName: data}},
  {name: d, projected: {sources: [{secret: {name: beam}}, {configMap: {name: slide}}]}}, {name: e, emptyDir: {}}]`), &spec)
	if err != nil {
		t.Fatal(err)
	}
	for plural, names := range map[string][]string{
		"secrets":    {"pull", "all", "one", "file", "beam"},
		"configmaps": {"settings", "line", "dir", "slide"}, "persistentvolumeclaims": {"data"}, "serviceaccounts": {"robot"}, "priorityclasses": {"first"},
	} {
		for _, name := range names {
			if !uses(&spec, plural, name) {
				t.Errorf("%s %s is used", plural, name)
			}
			for _, other := range []string{"secrets", "configmaps", "persistentvolumeclaims", "serviceaccounts", "priorityclasses"} {
				if other != plural && uses(&spec, other, name) {
					t.Errorf("%s %s is not used", other, name)
				}
			}
		}
	}
}
