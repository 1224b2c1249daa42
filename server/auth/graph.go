package auth

import (
	"context"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// thing names an object that a pod can refer to.
type thing struct{ resource, namespace, name string }

// graph answers whether an object is needed by a pod of a node. Edges run from
// node to pod to what the pod's spec names, and from a claim to its volume and
// that volume's secrets.
type graph struct {
	mu   sync.RWMutex // protects the fields below
	pods map[thing]placed
	// uses counts, per node, how many of its pods need a thing.
	uses        map[string]map[thing]int
	volumes     map[string]volume         // by name
	secretsOf   map[thing]map[string]bool // secret to names of volumes that need it
	attachments map[string]string         // name to node
	slices      map[string]string         // resource slice to node
	requests    map[string]string         // pod certificate request, by namespace/name, to node
	changed     chan struct{}             // closed and replaced at every change
}

type placed struct {
	node  string
	needs []thing
}

type volume struct {
	claim   thing
	secrets []thing
}

func newGraph() *graph {
	g := &graph{changed: make(chan struct{})}
	g.resetPods()
	g.resetVolumes()
	g.attachments = map[string]string{}
	g.slices = map[string]string{}
	g.requests = map[string]string{}
	return g
}

func (g *graph) resetPods() {
	g.pods, g.uses = map[thing]placed{}, map[string]map[thing]int{}
}

func (g *graph) resetVolumes() {
	g.volumes, g.secretsOf = map[string]volume{}, map[thing]map[string]bool{}
}

func (g *graph) applyPods(changes []Change, reset bool) {
	g.mu.Lock()
	defer g.unlockChanged()
	if reset {
		g.resetPods()
	}
	for _, c := range changes {
		pod, ok := c.Object.(*corev1.Pod)
		if !ok {
			continue
		}
		key := thing{"pods", pod.Namespace, pod.Name}
		g.count(g.pods[key], -1)
		delete(g.pods, key)
		if c.Deleted || pod.Spec.NodeName == "" {
			continue
		}
		p := placed{node: pod.Spec.NodeName, needs: append(podNeeds(pod), key)}
		g.pods[key] = p
		g.count(p, 1)
	}
}

func (g *graph) count(p placed, by int) {
	if p.node == "" {
		return
	}
	uses := g.uses[p.node]
	if uses == nil {
		uses = map[thing]int{}
		g.uses[p.node] = uses
	}
	for _, t := range p.needs {
		if uses[t] += by; uses[t] <= 0 {
			delete(uses, t)
		}
	}
	if len(uses) == 0 {
		delete(g.uses, p.node)
	}
}

// podNeeds is what the spec of a pod names. A mirror pod needs nothing: its
// node made it up.
func podNeeds(pod *corev1.Pod) []thing {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return nil
	}
	n := needs{namespace: pod.Namespace}
	spec := &pod.Spec
	n.add("serviceaccounts", spec.ServiceAccountName)
	for _, s := range spec.ImagePullSecrets {
		n.add("secrets", s.Name)
	}
	for i := range spec.InitContainers {
		n.addEnv(spec.InitContainers[i].Env, spec.InitContainers[i].EnvFrom)
	}
	for i := range spec.Containers {
		n.addEnv(spec.Containers[i].Env, spec.Containers[i].EnvFrom)
	}
	for i := range spec.EphemeralContainers {
		n.addEnv(spec.EphemeralContainers[i].Env, spec.EphemeralContainers[i].EnvFrom)
	}
	for i := range spec.Volumes {
		n.addVolume(pod.Name, &spec.Volumes[i])
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.ResourceClaimName != nil {
			n.add("resourceclaims", *status.ResourceClaimName)
		}
	}
	for _, claim := range spec.ResourceClaims {
		if claim.ResourceClaimName != nil {
			n.add("resourceclaims", *claim.ResourceClaimName)
		}
	}
	return n.all
}

type needs struct {
	namespace string
	all       []thing
}

func (n *needs) add(resource, name string) {
	if name != "" {
		n.all = append(n.all, thing{resource, n.namespace, name})
	}
}

