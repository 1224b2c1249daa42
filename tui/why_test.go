package tui

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/gdamore/tcell/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"orrery.dev/why"
)

// brokenDeployment is one that nothing but the given things is wrong with: a
// template, and its pod's status. Without a status there is no pod.
func brokenDeployment(name, podSpec, podStatus, more string) string {
	meta := func(kind, of, owner string) string {
		owned := ""
		if owner != "" {
			owned = fmt.Sprintf(", ownerReferences: [{apiVersion: apps/v1, kind: %s, name: %s, uid: %s-%s, controller: true}]", owner, name, owner, name)
		}
		return fmt.Sprintf("metadata: {name: %s, namespace: troubles, uid: %s-%s, generation: 1, creationTimestamp: \"2026-01-01T00:58:00Z\", labels: {app: %s}%s}", of, kind, of, name, owned)
	}
	template := fmt.Sprintf("template: {metadata: {labels: {app: %s}}, spec: %s}", name, podSpec)
	out := "apiVersion: apps/v1\nkind: Deployment\n" + meta("Deployment", name, "") + "\nspec: {replicas: 1, " + template + "}\nstatus: {observedGeneration: 1, updatedReplicas: 1}"
	out += "\n---\napiVersion: apps/v1\nkind: ReplicaSet\n" + meta("ReplicaSet", name, "Deployment") + "\nspec: {replicas: 1, " + template + "}"
	if podStatus != "" {
		out += "\n---\napiVersion: v1\nkind: Pod\n" + meta("Pod", name+"-1", "ReplicaSet") + "\nspec: " + podSpec + "\nstatus: " + podStatus
	}
	if more != "" {
		out += "\n---\n" + more
	}
	return out
}

const (
	onANode  = `{type: PodScheduled, status: "True"}, {type: PodReadyToStartContainers, status: "True"}`
	unready  = `{phase: Running, conditions: [` + onANode + `, {type: Ready, status: "False"}], containerStatuses: [{name: web, started: true, ready: false, state: {running: {startedAt: "2026-01-01T00:58:10Z"}}}]}`
	ready    = `{phase: Running, conditions: [` + onANode + `, {type: Ready, status: "True"}], containerStatuses: [{name: web, started: true, ready: true, state: {running: {startedAt: "2026-01-01T00:58:10Z"}}}]}`
	unplaced = `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/1 nodes are available: 1 Insufficient cpu."}]}`
)

func stuck(reason, message string) string {
	return fmt.Sprintf(`{phase: Pending, conditions: [%s, {type: Ready, status: "False"}], containerStatuses: [{name: web, state: {waiting: {reason: %s, message: '%s'}}}]}`, onANode, reason, message)
}

// troubled is a cluster with six Deployments, each broken in a way of its own.
func troubled(t *testing.T) why.Reader {
	const node = "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nstatus: {allocatable: {cpu: \"4\", memory: 8Gi, pods: \"110\"}, conditions: [{type: Ready, status: \"True\"}]}"
	all := []string{node,
		brokenDeployment("wrong-image", `{nodeName: node-1, containers: [{name: web, image: "registry.example/shpo:1.0"}]}`, stuck("ErrImagePull", "registry.example/shpo:1.0: not found"), ""),
		brokenDeployment("no-room", `{schedulerName: default-scheduler, containers: [{name: web, image: a, resources: {requests: {cpu: "64"}}}]}`, unplaced, ""),
		brokenDeployment("failing-probe", `{nodeName: node-1, containers: [{name: web, image: a, ports: [{containerPort: 8080}], readinessProbe: {httpGet: {path: /healthz, port: 8081}}}]}`, unready, ""),
		brokenDeployment("missing-secret", `{nodeName: node-1, containers: [{name: web, image: a, env: [{name: P, valueFrom: {secretKeyRef: {name: db-pass, key: password}}}]}]}`, stuck("CreateContainerConfigError", `secret "db-pass" not found`), ""),
		brokenDeployment("quota", `{containers: [{name: web, image: a}]}`, "", "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: few-pods, namespace: troubles}\nspec: {hard: {pods: \"5\"}}\nstatus: {hard: {pods: \"5\"}, used: {pods: \"5\"}}\n---\n"+
			`apiVersion: v1
kind: Event
metadata: {name: e, namespace: troubles}
involvedObject: {kind: ReplicaSet, namespace: troubles, name: quota}
type: Warning
reason: FailedCreate
lastTimestamp: "2026-01-01T00:59:00Z"
message: 'Error creating: pods "quota-1" is forbidden: exceeded quota: few-pods, requested: pods=1, used: pods=5, limited: pods=5'`),
		brokenDeployment("bad-selector", `{nodeName: node-1, containers: [{name: web, image: a, ports: [{containerPort: 8080}]}]}`, ready, "apiVersion: v1\nkind: Service\nmetadata: {name: bad-selector, namespace: troubles, creationTimestamp: \"2026-01-01T00:58:00Z\"}\nspec: {selector: {app: bad-selecter}, ports: [{port: 80, targetPort: 8080}]}"),
	}
	lists := map[string][]runtime.Object{}
	for doc := range strings.SplitSeq(strings.Join(all, "\n---\n"), "\n---\n") {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		plural, _ := meta.UnsafeGuessKindToResource(o.GetObjectKind().GroupVersionKind())
		lists[plural.Resource] = append(lists[plural.Resource], o)
	}
	return why.Reader{
		List: func(k schema.GroupVersionResource, _ string) ([]runtime.Object, error) { return lists[k.Resource], nil },
		Get: func(k schema.GroupVersionResource, _, name string) (runtime.Object, error) {
			for _, o := range lists[k.Resource] {
				if m, err := meta.Accessor(o); err == nil && m.GetName() == name {
					return o, nil
				}
			}
			return nil, apierrors.NewNotFound(k.GroupResource(), name)
		},
	}
}

