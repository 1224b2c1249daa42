package why

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"orrery.dev/api"
	"orrery.dev/client/words"
)

// now is when the tests ask; the objects are two minutes old.
var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// shelf is a Reader over objects. Kinds in denied may not be read.
type shelf struct {
	objects []runtime.Object
	denied  []string
}

func (s shelf) reader() Reader {
	of := func(k schema.GroupVersionResource, namespace, name string) []runtime.Object {
		var found []runtime.Object
		for _, o := range s.objects {
			m, _ := meta.Accessor(o)
			kind := o.GetObjectKind().GroupVersionKind()
			plural, _ := meta.UnsafeGuessKindToResource(kind)
			if plural == k && (namespace == "" || m.GetNamespace() == namespace) && (name == "" || m.GetName() == name) {
				found = append(found, o)
			}
		}
		return found
	}
	check := func(k schema.GroupVersionResource, namespace, name string) error {
		if slices.Contains(s.denied, k.Resource) || slices.Contains(s.denied, k.Resource+"@"+namespace) {
			return apierrors.NewForbidden(k.GroupResource(), name, fmt.Errorf("not yours"))
		}
		return nil
	}
	return Reader{
		Get: func(k schema.GroupVersionResource, namespace, name string) (runtime.Object, error) {
			found := of(k, namespace, name)
			if err := check(k, namespace, name); err != nil {
				return nil, err
			}
			if len(found) == 0 {
				return nil, apierrors.NewNotFound(k.GroupResource(), name)
			}
			return found[0], nil
		},
		List: func(k schema.GroupVersionResource, namespace string) ([]runtime.Object, error) {
			return of(k, namespace, ""), check(k, namespace, "")
		},
		Namespaces: func() ([]string, error) { return []string{"shop", "other"}, nil },
		Kinds: func() (all []Kind, _ error) {
			for _, o := range s.objects {
				m, _ := meta.Accessor(o)
				plural, _ := meta.UnsafeGuessKindToResource(o.GetObjectKind().GroupVersionKind())
				if k := (Kind{plural, o.GetObjectKind().GroupVersionKind().Kind, m.GetNamespace() != ""}); !slices.Contains(all, k) {
					all = append(all, k)
				}
			}
			return all, nil
		},
		Metadata: func(k schema.GroupVersionResource, namespace string) (all []metav1.Object, _ error) {
			for _, o := range of(k, namespace, "") {
				m, _ := meta.Accessor(o)
				all = append(all, m)
			}
			return all, check(k, namespace, "")
		},
		Count: func(k schema.GroupVersionResource, namespace string) (int, error) {
			return len(of(k, namespace, "")), check(k, namespace, "")
		},
	}
}

// objects reads YAML; each document is laid over the base of its kind.
func objects(t *testing.T, text string) []runtime.Object {
	t.Helper()
	var all []runtime.Object
	for doc := range strings.SplitSeq(text, "\n---\n") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		data, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		var kind struct{ Kind string }
		if err := json.Unmarshal(data, &kind); err != nil {
			t.Fatal(err)
		}
		base, err := yaml.YAMLToJSON([]byte(bases[kind.Kind]))
		if err != nil || len(base) < 5 {
			t.Fatalf("base of %q: %v", kind.Kind, err)
		}
		merged, err := jsonpatch.MergePatch(base, data)
		if err != nil {
			t.Fatal(err)
		}
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(merged, nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		m, _ := meta.Accessor(o)
		m.SetUID(types.UID("uid-" + strings.ToLower(kind.Kind) + "-" + m.GetName()))
		all = append(all, o)
	}
	return all
}

var bases = map[string]string{
	"Pod": `
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop, creationTimestamp: "2026-05-04T11:58:00Z", labels: {app: web}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-a, uid: uid-replicaset-web-a, controller: true}]}
spec: {nodeName: node-1, restartPolicy: Always, schedulerName: default-scheduler, containers: [{name: web, image: "shop/web:1"}]}
status: {phase: Running, conditions: [{type: PodScheduled, status: "True"}, {type: PodReadyToStartContainers, status: "True"}, {type: Ready, status: "True"}],
  containerStatuses: [{name: web, ready: true, started: true, state: {running: {startedAt: "2026-05-04T11:58:10Z"}}}]}`,
	"ReplicaSet": `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-a, namespace: shop, creationTimestamp: "2026-05-04T11:58:00Z", annotations: {deployment.kubernetes.io/revision: "1"}, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: uid-deployment-web, controller: true}]}
spec: {replicas: 1}`,
	"Deployment": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, generation: 1, creationTimestamp: "2026-05-04T11:58:00Z"}
spec: {replicas: 1, template: {metadata: {labels: {app: web}}}}
status: {observedGeneration: 1, updatedReplicas: 1}`,
	"StatefulSet": `
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop, creationTimestamp: "2026-05-04T11:58:00Z"}
spec: {replicas: 3, template: {metadata: {labels: {app: db}}}}`,
	"DaemonSet": `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: shop, generation: 1, creationTimestamp: "2026-05-04T11:58:00Z"}
spec: {template: {metadata: {labels: {app: agent}}}}
status: {observedGeneration: 1, desiredNumberScheduled: 0}`,
	"Job": `
