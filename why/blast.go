package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"orrery.dev/api"
)

// mostTold is how many budgets, Services and so on are told one by one, namesTold
// how many objects of a kind by name.
const (
	mostTold  = 8
	namesTold = 3
)

// asked is how many kinds are asked for at a time: the server may be far away.
const asked = 8

// blast gathers what goes with some objects.
type blast struct {
	*facts
	of     api.BlastOf
	kinds  []Kind
	home   string // the namespace, if it is one; names go without it
	gone   map[types.UID]bool
	named  map[api.ObjectRef]bool          // what is gone, by kind and name
	pods   []*corev1.Pod                   // that go
	claims []*corev1.PersistentVolumeClaim // that go
	hidden map[string]bool                 // resources that may not be listed
	answer api.Blast
}

// Blast tells what goes with objects that are to be deleted: what the garbage
// collector takes along, the pods of a node, the content of a namespace, the objects
// of a definition; and who misses the pods and the data among that.
func Blast(reader Reader, of api.BlastOf, now time.Time) (*api.Blast, error) {
	kinds, err := reader.Kinds()
	if err != nil {
		return nil, err
	}
	b := &blast{facts: newFacts(reader, now), of: of, kinds: kinds, gone: map[types.UID]bool{}, named: map[api.ObjectRef]bool{}, hidden: map[string]bool{}}
	nodes, counts, owners := map[string]bool{}, map[Kind]int{}, map[string][]api.ObjectRef{}
	for _, o := range of.Objects {
		switch {
		case nodeKind.is(o):
			nodes[o.Name] = true
		case namespaceKind.is(o):
			b.contents(o.Name, counts)
		case definitionKind.is(o):
			b.instances(o.Name, counts)
		default:
			owners[o.Namespace] = append(owners[o.Namespace], o)
			b.home = o.Namespace
		}
	}
	if len(owners) > 1 {
		b.home = ""
	}
	b.wide = len(nodes) > 0 || len(owners) > mostTold
	b.tellCounts(counts)
	for _, namespace := range slices.Sorted(maps.Keys(owners)) {
		b.owned(namespace, owners[namespace])
	}
	if len(nodes) > 0 {
		b.onNodes(nodes)
	}
	b.missed()
	b.data()
	b.users()
	b.tellHidden()
	return &b.answer, nil
}

// tell adds findings of one sort, the worst of many.
func (b *blast) tell(all []api.Finding) {
	slices.SortStableFunc(all, func(x, y api.Finding) int { return cmp.Compare(severity[x.State], severity[y.State]) })
	if over := len(all) - mostTold; over > 1 {
		all = append(all[:mostTold], fine("andMore", params("count", over)))
	}
	b.answer.Findings = append(b.answer.Findings, all...)
}

func (b *blast) say(f api.Finding) { b.answer.Findings = append(b.answer.Findings, f) }

// tellHidden says of what nothing is known.
func (b *blast) tellHidden() {
	for at := range b.unread {
		b.hidden[at.kind.Resource] = true
	}
	switch names := slices.Sorted(maps.Keys(b.hidden)); {
	case len(names) > 0:
		b.say(api.Finding{State: api.WhyUnknown, Code: "unlisted", Params: params("resources", some(names))})
	case len(b.answer.Findings) == 0:
		b.say(fine("nothingElse", nil))
	}
}

// some is the first of many names.
func some(names []string) string {
	if over := len(names) - namesTold; over > 1 {
		names = append(slices.Clone(names[:namesTold]), fmt.Sprintf("… (+%d)", over))
	}
	return strings.Join(names, ", ")
}

func (b *blast) nameOf(o metav1.Object) string {
	if o.GetNamespace() == b.home {
		return o.GetName()
	}
	return o.GetNamespace() + "/" + o.GetName()
}

// readAll asks for something of many kinds, and leaves out what may not be read.
func readAll[T any](b *blast, kinds []Kind, read func(schema.GroupVersionResource) (T, error)) map[Kind]T {
	var mu sync.Mutex // protects out and hidden
	out := map[Kind]T{}
	slots := make(chan struct{}, asked)
	var asking sync.WaitGroup
	for _, k := range kinds {
		slots <- struct{}{}
		asking.Go(func() {
			defer func() { <-slots }()
			got, err := read(k.GroupVersionResource)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				out[k] = got
			} else if !apierrors.IsNotFound(err) {
				b.hidden[k.Resource] = true
			}
		})
	}
	asking.Wait()
	return out
}

// within are the kinds that are in namespaces. Events come and go by themselves.
func (b *blast) within() []Kind {
	return slices.DeleteFunc(slices.Clone(b.kinds), func(k Kind) bool { return !k.Namespaced || k.Resource == eventKind.Resource })
}

// contents counts what is in a namespace.
func (b *blast) contents(namespace string, counts map[Kind]int) {
	for k, n := range readAll(b, b.within(), func(k schema.GroupVersionResource) (int, error) { return b.reader.Count(k, namespace) }) {
		counts[k] += n
	}
	b.claims = append(b.claims, list[*corev1.PersistentVolumeClaim](b.facts, claimKind, namespace)...)
}

