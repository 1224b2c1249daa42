package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"orrery.dev/api"
)

// shopped is a Deployment of two ready pods and a bare one that a Service and a budget
// count, a claim with a volume, and what the first pod uses.
const shopped = `
kind: Deployment
---
kind: ReplicaSet
---
kind: Pod
spec: {nodeName: node-1, serviceAccountName: robot, volumes: [{name: d, persistentVolumeClaim: {claimName: data}}, {name: k, secret: {secretName: key}}]}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
kind: Pod
metadata: {name: web-2}
spec: {nodeName: node-2}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
kind: Pod
metadata: {name: spare, ownerReferences: null}
spec: {nodeName: node-2, volumes: [{name: tmp, emptyDir: {}}]}
status: {phase: Running, conditions: [{type: Ready, status: "True"}]}
---
kind: Service
---
kind: PodDisruptionBudget
---
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {volumeName: v1}
---
kind: PersistentVolume
---
kind: Secret
metadata: {name: key}
`

// TestBlast tells what goes with some of a shop.
func TestBlast(t *testing.T) {
	shop := func(group, resource, name string) api.ObjectRef {
		return api.ObjectRef{Group: group, Resource: resource, Namespace: "shop", Name: name}
	}
	whole := func(group, resource, name string) api.ObjectRef {
		return api.ObjectRef{Group: group, Resource: resource, Name: name}
	}
	for _, c := range []struct {
		name   string
		of     api.BlastOf
		more   string
		denied []string
		want   string
	}{
		{"down the owners", api.BlastOf{Objects: []api.ObjectRef{shop("apps", "deployments", "web")}}, "", nil, `
ok goes count=2 kind=Pods names=web-1, web-2
ok goes count=1 kind=ReplicaSet names=web-a
broken budget allowed=1 hits=2 name=keep
ok serviceLoses left=1 lost=2 name=web`},
		{"orphans stay", api.BlastOf{Objects: []api.ObjectRef{shop("apps", "deployments", "web")}, Orphan: true}, "", nil, `
ok nothingElse`},
		{"the same name elsewhere", api.BlastOf{Objects: []api.ObjectRef{{Group: "apps", Resource: "deployments", Namespace: "other", Name: "web"}}}, "", nil, `
ok nothingElse`},
		{"another owner stays", api.BlastOf{Objects: []api.ObjectRef{shop("apps", "deployments", "web")}}, `
kind: Secret
metadata: {name: shared, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: uid-deployment-web}, {apiVersion: v1, kind: Secret, name: key, uid: uid-secret-key}]}`, nil, `
ok goes count=2 kind=Pods names=web-1, web-2
ok goes count=1 kind=ReplicaSet names=web-a
broken budget allowed=1 hits=2 name=keep
ok serviceLoses left=1 lost=2 name=web`},
		{"one pod", api.BlastOf{Objects: []api.ObjectRef{shop("", "pods", "web-1")}}, "", nil, `
ok budget allowed=1 hits=1 name=keep
ok serviceLoses left=2 lost=1 name=web
ok makesAnew kind=Deployment left=1 lost=1 name=web`},
		{"all pods", api.BlastOf{Objects: []api.ObjectRef{shop("", "pods", "web-1"), shop("", "pods", "web-2"), shop("", "pods", "spare")}}, "", nil, `
broken budget allowed=1 hits=3 name=keep
broken serviceDown left=0 lost=3 name=web
waiting makesAnew kind=Deployment left=0 lost=2 name=web`},
		{"a claim", api.BlastOf{Objects: []api.ObjectRef{shop("", "persistentvolumeclaims", "data")}}, "", nil, `
broken dataLost count=1 names=data
waiting usedBy name=Deployment/web`},
		{"a claim whose volume may not be read", api.BlastOf{Objects: []api.ObjectRef{shop("", "persistentvolumeclaims", "data")}}, "", []string{"persistentvolumes"}, `
waiting usedBy name=Deployment/web
unknown unlisted resources=persistentvolumes`},
		{"a Secret", api.BlastOf{Objects: []api.ObjectRef{shop("", "secrets", "key")}}, `
kind: Ingress
metadata: {name: door}
spec: {tls: [{secretName: key}]}
---
kind: ServiceAccount
metadata: {name: robot}
imagePullSecrets: [{name: key}]`, nil, `
waiting usedBy name=Deployment/web
waiting usedBy name=Ingress/door
waiting usedBy name=ServiceAccount/robot`},
		{"a priority class", api.BlastOf{Objects: []api.ObjectRef{whole("scheduling.k8s.io", "priorityclasses", "first")}}, `
kind: Pod
metadata: {name: hasty, ownerReferences: null}
spec: {priorityClassName: first}`, nil, `
waiting usedBy name=Pod/hasty`},
		{"a volume", api.BlastOf{Objects: []api.ObjectRef{whole("", "persistentvolumes", "v1")}}, "", nil, `
broken dataLost count=1 names=v1
waiting usedBy name=PersistentVolumeClaim/data`},
		{"a namespace", api.BlastOf{Objects: []api.ObjectRef{whole("", "namespaces", "shop")}}, "", nil, `
ok contains count=3 kind=Pods
ok contains count=1 kind=Deployment
ok contains count=1 kind=PersistentVolumeClaim
ok contains count=1 kind=PodDisruptionBudget
ok contains count=1 kind=ReplicaSet
ok contains count=1 kind=Secret
ok contains count=1 kind=Service
broken dataLost count=1 names=shop/data`},
		{"a definition", api.BlastOf{Objects: []api.ObjectRef{whole("apiextensions.k8s.io", "customresourcedefinitions", "deployments.apps")}}, "", nil, `
ok contains count=1 kind=Deployment`},
		{"a node", api.BlastOf{Objects: []api.ObjectRef{whole("", "nodes", "node-2")}}, "", nil, `
ok onNode count=2
broken podsLost count=1
broken budget allowed=1 hits=2 name=shop/keep
ok serviceLoses left=1 lost=2 name=shop/web
ok makesAnew kind=Deployment left=1 lost=1 name=shop/web`},
		{"a drain", api.BlastOf{Objects: []api.ObjectRef{whole("", "nodes", "node-2")}, Drain: true}, `
kind: Pod
metadata: {name: agent, labels: {app: agent}, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: a, controller: true}]}
spec: {nodeName: node-2}
---
kind: PodDisruptionBudget
metadata: {name: strict}
status: {disruptionsAllowed: 0}`, nil, `
ok evicts count=2
ok evictsNot count=1
broken podsLost count=1
broken scratchLost count=1
waiting budgetHolds allowed=0 hits=2 name=shop/strict
ok serviceLoses left=1 lost=2 name=shop/web
ok makesAnew kind=Deployment left=1 lost=1 name=shop/web
evicted shop/spare shop/web-2`},
		{"what may not be read", api.BlastOf{Objects: []api.ObjectRef{shop("apps", "deployments", "web")}}, "", []string{"pods", "poddisruptionbudgets"}, `
ok goes count=1 kind=ReplicaSet names=web-a
unknown unlisted resources=poddisruptionbudgets, pods`},
		{"a node whose pods may not be read", api.BlastOf{Objects: []api.ObjectRef{whole("", "nodes", "node-2")}}, "", []string{"pods"}, `
unknown unlisted resources=pods`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Blast(shelf{objects(t, shopped+"\n---\n"+c.more), c.denied}.reader(), c.of, now)
			if err != nil {
				t.Fatal(err)
			}
			inCatalogue(t, &api.Why{Links: []api.WhyLink{{Name: "quota", State: api.WhyOK, Findings: got.Findings}}})
			if text := told(got); text != strings.TrimSpace(c.want) {
				t.Errorf("got\n%s\nwant%s", text, c.want)
			}
		})
	}
}