apiVersion: batch/v1
kind: Job
metadata: {name: load, namespace: shop, creationTimestamp: "2026-05-04T11:58:00Z"}
spec: {}`,
	"CronJob": `
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: shop, creationTimestamp: "2026-05-04T11:58:00Z"}
spec: {schedule: "0 3 * * *"}`,
	"Service": `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, creationTimestamp: "2026-05-04T11:58:00Z"}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}`,
	"EndpointSlice": `
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-x, namespace: shop, labels: {kubernetes.io/service-name: web}}
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]`,
	"ResourceQuota": `
apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: shop}
status: {hard: {pods: "5"}, used: {pods: "5"}}`,
	"Node": `
apiVersion: v1
kind: Node
metadata: {name: node-1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}, conditions: [{type: Ready, status: "True"}]}`,
	"Event": `
apiVersion: v1
kind: Event
metadata: {name: e, namespace: shop}
involvedObject: {kind: Pod, namespace: shop, name: web-1}
type: Warning
lastTimestamp: "2026-05-04T11:59:00Z"`,
	"PersistentVolumeClaim": `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop, creationTimestamp: "2026-05-04T11:58:00Z"}
spec: {storageClassName: fast, resources: {requests: {storage: 10Gi}}}
status: {phase: Pending}`,
	"StorageClass": `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: disks.example
volumeBindingMode: Immediate`,
	"Secret": `
apiVersion: v1
kind: Secret
metadata: {name: db-pass, namespace: shop}
data: {user: eA==}`,
	"PersistentVolume": `
apiVersion: v1
kind: PersistentVolume
metadata: {name: v1}
spec: {persistentVolumeReclaimPolicy: Delete, claimRef: {namespace: shop, name: data}}`,
	"PodDisruptionBudget": `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: keep, namespace: shop}
spec: {selector: {matchLabels: {app: web}}}
status: {disruptionsAllowed: 1}`,
	"Ingress": `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: door, namespace: shop}`,
	"ServiceAccount": `
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: shop}`,
}

func notPlaced(message string) string {
	return `
status: {phase: Pending, containerStatuses: null, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "` + message + `"}]}`
}

func waitingFor(reason, message string) string {
	return `
status: {phase: Pending, conditions: [{type: PodScheduled, status: "True"}, {type: PodReadyToStartContainers, status: "True"}, {type: Ready, status: "False"}],
  containerStatuses: [{name: web, state: {waiting: {reason: ` + reason + `, message: '` + message + `'}}}]}`
}

func endedWith(fields string) string {
	return `
status: {conditions: [{type: PodScheduled, status: "True"}, {type: Ready, status: "False"}],
  containerStatuses: [{name: web, restartCount: 3, state: {waiting: {reason: CrashLoopBackOff, message: back-off}}, lastState: {terminated: {` + fields + `, finishedAt: "2026-05-04T11:59:00Z"}}}]}`
}

const notReady = `
status: {conditions: [{type: PodScheduled, status: "True"}, {type: Ready, status: "False"}],
  containerStatuses: [{name: web, started: true, ready: false, state: {running: {startedAt: "2026-05-04T11:58:10Z"}}}]}`

const around = "kind: Deployment\n---\nkind: ReplicaSet\n---\n"

// The first link that is not passed, in each way in which it can break.
var cases = []struct {
	name    string
	of      string // resource[.group]/name
	objects string
	denied  []string
	want    string // of the first link: its findings
}{
	{"all is well", "deployments.apps/web", around + "kind: Pod\n---\nkind: Service\n---\nkind: EndpointSlice", nil, "ok"},
	{"quota", "deployments.apps/web", `
kind: Deployment
status: {conditions: [{type: ReplicaFailure, status: "True", reason: FailedCreate, message: 'pods "web-1" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=5'}]}
---
kind: ReplicaSet
---
kind: ResourceQuota`, nil, `quota broken: quotaExceeded hard=5 quota=q resource=pods used=5 want=1 > raiseQuota kubectl patch resourcequota q -n shop --type=merge -p '{"spec":{"hard":{"pods":"MORE"}}}' > freeQuota kubectl get pods -n shop`},
	{"quota that may not be read", "deployments.apps/web", around + `
kind: Event
involvedObject: {kind: ReplicaSet, name: web-a}
reason: FailedCreate
message: 'Error creating: pods "web-1" is forbidden: exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=3, limited: requests.cpu=4'`, []string{"resourcequotas"}, `quota broken: quotaExceeded hard=4 quota=q resource=requests.cpu used=3 want=2 > raiseQuota kubectl patch resourcequota q -n shop --type=merge -p '{"spec":{"hard":{"requests.cpu":"MORE"}}}' > freeQuota kubectl get pods -n shop > lowerResources`},
	{"quota wants requests", "deployments.apps/web", around + `
kind: Event
involvedObject: {kind: ReplicaSet, name: web-a}
reason: FailedCreate
message: 'Error creating: pods "web-1" is forbidden: failed quota: q: must specify limits.memory for: web'`, nil, "quota broken: quotaNeeds quota=q what=limits.memory for: web > setResources kubectl set resources deployment/web -n shop --requests=cpu=100m,memory=128Mi --limits=cpu=500m,memory=256Mi"},
	{"service account", "statefulsets.apps/db", `