// instances counts the objects of a definition.
func (b *blast) instances(definition string, counts map[Kind]int) {
	mine := slices.DeleteFunc(slices.Clone(b.kinds), func(k Kind) bool { return k.GroupResource().String() != definition })
	maps.Copy(counts, readAll(b, mine, func(k schema.GroupVersionResource) (int, error) { return b.reader.Count(k, "") }))
}

func (b *blast) tellCounts(counts map[Kind]int) {
	for _, k := range slices.SortedFunc(maps.Keys(counts), func(x, y Kind) int { return cmp.Or(counts[y]-counts[x], strings.Compare(x.Resource, y.Resource)) }) {
		if n := counts[k]; n > 0 {
			b.say(fine("contains", params("count", n, "kind", k.title(n))))
		}
	}
}

// owned follows the owners of all that is in a namespace down from some objects.
func (b *blast) owned(namespace string, targets []api.ObjectRef) {
	kinds := b.within()
	if namespace == "" { // of what is in none, only custom resources own anything, and that anywhere
		if !slices.ContainsFunc(targets, func(o api.ObjectRef) bool {
			return strings.Contains(o.Group, ".") && !strings.HasSuffix(o.Group, ".k8s.io")
		}) {
			return
		}
		kinds = b.kinds
	}
	wanted := map[string]bool{}
	for _, o := range targets {
		wanted[o.Resource+"."+o.Group+"/"+o.Name] = true
	}
	all := readAll(b, kinds, func(k schema.GroupVersionResource) ([]metav1.Object, error) { return b.reader.Metadata(k, namespace) })
	for k, objects := range all {
		for _, o := range objects {
			if wanted[k.Resource+"."+k.Group+"/"+o.GetName()] {
				b.lose(k, o)
			}
		}
	}
	more := map[Kind][]string{}
	for grew := !b.of.Orphan; grew; {
		grew = false
		for k, objects := range all {
			for _, o := range objects {
				if b.gone[o.GetUID()] || !b.follows(o) {
					continue
				}
				b.lose(k, o)
				more[k], grew = append(more[k], b.nameOf(o)), true
			}
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(more), func(x, y Kind) int { return strings.Compare(x.Resource, y.Resource) }) {
		slices.Sort(more[k])
		b.say(fine("goes", params("count", len(more[k]), "kind", k.title(len(more[k])), "names", some(more[k]))))
	}
	b.pods = append(b.pods, lost[*corev1.Pod](b, podKind, namespace)...)
	b.claims = append(b.claims, lost[*corev1.PersistentVolumeClaim](b, claimKind, namespace)...)
}

func (b *blast) lose(k Kind, o metav1.Object) {
	b.gone[o.GetUID()] = true
	b.named[api.ObjectRef{Kind: k.Name, Namespace: o.GetNamespace(), Name: o.GetName()}] = true
}

// follows: an object goes when the last of its owners has gone.
func (b *blast) follows(o metav1.Object) bool {
	owners := o.GetOwnerReferences()
	return len(owners) > 0 && !slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return !b.gone[r.UID] })
}

func lost[T object](b *blast, k kind, namespace string) []T {
	return slices.DeleteFunc(slices.Clone(list[T](b.facts, k, namespace)), func(o T) bool { return !b.gone[o.GetUID()] })
}

// onNodes are the pods that go with nodes, or leave those that are drained: as kubectl
// does it, DaemonSets' and static pods stay there.
func (b *blast) onNodes(names map[string]bool) {
	if listWide[*corev1.Pod](b.facts, podKind); !b.whole[podKind] {
		b.hidden[podKind.Resource] = true
		return
	}
	stay, alone, scratch := 0, 0, 0
	for at, known := range b.lists {
		if at.kind != podKind {
			continue
		}
		for _, pod := range known.([]*corev1.Pod) {
			owner := metav1.GetControllerOfNoCopy(pod)
			switch {
			case !names[pod.Spec.NodeName]:
				continue
			case b.of.Drain && owner != nil && (owner.Kind == daemonSetKind.name || owner.Kind == nodeKind.name):
				stay++
				continue
			case api.IsPodTerminal(pod):
			case owner == nil:
				alone++
				fallthrough
			default:
				if slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.EmptyDir != nil }) {
					scratch++
				}
			}
			b.gone[pod.UID] = true
			b.pods = append(b.pods, pod)
		}
	}
	b.tellNodes(stay, alone, scratch)
}

