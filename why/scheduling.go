package why

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"orrery.dev/api"
	"orrery.dev/scheduler/plugins"
)

// schedulerPatience is how long a scheduler may leave a pod unmentioned.
const schedulerPatience = 30 * time.Second

// scheduling is whether and why not a pod has a node.
func (f *facts) scheduling(pod *corev1.Pod, t target) []api.Finding {
	said := api.PodCondition(pod, corev1.PodScheduled)
	switch {
	case pod.Spec.NodeName != "":
		return []api.Finding{fine("scheduled", params("node", pod.Spec.NodeName), condition(pod, corev1.PodScheduled))}
	case len(pod.Spec.SchedulingGates) > 0:
		var gates []string
		for _, g := range pod.Spec.SchedulingGates {
			gates = append(gates, g.Name)
		}
		p := params("gates", strings.Join(gates, ", "))
		return []api.Finding{mended(waiting("gated", p, condition(pod, corev1.PodScheduled)), mend("gated", p))}
	case said == nil || said.Status != corev1.ConditionFalse:
		p := params("scheduler", pod.Spec.SchedulerName)
		if f.now.Sub(pod.CreationTimestamp.Time) < schedulerPatience {
			return []api.Finding{waiting("scheduling", p)}
		}
		return []api.Finding{mended(broken("noScheduler", p, condition(pod, corev1.PodScheduled)), mend("noScheduler", p))}
	}
	return f.refusals(pod, said, t)
}

var counted = regexp.MustCompile(`^(\d+) (.+)$`)

// reasons takes the scheduler's message apart: "0/3 nodes are available: 1
// node(s) had untolerated taint {a: b}, 2 Insufficient cpu. preemption: …".
func reasons(message string) map[string]int {
	_, list, found := strings.Cut(message, " nodes are available: ")
	if !found {
		return map[string]int{message: 0}
	}
	// What comes after the first sentence is about preemption.
	list, _, _ = strings.Cut(list+" ", ". ")
	counts := map[string]int{}
	for part := range strings.SplitSeq(list, ", ") {
		if m := counted.FindStringSubmatch(part); m != nil {
			n, _ := strconv.Atoi(m[1])
			counts[m[2]] = n
		} else {
			counts[part] = 0
		}
	}
	return counts
}

// weight orders reasons: what runs out is what a pod waits for; nodes that it is
// not meant for come last, however many there are.
func weight(reason string) int {
	switch {
	case strings.HasPrefix(reason, "Insufficient "):
		return 0
	case strings.Contains(reason, "node affinity/selector"):
		return 2
	}
	return 1
}

// untolerated begins a reason that names the taint, as older schedulers do.
const untolerated = "node(s) had untolerated taint {"

// namedTaints puts the taints that nodes have where the scheduler names none.
func namedTaints(counts map[string]int, nodes map[string][]*plugins.Node) {
	for reason, about := range nodes {
		if _, some := counts[plugins.Untolerated]; some && strings.HasPrefix(reason, untolerated) {
			counts[reason] = len(about)
		}
	}
	if slices.ContainsFunc(slices.Collect(maps.Keys(counts)), func(reason string) bool { return strings.HasPrefix(reason, untolerated) }) {
		delete(counts, plugins.Untolerated)
	}
}

// refusals is one finding for each reason that the scheduler gave, the most
// telling first, with the nodes that gave it: these are asked again, as the
// scheduler asks them.
func (f *facts) refusals(pod *corev1.Pod, said *corev1.PodCondition, t target) []api.Finding {
	// Pods of one template get one answer.
	name := indexName{place{podKind, pod.Namespace}, "refusals of " + t.Kind + "/" + t.Name + ": " + said.Message}
	if known, ok := f.indexes[name]; ok {
		return known.([]api.Finding)
	}
	counts := reasons(said.Message)
	nodes, refused := f.judge(pod)
	namedTaints(counts, nodes)
	var out []api.Finding
	for _, reason := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(weight(a), weight(b)), cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	}) {
		about := nodes[reason]
		finding := refusal(pod, t, reason, about)
		finding.Params["nodes"] = fmt.Sprint(max(counts[reason], len(about)))
		finding.Evidence = append([]api.Evidence{condition(pod, corev1.PodScheduled)}, nodeEvidence(reason, about)...)
		out = append(out, finding)
	}
	if refused != nil {
		out = append(out, *refused)
	}
	f.indexes[name] = out
	return out
}

// mostJudged bounds the work of one answer: beyond so many workloads that fit
// nowhere, the scheduler's words have to do.
const mostJudged = 60