kind: StatefulSet
---
kind: Event
involvedObject: {kind: StatefulSet, name: db}
reason: FailedCreate
message: 'create Pod db-0 in StatefulSet db failed error: pods "db-0" is forbidden: error looking up service account shop/db: serviceaccount "db" not found'`, nil, "admission broken: noAccount account=db > createAccount kubectl create serviceaccount db -n shop"},
	{"pod security", "replicasets.apps/web-a", `
kind: ReplicaSet
---
kind: Event
involvedObject: {kind: ReplicaSet, name: web-a}
reason: FailedCreate
message: 'Error creating: pods "web-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true'`, nil, "admission broken: podSecurity > podSecurity"},
	{"webhook is down", "replicasets.apps/web-a", `
kind: ReplicaSet
---
kind: Event
involvedObject: {kind: ReplicaSet, name: web-a}
reason: FailedCreate
message: 'Error creating: Internal error occurred: failed calling webhook "check.example": connection refused'`, nil, "admission broken: webhookDown webhook=check.example > webhookDown kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations"},
	{"old complaint", "replicasets.apps/web-a", `
kind: ReplicaSet
---
kind: Pod
---
kind: Event
involvedObject: {kind: ReplicaSet, name: web-a}
reason: FailedCreate
message: 'exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5'`, nil, "ok"},
	{"controllers are away", "deployments.apps/web", "kind: Deployment\nstatus: {observedGeneration: 0}", nil, "controller broken: controllerSilent made=0 want=1 > controllerSilent kubectl get pods -n kube-system"},
	{"paused", "deployments.apps/web", "kind: Deployment\nspec: {paused: true}", nil, "controller waiting: paused > resume kubectl rollout resume deployment/web -n shop"},
	{"scaled to none", "deployments.apps/web", "kind: Deployment\nspec: {replicas: 0}\n---\nkind: ReplicaSet\nspec: {replicas: 0}", nil, "ok"},
	{"no node for a DaemonSet", "daemonsets.apps/agent", "kind: DaemonSet", nil, "controller waiting: noNodes > noNodes"},
	{"no room", "pods/web-1", "kind: Pod\nspec: {nodeName: null, containers: [{name: web, image: x, resources: {requests: {cpu: 3500m}}}]}" + notPlaced("0/2 nodes are available: 1 node(s) had untolerated taint {dedicated: db}, 1 Insufficient cpu. preemption: 0/2 nodes are available") + `
