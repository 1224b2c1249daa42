package controllers

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// graph is who owns whom in the whole cluster, by UID, built from the metadata
// of every object. It never does I/O; a change returns what has to be looked at.
type graph struct {
	mu    sync.Mutex // protects nodes and all that hangs on them
	nodes map[types.UID]*graphNode
}

// graphNode is an object, or (virtual) one that others name as their owner and
// that we have not seen: it may be too new, or gone, or never have been.
type graphNode struct {
	objectRef
	virtual    bool
	owners     []metav1.OwnerReference
	dependents map[types.UID]*graphNode
	// deleting: it has a deletion timestamp. foreground: and waits for its
	// dependents to go first.
	deleting, foreground bool
}

// objectRef names an object exactly.
type objectRef struct {
	apiVersion, kind, namespace, name string
	uid                               types.UID
}

// chore is a piece of work that a change of the graph asks for.
type chore struct {
	uid    types.UID
	orphan bool // let go of the dependents, otherwise: see whether it must go
}

func newGraph() *graph { return &graph{nodes: map[types.UID]*graphNode{}} }

// observe takes in an object as it is now.
func (g *graph) observe(ref objectRef, o *metav1.PartialObjectMetadata) []chore {
	g.mu.Lock()
	defer g.mu.Unlock()
	var chores []chore
	node := g.nodes[ref.uid]
	fresh := node == nil || node.virtual
	if node == nil {
		node = &graphNode{dependents: map[types.UID]*graphNode{}}
		g.nodes[ref.uid] = node
	}
	if node.virtual && node.namespace != ref.namespace && ref.namespace != "" {
		// It was expected elsewhere: dependents in other namespaces name it in vain.
		for uid, d := range node.dependents {
			if d.namespace != ref.namespace {
				chores = append(chores, chore{uid: uid})
			}
		}
	}
	node.objectRef, node.virtual = ref, false
	removed := g.setOwners(node, o.OwnerReferences, &chores)
	deleting := o.DeletionTimestamp != nil
	foreground := deleting && slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents)
	orphaning := deleting && slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents)
	if orphaning {
		chores = append(chores, chore{uid: ref.uid, orphan: true})
	}
	if foreground && !node.foreground {
		for uid := range node.dependents {
			chores = append(chores, chore{uid: uid})
		}
		chores = append(chores, chore{uid: ref.uid})
	}
	node.deleting, node.foreground = deleting, foreground
	if fresh && len(o.OwnerReferences) > 0 || len(removed) > 0 || g.hasLeavingOwner(node) {
		chores = append(chores, chore{uid: ref.uid})
	}
	for _, owner := range removed { // it may have been what an owner waited for
		if n := g.nodes[owner]; n != nil && n.foreground {
			chores = append(chores, chore{uid: owner})
		}
	}
	return chores
}

// hasLeavingOwner says whether an owner is gone, or waits for this dependent.
func (g *graph) hasLeavingOwner(node *graphNode) bool {
	return slices.ContainsFunc(node.owners, func(ref metav1.OwnerReference) bool {
		owner := g.nodes[ref.UID]
		return owner == nil || owner.foreground
	})
}

// setOwners links a node to its owners and returns those that it no longer has.
func (g *graph) setOwners(node *graphNode, owners []metav1.OwnerReference, chores *[]chore) []types.UID {
	var removed []types.UID
	for _, old := range node.owners {
		if slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return r.UID == old.UID }) {
			continue
		}
		removed = append(removed, old.UID)
		if owner := g.nodes[old.UID]; owner != nil {
			delete(owner.dependents, node.uid)
			g.dropIdleVirtual(owner)
		}
	}
	for _, old := range node.owners { // an owner that is no longer blocked may go on
		i := slices.IndexFunc(owners, func(r metav1.OwnerReference) bool { return r.UID == old.UID })
		if i >= 0 && blocks(old) && !blocks(owners[i]) {
			*chores = append(*chores, chore{uid: old.UID})
		}
	}
	node.owners = slices.Clone(owners)
	for _, ref := range owners {
		owner := g.nodes[ref.UID]
		if owner == nil {
			owner = &graphNode{
				objectRef: objectRef{apiVersion: ref.APIVersion, kind: ref.Kind, namespace: node.namespace, name: ref.Name, uid: ref.UID},
				virtual:   true, dependents: map[types.UID]*graphNode{},
			}
			g.nodes[ref.UID] = owner
			*chores = append(*chores, chore{uid: ref.UID})
		}
		owner.dependents[node.uid] = node
	}
	return removed
}

func blocks(ref metav1.OwnerReference) bool {
	return ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
}

func (g *graph) dropIdleVirtual(node *graphNode) {
	if node.virtual && len(node.dependents) == 0 {
		delete(g.nodes, node.uid)
	}
}

// forget takes in that an object is gone.
func (g *graph) forget(uid types.UID) []chore {
	g.mu.Lock()
	defer g.mu.Unlock()
	node := g.nodes[uid]
	if node == nil {
		return nil
	}
	delete(g.nodes, uid)
	var chores []chore
	for _, ref := range node.owners {
		owner := g.nodes[ref.UID]
		if owner == nil {
			continue
		}
		delete(owner.dependents, uid)
		g.dropIdleVirtual(owner)
		if owner.foreground {
			chores = append(chores, chore{uid: ref.UID})
		}
	}
	for dependent := range node.dependents {
		chores = append(chores, chore{uid: dependent})
	}
	return chores
}

// view is a node as a worker may read it without the lock.
type view struct {
	objectRef
	known, virtual, deleting, foreground bool
	dependents                           []dependent
}

type dependent struct {
	objectRef
	blocks, deleting, foreground bool
}

func (g *graph) view(uid types.UID) view {
	g.mu.Lock()
	defer g.mu.Unlock()
	node := g.nodes[uid]
	if node == nil {
		return view{}
	}
	v := view{objectRef: node.objectRef, known: true, virtual: node.virtual, deleting: node.deleting, foreground: node.foreground}
	for _, d := range node.dependents {
		blocking := slices.ContainsFunc(d.owners, func(r metav1.OwnerReference) bool { return r.UID == uid && blocks(r) })
		v.dependents = append(v.dependents, dependent{d.objectRef, blocking, d.deleting, d.foreground})
	}
	return v
}

// confirm notes that a virtual node turned out to exist.
func (g *graph) confirm(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if node := g.nodes[uid]; node != nil {
		node.virtual = false
	}
}