func told(b *api.Blast) string {
	var out []string
	for _, f := range b.Findings {
		line := string(f.State) + " " + f.Code
		for _, key := range slices.Sorted(maps.Keys(f.Params)) {
			line += fmt.Sprintf(" %s=%s", key, f.Params[key])
		}
		out = append(out, line)
	}
	if len(b.Evicted) > 0 {
		line := "evicted"
		for _, o := range b.Evicted {
			line += " " + o.Namespace + "/" + o.Name
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// Of many of a sort the worst are told, and the rest is counted.
func TestBlastOfMany(t *testing.T) {
	text := shopped
	for i := range 20 {
		text += fmt.Sprintf("\n---\nkind: Service\nmetadata: {name: s%d}\nspec: {selector: {app: web%s}}", i, map[bool]string{true: ", only: one"}[i == 19])
	}
	text += "\n---\nkind: Pod\nmetadata: {name: one, ownerReferences: null, labels: {app: web, only: one}}\nstatus: {phase: Running, conditions: [{type: Ready, status: \"True\"}]}"
	got, err := Blast(shelf{objects: objects(t, text)}.reader(), api.BlastOf{Objects: []api.ObjectRef{{Resource: "pods", Namespace: "shop", Name: "one"}}}, now)
	if err != nil {
		t.Fatal(err)
	}
	services := slices.DeleteFunc(got.Findings, func(f api.Finding) bool { return !strings.HasPrefix(f.Code, "service") && f.Code != "andMore" })
	if len(services) != mostTold+1 || services[0].Code != "serviceDown" || services[mostTold].Params["count"] != "13" {
		t.Errorf("got %+v", services)
	}
}
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