---
kind: Node
---
kind: Node
metadata: {name: node-2}
spec: {taints: [{key: dedicated, value: db, effect: NoSchedule}]}
---
kind: Pod
metadata: {name: other}
spec: {containers: [{name: x, image: x, resources: {requests: {cpu: 800m}}}]}
---
kind: ReplicaSet
---
kind: Deployment`, nil, "scheduling broken: noRoom largest=4 most=3.2 node=node-1 nodes=1 resource=cpu want=3.5 > lowerRequest kubectl set resources deployment/web -n shop --requests=cpu=3.2 > addNode"},
	{"taints, the control plane's first", "pods/web-1", "kind: Pod\nspec: {nodeName: null}" + notPlaced("0/1 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }. preemption: not helpful.") + "\n---\nkind: Node\nspec: {taints: [{key: node-role.kubernetes.io/control-plane, effect: NoSchedule}]}", nil, "scheduling broken: taint key=node-role.kubernetes.io/control-plane node=node-1 nodes=1 taint=node-role.kubernetes.io/control-plane:NoSchedule value= > tolerate > untaint kubectl taint node node-1 node-role.kubernetes.io/control-plane:NoSchedule-"},
	{"taints that the scheduler does not name", "pods/web-1", "kind: Pod\nspec: {nodeName: null}" + notPlaced("0/1 nodes are available: 1 node(s) had untolerated taint(s). no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.") + "\n---\nkind: Node\nspec: {taints: [{key: dedicated, value: db, effect: NoSchedule}]}", nil, "scheduling broken: taint key=dedicated node=node-1 nodes=1 taint=dedicated=db:NoSchedule value=db > tolerate > untaint kubectl taint node node-1 dedicated=db:NoSchedule-"},
	{"taints of which nothing is known", "pods/web-1", "kind: Pod\nspec: {nodeName: null}" + notPlaced("0/1 nodes are available: 1 node(s) had untolerated taint(s)."), []string{"nodes"}, "scheduling broken: refused node=NODE nodes=1 reason=node(s) had untolerated taint(s)"},
	{"the full node of a DaemonSet's pod", "pods/web-1", "kind: Pod\nspec: {nodeName: null, containers: [{name: web, image: x, resources: {requests: {memory: 9Gi}}}]}" + notPlaced("0/3 nodes are available: 1 Insufficient memory, 2 node(s) didn't match Pod's node affinity/selector. preemption: x") + "\n---\nkind: Node\nstatus: {allocatable: {memory: 8052228Ki}}", nil, "scheduling broken: tooLarge largest=7863Mi most=7863Mi node=node-1 nodes=1 resource=memory want=9Gi > lowerRequest > addNode"},
	{"larger than any node", "deployments.apps/web", around + "kind: Pod\nspec: {nodeName: null, containers: [{name: web, image: x, resources: {requests: {cpu: 64}}}]}" + notPlaced("0/1 nodes are available: 1 Insufficient cpu.") + "\n---\nkind: Node", nil, "scheduling broken: tooLarge largest=4 most=4 node=node-1 nodes=1 resource=cpu want=64 > lowerRequest kubectl set resources deployment/web -n shop --requests=cpu=4 > addNode"},
	{"nodes may not be read", "pods/web-1", "kind: Pod\nspec: {nodeName: null}" + notPlaced("0/1 nodes are available: 1 Insufficient memory."), []string{"nodes"}, "scheduling broken: noRoomAnywhere largest=- most=- node=- nodes=1 resource=memory want=0 > lowerResources > addNode"},
	{"node selector", "pods/web-1", "kind: Pod\nspec: {nodeName: null, nodeSelector: {disk: ssd}}" + notPlaced("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.") + "\n---\nkind: Node", nil, "scheduling broken: nodeSelector node=node-1 nodes=1 reason=node(s) didn't match Pod's node affinity/selector selector=disk=ssd > labelNode kubectl label node node-1 disk=ssd > nodeSelector"},
	{"cordoned", "pods/web-1", "kind: Pod\nspec: {nodeName: null}" + notPlaced("0/1 nodes are available: 1 node(s) were unschedulable.") + "\n---\nkind: Node\nspec: {unschedulable: true}", nil, "scheduling broken: cordoned node=node-1 nodes=1 reason=node(s) were unschedulable > uncordon kubectl uncordon node-1"},
	{"gated", "pods/web-1", "kind: Pod\nspec: {nodeName: null, schedulingGates: [{name: example.com/wait}]}\nstatus: {phase: Pending, containerStatuses: null, conditions: null}", nil, "scheduling waiting: gated gates=example.com/wait > gated"},
	{"no scheduler", "pods/web-1", "kind: Pod\nspec: {nodeName: null, schedulerName: mine}\nstatus: {phase: Pending, containerStatuses: null, conditions: null}", nil, "scheduling broken: noScheduler scheduler=mine > noScheduler"},
	{"Secret of a variable", "deployments.apps/web", around + "kind: Pod\nspec: {containers: [{name: web, image: x, env: [{name: P, valueFrom: {secretKeyRef: {name: db-pass, key: password}}}]}]}" + waitingFor("CreateContainerConfigError", `secret "db-pass" not found`), nil, "volumes broken: missing kind=Secret name=db-pass > create kubectl create secret generic db-pass -n shop --from-literal=password=VALUE"},
	{"key of a Secret", "pods/web-1", "kind: Secret\n---\nkind: Pod\nspec: {containers: [{name: web, image: x, env: [{name: P, valueFrom: {secretKeyRef: {name: db-pass, key: password}}}]}]}" + waitingFor("CreateContainerConfigError", `couldn''t find key password in Secret shop/db-pass`), nil, "volumes broken: missingKey key=password kind=Secret name=db-pass > addKey kubectl edit secret db-pass -n shop"},
	{"Secret that may not be read", "pods/web-1", "kind: Pod\nspec: {containers: [{name: web, image: x, envFrom: [{secretRef: {name: db-pass}}]}]}" + waitingFor("CreateContainerConfigError", `secret "db-pass" not found`), []string{"secrets"}, "volumes broken: inputsFailed > inputsFailed kubectl describe pod web-1 -n shop"},
	{"ConfigMap of a volume", "pods/web-1", "kind: Pod\nspec: {volumes: [{name: conf, configMap: {name: settings}}]}" + strings.Replace(waitingFor("ContainerCreating", ""), `PodReadyToStartContainers, status: "True"`, `PodReadyToStartContainers, status: "False"`, 1) + `
---
kind: Event
reason: FailedMount
message: 'MountVolume.SetUp failed for volume "conf" : configmap "settings" not found'`, nil, "volumes broken: missing kind=ConfigMap name=settings > create kubectl create configmap settings -n shop --from-literal=KEY=VALUE"},
	{"claim is not there", "pods/web-1", "kind: Pod\nspec: {nodeName: null, volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}" + notPlaced(`0/1 nodes are available: persistentvolumeclaim 'data' not found.`), nil, "volumes broken: missing kind=PersistentVolumeClaim name=data > createClaim"},
	{"class is not there", "pods/web-1", "kind: Pod\nspec: {nodeName: null, volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}" + notPlaced(`0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.`) + "\n---\nkind: PersistentVolumeClaim", nil, "volumes broken: noClass class=fast classes= name=data size=10Gi volume= > setClass"},
	{"claim: class is not there", "persistentvolumeclaims/data", "kind: PersistentVolumeClaim\n---\nkind: StorageClass\nmetadata: {name: slow}", nil, "claim broken: noClass class=fast classes=slow name=data size=10Gi volume= > setClass"},
	{"claim: no default class", "persistentvolumeclaims/data", "kind: PersistentVolumeClaim\nspec: {storageClassName: null}\n---\nkind: StorageClass\nmetadata: {name: slow}", nil, "claim broken: noDefaultClass class= classes=slow name=data size=10Gi volume= > setClass"},
	{"claim: waits for a pod", "persistentvolumeclaims/data", "kind: PersistentVolumeClaim\n---\nkind: StorageClass\nvolumeBindingMode: WaitForFirstConsumer", nil, "claim waiting: claimUnused class=fast classes=fast name=data size=10Gi volume="},
	{"claim: provisioning failed", "persistentvolumeclaims/data", `