// judge asks all nodes why they do not take a pod, and sorts them by reason.
func (f *facts) judge(pod *corev1.Pod) (map[string][]*plugins.Node, *api.Finding) {
	if f.judged++; f.judged > mostJudged {
		return nil, nil
	}
	snapshot := f.snapshot()
	if refused := cmp.Or(f.refused(nodeKind, ""), f.refused(podKind, "")); refused != nil {
		return nil, refused
	}
	by := map[string][]*plugins.Node{}
	undecided := snapshot.Nodes
	for _, p := range plugins.All() {
		if p.Filter == nil || len(undecided) == 0 {
			continue
		}
		judge := p.Filter(snapshot, pod)
		if judge == nil {
			continue
		}
		var left []*plugins.Node
		for _, n := range undecided {
			verdict := judge(n)
			if verdict.Fits() {
				left = append(left, n)
				continue
			}
			for text := range strings.SplitSeq(verdict.Text, plugins.Separator) {
				if text == plugins.Untolerated {
					taint := plugins.UntoleratedTaint(n, pod)
					text = untolerated + taint.Key + ": " + taint.Value + "}"
				}
				by[text] = append(by[text], n)
			}
		}
		undecided = left
	}
	return by, nil
}

// snapshot is the cluster as the scheduler would see it.
func (f *facts) snapshot() *plugins.Snapshot {
	name := indexName{place{nodeKind, ""}, "snapshot"}
	if known, ok := f.indexes[name]; ok {
		return known.(*plugins.Snapshot)
	}
	pods := list[*corev1.Pod](f, podKind, "")
	on := map[string][]*corev1.Pod{}
	for _, p := range pods {
		if p.Spec.NodeName != "" && !api.IsPodTerminal(p) {
			on[p.Spec.NodeName] = append(on[p.Spec.NodeName], p)
		}
	}
	var nodes []*plugins.Node
	for _, object := range list[*corev1.Node](f, nodeKind, "") {
		n := plugins.NewNode(object)
		for _, p := range on[object.Name] {
			n.Add(plugins.NewPod(p))
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b *plugins.Node) int { return strings.Compare(a.Name(), b.Name()) })
	s := plugins.NewSnapshot(nodes, clusterFacts{f})
	f.indexes[name] = s
	return s
}

// fewNodes is how many nodes are named one by one.
const fewNodes = 8

func nodeEvidence(reason string, nodes []*plugins.Node) []api.Evidence {
	var out []api.Evidence
	for _, n := range nodes[:min(len(nodes), fewNodes)] {
		words := reason
		if name, short := strings.CutPrefix(reason, "Insufficient "); short {
			free, all := room(n, corev1.ResourceName(name))
			words = fmt.Sprintf("%s: %s of %s free", name, plain(free, corev1.ResourceName(name)), plain(all, corev1.ResourceName(name)))
		}
		out = append(out, evidence(nodeKind.ref(n.Object), "status.allocatable, spec", words, time.Time{}))
	}
	return out
}

// refusal is one of the scheduler's reasons in plain words, and what to do.
func refusal(pod *corev1.Pod, t target, reason string, nodes []*plugins.Node) api.Finding {
	if name, short := strings.CutPrefix(reason, "Insufficient "); short {
		return noRoom(pod, t, corev1.ResourceName(name), nodes)
	}
	if taint, found := strings.CutPrefix(reason, untolerated); found {
		return taintRefusal(t, strings.TrimSuffix(taint, "}"), nodes)
	}
	node := "NODE"
	if len(nodes) > 0 {
		node = nodes[0].Name()
	}
	p := params("reason", reason, "node", node)
	switch {
	case reason == "Too many pods":
		return mended(broken("tooManyPods", p), mend("addNode", p))
	case reason == "node(s) were unschedulable":
		return mended(broken("cordoned", p), mend("uncordon", p, "kubectl uncordon "+node))
	case strings.Contains(reason, "node affinity/selector"):
		p["selector"] = labels.FormatLabels(pod.Spec.NodeSelector)
		if len(pod.Spec.NodeSelector) == 0 {
			return mended(broken("nodeAffinity", p), mend("nodeAffinity", params("field", t.field("affinity.nodeAffinity"))))
		}
		field := params("field", t.field("nodeSelector"), "selector", p["selector"])
		return mended(broken("nodeSelector", p), mend("labelNode", field, "kubectl label node "+node+" "+strings.ReplaceAll(p["selector"], ",", " ")), mend("nodeSelector", field))
	case strings.Contains(reason, "free ports"):
		return mended(broken("hostPort", p), mend("hostPort", params("field", t.field("containers[].ports[].hostPort"))))
	case strings.Contains(reason, "unbound immediate") || strings.Contains(reason, "persistent volumes to bind"):
		return broken("claimsUnbound", p)
	case strings.Contains(strings.ToLower(reason), "persistentvolumeclaim"), strings.Contains(reason, "pvc(s)"):
		return broken("claimProblem", p)
	case strings.Contains(reason, "volume node affinity"), strings.Contains(reason, "PersistentVolume's node affinity"), strings.Contains(reason, "volume zone"):
		return mended(broken("volumeElsewhere", p), mend("volumeElsewhere", p))
	case strings.Contains(reason, "affinity rules"):
		return mended(broken("podAffinity", p), mend("podAffinity", params("field", t.field("affinity"))))
	case strings.Contains(reason, "topology spread"):
		return mended(broken("spread", p), mend("spread", params("field", t.field("topologySpreadConstraints"))))
	}
	return broken("refused", p)
}