func (n *needs) addEnv(env []corev1.EnvVar, from []corev1.EnvFromSource) {
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if ref := e.ValueFrom.SecretKeyRef; ref != nil {
			n.add("secrets", ref.Name)
		}
		if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
			n.add("configmaps", ref.Name)
		}
	}
	for _, f := range from {
		if f.SecretRef != nil {
			n.add("secrets", f.SecretRef.Name)
		}
		if f.ConfigMapRef != nil {
			n.add("configmaps", f.ConfigMapRef.Name)
		}
	}
}

func (n *needs) addVolume(pod string, v *corev1.Volume) {
	switch {
	case v.Secret != nil:
		n.add("secrets", v.Secret.SecretName)
	case v.ConfigMap != nil:
		n.add("configmaps", v.ConfigMap.Name)
	case v.PersistentVolumeClaim != nil:
		n.add("persistentvolumeclaims", v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		n.add("persistentvolumeclaims", pod+"-"+v.Name)
	case v.CSI != nil && v.CSI.NodePublishSecretRef != nil:
		n.add("secrets", v.CSI.NodePublishSecretRef.Name)
	case v.AzureFile != nil:
		n.add("secrets", v.AzureFile.SecretName)
	case v.CephFS != nil && v.CephFS.SecretRef != nil:
		n.add("secrets", v.CephFS.SecretRef.Name)
	case v.Cinder != nil && v.Cinder.SecretRef != nil:
		n.add("secrets", v.Cinder.SecretRef.Name)
	case v.FlexVolume != nil && v.FlexVolume.SecretRef != nil:
		n.add("secrets", v.FlexVolume.SecretRef.Name)
	case v.ISCSI != nil && v.ISCSI.SecretRef != nil:
		n.add("secrets", v.ISCSI.SecretRef.Name)
	case v.RBD != nil && v.RBD.SecretRef != nil:
		n.add("secrets", v.RBD.SecretRef.Name)
	case v.ScaleIO != nil && v.ScaleIO.SecretRef != nil:
		n.add("secrets", v.ScaleIO.SecretRef.Name)
	case v.StorageOS != nil && v.StorageOS.SecretRef != nil:
		n.add("secrets", v.StorageOS.SecretRef.Name)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if source.Secret != nil {
				n.add("secrets", source.Secret.Name)
			}
			if source.ConfigMap != nil {
				n.add("configmaps", source.ConfigMap.Name)
			}
		}
	}
}

func (g *graph) applyVolumes(changes []Change, reset bool) {
	g.mu.Lock()
	defer g.unlockChanged()
	if reset {
		g.resetVolumes()
	}
	for _, c := range changes {
		pv, ok := c.Object.(*corev1.PersistentVolume)
		if !ok {
			continue
		}
		for _, s := range g.volumes[pv.Name].secrets {
			delete(g.secretsOf[s], pv.Name)
			if len(g.secretsOf[s]) == 0 {
				delete(g.secretsOf, s)
			}
		}
		delete(g.volumes, pv.Name)
		ref := pv.Spec.ClaimRef
		if c.Deleted || ref == nil {
			continue
		}
		v := volume{claim: thing{"persistentvolumeclaims", ref.Namespace, ref.Name}, secrets: volumeSecrets(pv)}
		g.volumes[pv.Name] = v
		for _, s := range v.secrets {
			if g.secretsOf[s] == nil {
				g.secretsOf[s] = map[string]bool{}
			}
			g.secretsOf[s][pv.Name] = true
		}
	}
}