kind: PersistentVolumeClaim
---
kind: StorageClass
---
kind: Event
involvedObject: {kind: PersistentVolumeClaim, name: data}
reason: ProvisioningFailed
message: quota of disks is used up`, nil, "claim broken: provisioningFailed class=fast classes=fast name=data size=10Gi volume= > provisioner kubectl describe pvc data -n shop"},
	{"claim: nobody provisions", "persistentvolumeclaims/data", "kind: PersistentVolumeClaim\nmetadata: {creationTimestamp: \"2026-05-04T11:50:00Z\"}\n---\nkind: StorageClass", nil, "claim broken: provisionerSilent class=fast classes=fast name=data provisioner=disks.example size=10Gi volume= > provisioner kubectl describe pvc data -n shop"},
	{"claim: no volume fits", "persistentvolumeclaims/data", "kind: PersistentVolumeClaim\nspec: {storageClassName: \"\"}", nil, "claim broken: noVolume class= classes= name=data size=10Gi volume= > makeVolume"},
	{"claim is bound", "persistentvolumeclaims/data", "kind: PersistentVolumeClaim\nspec: {volumeName: pv-1}\nstatus: {phase: Bound}", nil, "ok"},
	{"node is down", "pods/web-1", "kind: Pod\nstatus: {phase: Pending, containerStatuses: null, conditions: [{type: PodScheduled, status: \"True\"}]}\n---\nkind: Node\nstatus: {conditions: [{type: Ready, status: Unknown, reason: NodeStatusUnknown, message: Kubelet stopped posting node status.}]}", nil, "sandbox broken: nodeDown node=node-1 > nodeDown kubectl describe node node-1"},
	{"sandbox", "pods/web-1", "kind: Pod\nstatus: {phase: Pending, containerStatuses: null, conditions: [{type: PodScheduled, status: \"True\"}]}\n---\nkind: Node\n---\nkind: Event\nreason: FailedCreatePodSandBox\nmessage: 'no address left'", nil, "sandbox broken: sandboxFailed node=node-1 > sandbox kubectl describe node node-1"},
	{"image not found", "deployments.apps/web", around + "kind: Pod" + waitingFor("ImagePullBackOff", `Back-off pulling image "shop/web:1": shop/web:1: not found`), nil, "image broken: imageNotFound container=web image=shop/web:1 > setImage kubectl set image deployment/web -n shop web=IMAGE"},
	{"image not found, told by the event", "pods/web-1", "kind: Deployment\n---\nkind: ReplicaSet\n---\nkind: Pod" + waitingFor("ImagePullBackOff", `Back-off pulling image "shop/web:1"`) + "\n---\nkind: Event\nreason: Failed\nmessage: 'Failed to pull image \"shop/web:1\": manifest unknown'", nil, "image broken: imageNotFound container=web image=shop/web:1 > setImage kubectl set image deployment/web -n shop web=IMAGE"},
	{"image denied", "pods/web-1", "kind: Pod" + waitingFor("ErrImagePull", `pull access denied, repository does not exist or may require authorization`), nil, "image broken: imageDenied container=web image=shop/web:1 > pullSecret kubectl create secret docker-registry NAME -n shop --docker-server=SERVER --docker-username=USER --docker-password=PASSWORD > setImage"},
	{"registry unreachable", "pods/web-1", "kind: Pod" + waitingFor("ErrImagePull", `dial tcp: lookup registry.example: no such host`), nil, "image broken: imageUnreachable container=web image=shop/web:1 > registry > setImage"},
	{"image name", "pods/web-1", "kind: Pod" + waitingFor("InvalidImageName", `couldn''t parse image name`), nil, "image broken: imageInvalid container=web image=shop/web:1 > setImage"},
	{"image is never pulled", "pods/web-1", "kind: Pod" + waitingFor("ErrImageNeverPull", `not present with pull policy of Never`), nil, "image broken: imageNever container=web image=shop/web:1 > pullPolicy > setImage"},
	{"exits", "deployments.apps/web", around + "kind: Pod" + endedWith("exitCode: 1, reason: Error, message: 'no database'"), nil, "start broken: exits code=1 container=web restarts=3 > logs kubectl logs web-1 -n shop -c web --previous"},
	{"out of memory", "deployments.apps/web", around + "kind: Pod\nspec: {containers: [{name: web, image: x, resources: {limits: {memory: 64Mi}}}]}" + endedWith("exitCode: 137, reason: OOMKilled"), nil, "start broken: oom code=137 container=web limit=64Mi restarts=3 > memoryLimit kubectl set resources deployment/web -n shop -c web --limits=memory=MORE"},
	{"no such command", "pods/web-1", "kind: Pod" + endedWith(`exitCode: 128, reason: StartError, message: 'exec: "serve": executable file not found in $PATH'`), nil, "start broken: noCommand code=128 container=web restarts=3 > command > logs kubectl logs web-1 -n shop -c web --previous"},
	{"ends by itself", "pods/web-1", "kind: Pod" + endedWith("exitCode: 0, reason: Completed"), nil, "start broken: endsByItself code=0 container=web restarts=3 > keepRunning > logs kubectl logs web-1 -n shop -c web --previous"},
	{"container cannot be made", "pods/web-1", "kind: Pod" + waitingFor("CreateContainerError", `container name is reserved`), nil, "start broken: startFailed container=web reason=CreateContainerError > startFailed kubectl describe pod web-1 -n shop"},
	{"evicted", "pods/web-1", "kind: Pod\nstatus: {phase: Failed, reason: Evicted, message: The node was low on resource memory}", nil, "start broken: evicted node=node-1 > evicted"},
	{"stuck in its deletion", "pods/web-1", "kind: Pod\nmetadata: {deletionTimestamp: \"2026-05-04T11:50:00Z\"}", nil, "start broken: stuckTerminating node=node-1 > forceDelete kubectl delete pod web-1 -n shop --grace-period=0 --force"},
	{"readiness", "deployments.apps/web", around + "kind: Pod\nspec: {containers: [{name: web, image: x, ports: [{containerPort: 8080}], readinessProbe: {httpGet: {path: /ready, port: 80}, periodSeconds: 5, failureThreshold: 3}}]}" + notReady + "\n---\nkind: Event\nreason: Unhealthy\nmessage: 'Readiness probe failed: HTTP probe failed with statuscode: 503'\ninvolvedObject: {fieldPath: 'spec.containers{web}'}", nil, "probes broken: readiness container=web kind=readiness probe=GET http://:80/ready > probePort > probe > logs kubectl logs web-1 -n shop -c web"},
	{"readiness has time", "pods/web-1", "kind: Pod\nspec: {containers: [{name: web, image: x, readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 100, failureThreshold: 3}}]}" + notReady, nil, "probes waiting: probeWaiting container=web kind=readiness probe=tcp :80"},
	{"liveness", "pods/web-1", "kind: Pod\nspec: {containers: [{name: web, image: x, livenessProbe: {exec: {command: [check]}}}]}" + strings.Replace(notReady, "ready: false,", "ready: false, restartCount: 4, lastState: {terminated: {exitCode: 137, reason: Error}},", 1) + "\n---\nkind: Event\nreason: Unhealthy\nmessage: 'Liveness probe failed: sick'\n---\nkind: Event\nmetadata: {name: f}\nreason: Killing\nmessage: Container web failed liveness probe, will be restarted", nil, "probes broken: liveness container=web kind=liveness probe=exec check > probe > logs kubectl logs web-1 -n shop -c web"},
	{"readiness gate", "pods/web-1", "kind: Pod\nspec: {readinessGates: [{conditionType: example.com/lb}]}\nstatus: {conditions: [{type: PodScheduled, status: \"True\"}, {type: Ready, status: \"False\"}]}", nil, "probes waiting: readinessGate gate=example.com/lb > readinessGate"},
	{"job failed", "jobs.batch/load", "kind: Job\nstatus: {failed: 2, conditions: [{type: Failed, status: \"True\", reason: BackoffLimitExceeded, message: Job has reached the specified backoff limit}]}\n---\nkind: Pod\nmetadata: {name: load-1, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: load, uid: uid-job-load, controller: true}]}\nspec: {restartPolicy: Never}\nstatus: {phase: Failed, containerStatuses: [{name: web, state: {terminated: {exitCode: 2, reason: Error}}}]}", nil, "start broken: exits code=2 container=web restarts=0 > logs kubectl logs load-1 -n shop -c web"},
	{"job failed, pods are gone", "jobs.batch/load", "kind: Job\nstatus: {failed: 2, conditions: [{type: Failed, status: \"True\", reason: BackoffLimitExceeded, message: Job has reached the specified backoff limit}]}", nil, "start broken: jobFailed failed=2 reason=BackoffLimitExceeded succeeded=0 > jobFailed kubectl logs -n shop job/load"},
	{"cron job is suspended", "cronjobs.batch/nightly", "kind: CronJob\nspec: {suspend: true}", nil, `jobs waiting: cronSuspended schedule=0 3 * * * > resumeCron kubectl patch cronjob nightly -n shop --type=merge -p '{"spec":{"suspend":false}}'`},
	{"cron job never ran", "cronjobs.batch/nightly", "kind: CronJob", nil, "ok"},
	{"selector with a slip", "services/web", around + "kind: Pod\n---\nkind: Service\nspec: {selector: {app: webb}}", nil, "selector broken: selectsNearly kind=Deployment labels=app=web name=web pods=0 selector=app=webb workload=web > selector kubectl set selector service web app=web -n shop"},
	{"selector with a slip, from the Deployment", "deployments.apps/web", around + "kind: Pod\n---\nkind: Service\nspec: {selector: {app: webb}}", nil, "endpoints broken: selectsNearly kind=Deployment labels=app=web name=web pods=0 selector=app=webb workload=web > selector kubectl set selector service web app=web -n shop"},
	{"selector of nothing", "services/web", "kind: Service\nspec: {selector: {app: gone}}", nil, "selector broken: selectsNothing name=web pods=0 selector=app=gone > selector kubectl edit service web -n shop"},
	{"selector of what is scaled to none", "services/web", "kind: Service\n---\nkind: Deployment\nspec: {replicas: 0}", nil, "ok"},
	{"no such port", "services/web", around + "kind: Pod\nspec: {containers: [{name: web, image: x, ports: [{name: http, containerPort: 8080}]}]}\n---\nkind: Service\nspec: {ports: [{port: 80, targetPort: htp}]}", nil, "endpoints broken: noSuchPort declared=http (8080) port=htp servicePort=80 > targetPort kubectl edit service web -n shop"},
	{"pods are not ready", "services/web", around + "kind: Pod" + notReady + "\n---\nkind: Service", nil, "probes broken: noneReady kind=Deployment pods=1 ready=0 selector=app=web workload=web > seeWorkload"},
	{"no endpoints yet", "services/web", around + "kind: Pod\n---\nkind: Service", nil, "endpoints waiting: endpointsLag addresses=0 ready=1 service=web > controllerSilent kubectl get pods -n kube-system"},
	{"pods may not be read", "services/web", "kind: Service", []string{"pods"}, "ok, but selector is not known: mayNot resource=pods verb=list"},
}

func refOf(t *testing.T, text string) api.ObjectRef {
	t.Helper()
	resource, name, _ := strings.Cut(text, "/")
	resource, group, _ := strings.Cut(resource, ".")
	return api.ObjectRef{Group: group, Resource: resource, Namespace: "shop", Name: name}
}

// tell puts a chain into a line: where it breaks, what of, and the mends.
func tell(w *api.Why) string {
	link, finding := first(w)
	if w.State == api.WhyOK {
		for _, l := range w.Links {
			if l.State == api.WhyUnknown {
				return "ok, but " + l.Name + " is not known: " + sentence(l.Findings[0])
			}
		}
		return "ok"
	}
	return fmt.Sprintf("%s %s: %s", link, w.State, sentence(finding))
}

func sentence(f api.Finding) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(f.Params)) {
		if name != "message" && name != "field" && name != "namespace" {
			words = append(words, name+"="+f.Params[name])
		}
	}
	out := strings.TrimSpace(f.Code + " " + strings.Join(words, " "))
	for _, m := range f.Mends {
		out += " > " + strings.TrimSpace(m.Code+" "+m.Command)
	}
	return out
}

func TestChains(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w, err := Explain(shelf{objects(t, c.objects), c.denied}.reader(), refOf(t, c.of), now)
			if err != nil {
				t.Fatal(err)
			}
			inCatalogue(t, w)
			if got := tell(w); got != c.want {
				t.Errorf("got\n  %s\nwant\n  %s", got, c.want)
			}
		})
	}
}

// What some of the pods have passed is not "not reached", and what is the same
// of several pods is told once.
func TestManyPods(t *testing.T) {
	pod := func(name, more string) string { return "\n---\nkind: Pod\nmetadata: {name: " + name + "}" + more }
	w, err := Explain(shelf{objects: objects(t, "kind: Deployment\nspec: {replicas: 5}\n---\nkind: ReplicaSet\nspec: {replicas: 5}"+
		pod("web-1", "\nspec: {nodeName: node-2}")+pod("web-2", waitingFor("ErrImagePull", "not found"))+pod("web-3", waitingFor("ImagePullBackOff", "not found"))+pod("web-4", notReady)+
		"\n---\nkind: Event\ninvolvedObject: {kind: ReplicaSet, name: web-a}\nreason: FailedCreate\nmessage: 'pods is forbidden: exceeded quota: q, requested: pods=1, used: pods=4, limited: pods=4'")}.reader(), refOf(t, "deployments.apps/web"), now)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"quota broken 0", "admission notReached", "controller notReached", "scheduling ok 4", "volumes ok 4", "sandbox ok 4", "image broken 2 ok 2", "start ok 2", "probes waiting 1 ok 1", "endpoints notReached"}
	var got []string
	for _, l := range w.Links {
		line := l.Name + " " + string(l.State)
		for i, f := range l.Findings {
			if i > 0 {
				line += " " + string(f.State)
			}
			line += fmt.Sprintf(" %d", f.PodCount)
		}
		got = append(got, line)
	}
	if code := w.Links[3].Findings[0].Code; !slices.Equal(got, want) || code != "passed.scheduling" { // on several nodes
		t.Errorf("got  %q, %s\nwant %q", got, code, want)
	}
}

func TestFind(t *testing.T) {
	everything := "kind: Pod\nmetadata: {name: lonely, ownerReferences: null}" + waitingFor("ErrImagePull", "not found") +
		"\n---\nkind: Pod\nmetadata: {name: fine, ownerReferences: null}" +
		"\n---\nkind: Pod\nmetadata: {name: odd-1, ownerReferences: [{apiVersion: example.com/v1, kind: Game, name: g, uid: u, controller: true}]}" + endedWith("exitCode: 1") +
		"\n---\nkind: Pod\nmetadata: {name: odd-2, ownerReferences: [{apiVersion: example.com/v1, kind: Game, name: g, uid: u, controller: true}]}" + endedWith("exitCode: 1") +
		"\n---\n" + around + "kind: Pod" + endedWith("exitCode: 1") + "\n---\nkind: Pod\nmetadata: {name: web-2}" + endedWith("exitCode: 1") +
		"\n---\nkind: Service\n---\nkind: Service\nmetadata: {name: slip, namespace: shop}\nspec: {selector: {app: wbe}}" +
		"\n---\nkind: Deployment\nmetadata: {name: elsewhere, namespace: other}\nstatus: {observedGeneration: 0}"
	for _, c := range []struct {
		name       string
		namespaces []string
		denied     []string
		want       []string
		unread     int
	}{
		{"everywhere", nil, nil, []string{"Deployment/elsewhere controller", "Deployment/web start", "Pod/lonely image", "Pod/odd-1 start", "Service/slip selector"}, 0},
		{"one namespace", []string{"other"}, nil, []string{"Deployment/elsewhere controller"}, 0},
		{"not all namespaces", nil, []string{"pods@", "pods@other", "deployments@"}, []string{"Deployment/web start", "Pod/lonely image", "Pod/odd-1 start", "Service/slip selector"}, 0},
		{"no deployments", []string{"shop"}, []string{"deployments"}, []string{"Pod/lonely image", "Pod/odd-1 start", "Service/slip selector"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			found, err := Find(shelf{objects(t, everything), c.denied}.reader(), c.namespaces, now)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, item := range found.Items {
				got = append(got, item.Object.Kind+"/"+item.Object.Name+" "+item.Link)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) || len(found.Unread) != c.unread {
				t.Errorf("got %q, %d unread\nwant %q, %d", got, len(found.Unread), c.want, c.unread)
			}
		})
	}
}

// A rollout that gets nowhere is a trouble though the pods before it serve on.
func TestFindOfAStuckRollout(t *testing.T) {
	stuck := "kind: Deployment\nstatus: {replicas: 2, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1}\n---\nkind: ReplicaSet\n---\nkind: Pod" + waitingFor("ErrImagePull", "not found")
	found, err := Find(shelf{objects: objects(t, stuck)}.reader(), []string{"shop"}, now)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Items) != 1 || found.Items[0].Link != "image" || found.Items[0].Object.Kind != "Deployment" {
		t.Errorf("found %+v", found.Items)
	}
}

// inCatalogue checks that the faces have words for all that a chain says, in
// every language, and that it has all that these words need.
func inCatalogue(t *testing.T, w *api.Why) {
	t.Helper()
	check := func(key string, params map[string]string) {
		for _, language := range words.Languages {
			text, ok := words.In(language)[key]
			if !ok {
				t.Errorf("no text for %s in %s", key, language)
			}
			for _, hole := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(text, -1) {
				if _, ok := params[hole[1]]; !ok {
					t.Errorf("%s in %s needs %q, and has %v", key, language, hole[1], params)
				}
			}
		}
	}
	for _, l := range w.Links {
		check("why.link."+l.Name, nil)
		check("why.state."+string(l.State), nil)
		for _, f := range l.Findings {
			check("why.f."+f.Code, f.Params)
			for _, m := range f.Mends {
				check("why.mend."+m.Code, m.Params)
			}
		}
	}
}

// Codes that no test above comes by have words, too.
func TestCatalogue(t *testing.T) {
	files, _ := filepath.Glob("*.go")
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil || strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:(broken|waiting|fine|Code = )|(mend|change))\(?"(\w+)"`).FindAllStringSubmatch(string(source), -1) {
			prefix := "why.f."
			if m[2] != "" {
				prefix = "why.mend."
			}
			for _, language := range words.Languages {
				if _, ok := words.In(language)[prefix+m[3]]; !ok && m[3] != "passed" {
					t.Errorf("%s: no text for %s%s in %s", file, prefix, m[3], language)
				}
			}
		}
	}
}