func (b *blast) tellNodes(stay, alone, scratch int) {
	slices.SortFunc(b.pods, func(x, y *corev1.Pod) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	count := params("count", len(b.pods))
	if !b.of.Drain {
		b.say(fine("onNode", count))
	} else {
		b.say(fine("evicts", count))
		for _, pod := range b.pods {
			b.answer.Evicted = append(b.answer.Evicted, podKind.ref(pod))
		}
	}
	if stay > 0 {
		b.say(fine("evictsNot", params("count", stay)))
	}
	if alone > 0 {
		b.say(broken("podsLost", params("count", alone)))
	}
	if scratch > 0 && b.of.Drain {
		b.say(broken("scratchLost", params("count", scratch)))
	}
}

// missed tells who misses the pods that go.
func (b *blast) missed() {
	in := map[string][]*corev1.Pod{}
	for _, pod := range b.pods {
		in[pod.Namespace] = append(in[pod.Namespace], pod)
	}
	var budgets, services, workloads []api.Finding
	for _, namespace := range slices.Sorted(maps.Keys(in)) {
		budgets = append(budgets, b.budgets(namespace, in[namespace])...)
		services = append(services, b.services(namespace)...)
		workloads = append(workloads, b.workloads(namespace)...)
	}
	b.tell(budgets)
	b.tell(services)
	b.tell(workloads)
}

// budgets are those that count pods among the lost. Evictions keep to them; what is
// deleted does not ask.
func (b *blast) budgets(namespace string, pods []*corev1.Pod) (out []api.Finding) {
	for _, budget := range list[*policyv1.PodDisruptionBudget](b.facts, budgetKind, namespace) {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil || b.gone[budget.UID] {
			continue
		}
		hits, allowed := 0, int(budget.Status.DisruptionsAllowed)
		for _, pod := range pods {
			if selector.Matches(labels.Set(pod.Labels)) && api.IsPodReady(pod) {
				hits++
			}
		}
		p := params("name", b.nameOf(budget), "allowed", allowed, "hits", hits)
		switch {
		case hits == 0 || b.of.Drain && allowed > 0:
		case b.of.Drain:
			out = append(out, waiting("budgetHolds", p))
		case hits > allowed:
			out = append(out, broken("budget", p))
		default:
			out = append(out, fine("budget", p))
		}
	}
	return out
}

// services are those that lose ready endpoints.
func (b *blast) services(namespace string) (out []api.Finding) {
	for _, service := range list[*corev1.Service](b.facts, serviceKind, namespace) {
		if b.gone[service.UID] {
			continue
		}
		gone, left := b.split(b.podsSelected(namespace, service.Spec.Selector))
		p := params("name", b.nameOf(service), "lost", gone, "left", left)
		switch {
		case gone == 0:
		case left == 0:
			out = append(out, broken("serviceDown", p))
		default:
			out = append(out, fine("serviceLoses", p))
		}
	}
	return out
}

// split counts the ready pods that go, and those that stay.
func (b *blast) split(pods []*corev1.Pod) (gone, left int) {
	for _, pod := range pods {
		switch {
		case !api.IsPodReady(pod):
		case b.gone[pod.UID]:
			gone++
		default:
			left++
		}
	}
	return gone, left
}

// workloads are those that stay, and have to make pods anew.
func (b *blast) workloads(namespace string) (out []api.Finding) {
	of := map[api.ObjectRef][]*corev1.Pod{}
	for _, pod := range list[*corev1.Pod](b.facts, podKind, namespace) {
		root := b.rootOf(pod)
		if !b.named[api.ObjectRef{Kind: root.Kind, Namespace: namespace, Name: root.Name}] && root.Kind != podKind.name {
			of[root] = append(of[root], pod)
		}
	}
	for _, root := range slices.SortedFunc(maps.Keys(of), func(x, y api.ObjectRef) int { return strings.Compare(x.Kind+x.Name, y.Kind+y.Name) }) {
		gone, left := b.split(of[root])
		p := params("kind", root.Kind, "name", b.nameOf(&metav1.ObjectMeta{Namespace: namespace, Name: root.Name}), "lost", gone, "left", left)
		switch {
		case gone == 0:
		case left == 0:
			out = append(out, waiting("makesAnew", p))
		default:
			out = append(out, fine("makesAnew", p))
		}
	}
	return out
}

// data tells what becomes of the volumes that go, or whose claims do.
func (b *blast) data() {
	claimed := map[string]string{} // names, by volume
	for _, claim := range b.claims {
		claimed[claim.Spec.VolumeName] = b.nameOf(claim)
	}
	own := map[string]bool{}
	for _, o := range b.of.Objects {
		own[o.Name] = volumeKind.is(o)
	}
	delete(claimed, "") // those that have none yet
	if len(claimed) == 0 && !slices.ContainsFunc(b.of.Objects, volumeKind.is) {
		return
	}
	var deleted, kept []string
	for _, volume := range list[*corev1.PersistentVolume](b.facts, volumeKind, "") {
		name := claimed[volume.Name]
		if own[volume.Name] {
			name = volume.Name
			if c := volume.Spec.ClaimRef; c != nil {
				claim := claimKind.named(c.Namespace, c.Name)
				b.answer.Users = append(b.answer.Users, claim)
			}
		}
		switch {
		case name == "":
		case volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
			deleted = append(deleted, name)
		default:
			kept = append(kept, name)
		}
	}
	slices.Sort(deleted)
	slices.Sort(kept)
	if len(deleted) > 0 {
		b.say(broken("dataLost", params("count", len(deleted), "names", some(deleted))))
	}
	if len(kept) > 0 {
		b.say(fine("dataKept", params("count", len(kept), "names", some(kept))))
	}
}