func taintRefusal(t target, taint string, nodes []*plugins.Node) api.Finding {
	key, value, _ := strings.Cut(taint, ": ")
	p := params("taint", taint, "key", key, "value", value, "node", "NODE", "field", t.field("tolerations"))
	for _, n := range nodes {
		p["node"] = n.Name()
		for _, own := range n.Object.Spec.Taints {
			if own.Key == key && own.Value == value {
				p["taint"] = own.ToString()
			}
		}
	}
	if strings.HasPrefix(key, "node.kubernetes.io/") {
		return mended(broken("nodeTrouble", p), mend("nodeDown", p, "kubectl describe node "+p["node"]))
	}
	return mended(broken("taint", p), mend("tolerate", p), mend("untaint", p, "kubectl taint node "+p["node"]+" "+p["taint"]+"-"))
}

// noRoom tells how much is asked for and how much there is. Where even an empty
// node is too small, waiting does not help.
func noRoom(pod *corev1.Pod, t target, name corev1.ResourceName, nodes []*plugins.Node) api.Finding {
	want := api.PodRequests(pod)[name]
	p := params("resource", name, "want", plain(want, name), "most", "-", "node", "-", "largest", "-")
	var most, largest resource.Quantity
	for _, n := range nodes {
		free, all := room(n, name)
		if p["node"] == "-" || free.Cmp(most) > 0 {
			most, p["most"], p["node"] = free, plain(free, name), n.Name()
		}
		if all.Cmp(largest) > 0 {
			largest, p["largest"] = all, plain(all, name)
		}
	}
	finding := broken("noRoom", p)
	p["field"] = t.field("containers[].resources.requests." + string(name))
	limit := p["most"]
	switch {
	case len(nodes) == 0: // they may not be read
		finding.Code = "noRoomAnywhere"
		return mended(finding, mend("lowerResources", p), mend("addNode", p))
	case want.Cmp(largest) > 0:
		finding.Code = "tooLarge"
	}
	if most.Sign() <= 0 {
		limit = "LESS"
	}
	lower := t.change("lowerRequest", p, "kubectl set resources", lowerFlag(pod, name, limit))
	return mended(finding, lower, mend("addNode", p))
}

// plain is an amount as people write it: 6.1 for 6100m, 7863Mi for 8052228Ki.
// It is never more than the amount.
func plain(q resource.Quantity, name corev1.ResourceName) string {
	switch {
	case name == corev1.ResourceCPU:
		return strconv.FormatFloat(float64(q.MilliValue())/1000, 'f', -1, 64)
	case q.Format == resource.BinarySI && q.Value() >= 1<<20:
		q = *resource.NewQuantity(q.Value()>>20<<20, resource.BinarySI)
	}
	return q.String()
}

// lowerFlag asks for less of a resource. What several containers share between
// them is for a person to divide.
func lowerFlag(pod *corev1.Pod, name corev1.ResourceName, limit string) string {
	if len(pod.Spec.Containers) > 1 {
		limit = "LESS"
	}
	return fmt.Sprintf("--requests=%s=%s", name, limit)
}

// room is what a node has left of a resource, and what it has in all.
func room(n *plugins.Node, name corev1.ResourceName) (free, all resource.Quantity) {
	all = n.Object.Status.Allocatable[name]
	free = all.DeepCopy()
	used := n.Requested
	switch name {
	case corev1.ResourceCPU:
		free.Sub(*resource.NewMilliQuantity(used.MilliCPU, resource.DecimalSI))
	case corev1.ResourceMemory:
		free.Sub(*resource.NewQuantity(used.Memory, resource.BinarySI))
	case corev1.ResourceEphemeralStorage:
		free.Sub(*resource.NewQuantity(used.Ephemeral, resource.BinarySI))
	default:
		free.Sub(*resource.NewQuantity(used.Scalar[name], resource.DecimalSI))
	}
	return free, all
}

// clusterFacts are the facts that the scheduler's plugins ask for. What may not
// be read is not there for them: their reasons only count where the scheduler
// gave the same.
type clusterFacts struct{ f *facts }

func (c clusterFacts) Namespace(name string) *corev1.Namespace {
	return one[*corev1.Namespace](c.f, namespaceKind, "", name)
}

func (c clusterFacts) Claim(namespace, name string) *corev1.PersistentVolumeClaim {
	return one[*corev1.PersistentVolumeClaim](c.f, claimKind, namespace, name)
}

func (c clusterFacts) Volume(name string) *corev1.PersistentVolume {
	return one[*corev1.PersistentVolume](c.f, volumeKind, "", name)
}

func (c clusterFacts) Volumes() []*corev1.PersistentVolume {
	return list[*corev1.PersistentVolume](c.f, volumeKind, "")
}

func (c clusterFacts) Class(name string) *storagev1.StorageClass {
	return one[*storagev1.StorageClass](c.f, classKind, "", name)
}

func (c clusterFacts) CSINode(name string) *storagev1.CSINode {
	return one[*storagev1.CSINode](c.f, csiNodeKind, "", name)
}

// SelectorsOf is for scores only, which nobody asks for here.
func (c clusterFacts) SelectorsOf(*corev1.Pod) labels.Selector { return labels.Nothing() }