// BenchmarkFind looks for troubles among 10,000 pods on 5,000 nodes, a tenth of
// them broken.
func BenchmarkFind(b *testing.B) {
	var all []runtime.Object
	add := func(t *testing.T, text string) { all = append(all, objects(t, text)...) }
	t := &testing.T{}
	for d := range 1000 {
		name := fmt.Sprintf("d%d", d)
		add(t, fmt.Sprintf("kind: Deployment\nmetadata: {name: %s}\nspec: {replicas: 10, template: {metadata: {labels: {app: %s}}}}\nstatus: {updatedReplicas: 10, availableReplicas: %d}", name, name, min(d%10, 1)*10))
		add(t, fmt.Sprintf("kind: ReplicaSet\nmetadata: {name: %s-a, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: %s, uid: uid-deployment-%s, controller: true}]}\nspec: {replicas: 10}", name, name, name))
		add(t, fmt.Sprintf("kind: Service\nmetadata: {name: %s}\nspec: {selector: {app: %s}}", name, name))
		state := ""
		switch d % 20 {
		case 0:
			state = endedWith("exitCode: 1")
		case 10:
			state = "\nspec: {nodeName: null, containers: [{name: web, image: x, resources: {requests: {cpu: 64}}}]}" + notPlaced("0/5000 nodes are available: 5000 Insufficient cpu.")
		}
		for p := range 10 {
			add(t, fmt.Sprintf("kind: Pod\nmetadata: {name: %s-%d, labels: {app: %s}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: %s-a, uid: uid-replicaset-%s-a, controller: true}]}%s", name, p, name, name, name, state))
		}
	}
	for n := range 5000 {
		add(t, fmt.Sprintf("kind: Node\nmetadata: {name: node-%d}", n))
	}
	lists := map[string][]runtime.Object{}
	for _, o := range all {
		plural, _ := meta.UnsafeGuessKindToResource(o.GetObjectKind().GroupVersionKind())
		lists[plural.Resource] = append(lists[plural.Resource], o)
	}
	reader := Reader{List: func(k schema.GroupVersionResource, _ string) ([]runtime.Object, error) { return lists[k.Resource], nil },
		Get: func(k schema.GroupVersionResource, _, name string) (runtime.Object, error) {
			return nil, apierrors.NewNotFound(k.GroupResource(), name)
		}}
	for b.Loop() {
		found, err := Find(reader, nil, now)
		if err != nil || len(found.Items) != 100 {
			b.Fatalf("%v: %d troubles", err, len(found.Items))
		}
	}
}