// volumeSecrets are those that the node needs to mount a volume.
func volumeSecrets(pv *corev1.PersistentVolume) []thing {
	var refs []*corev1.SecretReference
	source := &pv.Spec.PersistentVolumeSource
	switch {
	case source.CSI != nil:
		refs = append(refs, source.CSI.NodePublishSecretRef, source.CSI.NodeStageSecretRef, source.CSI.NodeExpandSecretRef)
	case source.AzureFile != nil:
		ref := &corev1.SecretReference{Name: source.AzureFile.SecretName, Namespace: pv.Spec.ClaimRef.Namespace}
		if source.AzureFile.SecretNamespace != nil {
			ref.Namespace = *source.AzureFile.SecretNamespace
		}
		refs = append(refs, ref)
	case source.CephFS != nil:
		refs = append(refs, source.CephFS.SecretRef)
	case source.Cinder != nil:
		refs = append(refs, source.Cinder.SecretRef)
	case source.FlexVolume != nil:
		refs = append(refs, source.FlexVolume.SecretRef)
	case source.ISCSI != nil:
		refs = append(refs, source.ISCSI.SecretRef)
	case source.RBD != nil:
		refs = append(refs, source.RBD.SecretRef)
	case source.ScaleIO != nil:
		refs = append(refs, source.ScaleIO.SecretRef)
	case source.StorageOS != nil && source.StorageOS.SecretRef != nil:
		refs = append(refs, &corev1.SecretReference{Name: source.StorageOS.SecretRef.Name, Namespace: source.StorageOS.SecretRef.Namespace})
	}
	var all []thing
	for _, ref := range refs {
		if ref == nil || ref.Name == "" {
			continue
		}
		namespace := ref.Namespace
		if namespace == "" {
			namespace = pv.Spec.ClaimRef.Namespace
		}
		all = append(all, thing{"secrets", namespace, ref.Name})
	}
	return all
}

func (g *graph) applyAttachments(changes []Change, reset bool) {
	g.applyOwned(&g.attachments, changes, reset, func(c Change) (string, string) {
		if a, ok := c.Object.(*storagev1.VolumeAttachment); ok {
			return a.Name, a.Spec.NodeName
		}
		return "", ""
	})
}

func (g *graph) applySlices(changes []Change, reset bool) {
	g.applyOwned(&g.slices, changes, reset, func(c Change) (string, string) {
		if s, ok := c.Object.(*resourcev1.ResourceSlice); ok && s.Spec.NodeName != nil {
			return s.Name, *s.Spec.NodeName
		}
		return "", ""
	})
}

func (g *graph) applyRequests(changes []Change, reset bool) {
	g.applyOwned(&g.requests, changes, reset, func(c Change) (string, string) {
		if r, ok := c.Object.(*certificatesv1.PodCertificateRequest); ok {
			return r.Namespace + "/" + r.Name, string(r.Spec.NodeName)
		}
		return "", ""
	})
}

// applyOwned keeps a map from an object's name to the node it belongs to.
func (g *graph) applyOwned(owned *map[string]string, changes []Change, reset bool, owner func(Change) (name, node string)) {
	g.mu.Lock()
	defer g.unlockChanged()
	if reset {
		*owned = map[string]string{}
	}
	for _, c := range changes {
		name, node := owner(c)
		delete(*owned, name)
		if !c.Deleted && node != "" {
			(*owned)[name] = node
		}
	}
}

// unlockChanged wakes who waits for the graph to catch up.
func (g *graph) unlockChanged() {
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
}

// catchUp is how long the graph may lag behind a kubelet that has just seen one
// of its pods bound.
const catchUp = 250 * time.Millisecond

// neededSoon is needed, with a moment's patience: a refusal here would cost the
// pod a round of retries.
func (g *graph) neededSoon(ctx context.Context, node string, t thing) bool {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	for {
		g.mu.RLock()
		changed := g.changed
		g.mu.RUnlock()
		if g.needed(node, t) {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// needed reports whether a thing is needed on a node.
func (g *graph) needed(node string, t thing) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	uses := g.uses[node]
	switch t.resource {
	case "persistentvolumes":
		v, ok := g.volumes[t.name]
		return ok && uses[v.claim] > 0
	case "volumeattachments":
		return g.attachments[t.name] == node
	case "resourceslices":
		return g.slices[t.name] == node
	case "podcertificaterequests":
		return g.requests[t.namespace+"/"+t.name] == node
	case "secrets":
		for name := range g.secretsOf[t] {
			if uses[g.volumes[name].claim] > 0 {
				return true
			}
		}
	}
	return uses[t] > 0
}