// asking lets the console ask the handler that an API server has.
func asking(h http.Handler) func(*app) {
	return func(a *app) {
		a.ask = func(_ context.Context, path string, query url.Values, answer any) error {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path+"?"+query.Encode(), nil))
			if w.Code != http.StatusOK {
				var status metav1.Status
				if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
					return err
				}
				return &apierrors.StatusError{ErrStatus: status}
			}
			return json.Unmarshal(w.Body.Bytes(), answer)
		}
	}
}

// T52: each of six broken Deployments is found and explained, cause and mend,
// within five keys from the first screen.
func TestT52EachTroubleIsExplainedWithinFiveKeys(t *testing.T) {
	cluster := troubled(t)
	handler := why.Handler(func(*http.Request) why.Reader { return cluster })
	for name, want := range map[string][]string{
		"wrong-image":    {"The chain breaks here: Image", "The registry has no image registry.example/shpo:1.0.", "$ kubectl set image deployment/wrong-image"},
		"no-room":        {"Scheduling", "64 of cpu", "Or add a node, or free room on one."},
		"failing-probe":  {"Probes", "readiness probe fails", "asks port 8081, but the container declares"},
		"missing-secret": {"Volumes and configuration", "Secret db-pass is not there", "Create Secret db-pass in troubles"},
		"quota":          {"The chain breaks here: Quota", "Quota few-pods is used up", "Raise the quota few-pods"},
		"bad-selector":   {"The chain breaks here: Endpoints", "matches no pod", "Correct the Service’s selector (now app=bad-selecter)", "$ kubectl set selector service bad-selector app=bad-selector"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShow(t, Config{}, 140, 50, asking(handler))
			s.await("db-0")
			s.keys("!")
			overview := s.await("etcd three", "data/db-0", "troubles/"+name)
			at := strings.Index(overview, " troubles/"+name)
			line := strings.Fields(overview[strings.LastIndex(overview[:at], "\n")+1 : at])
			if n := line[1]; n >= "1" && n <= "9" { // after the border: the number that opens it
				s.keys(n)
			} else {
				s.keys("G", tcell.KeyEnter)
			}
			s.await(append(want, "why troubles/"+name)...)
		})
	}
}

func TestWhyScreens(t *testing.T) {
	cluster := troubled(t)
	handler := why.Handler(func(*http.Request) why.Reader { return cluster })
	s := newShow(t, Config{}, 110, 44, asking(handler))
	s.await("db-0", "v0.0.0")
	s.keys("!")
	golden(t, "troubles", s.await("troubles/quota", "troubles/bad-selector", "etcd three"))
	s = newShow(t, Config{Language: "zh_TW"}, 80, 24, asking(handler))
	s.await("db-0", "v0.0.0")
	s.app.post(func() {
		s.app.showWhy(target{kind: kind{group: "apps", version: "v1", plural: "deployments", name: "Deployment"}, namespace: "troubles", name: "wrong-image"})
	})
	golden(t, "why_80_zh", s.await("映像檔", "kubectl set image"))
}

// A server that does not tell leaves the overview as it was, and says so when
// asked.
func TestWhyOfAServerThatDoesNotTell(t *testing.T) {
	s := newShow(t, Config{}, 110, 44)
	s.await("db-0")
	s.keys("W")
	s.await("this server does not tell")
}
