package why

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"orrery.dev/api"
)

// input is another object that a pod needs before it can start.
type input struct {
	kind  kind
	name  string
	keys  []string // that have to be in it
	where string   // in the pod's spec
}

// inputsOf are the Secrets, ConfigMaps and claims that a pod cannot do without.
func inputsOf(spec *corev1.PodSpec) []input {
	var all []input
	need := func(k kind, name, where string, optional *bool, keys ...string) {
		if name == "" || optional != nil && *optional {
			return
		}
		i := slices.IndexFunc(all, func(in input) bool { return in.kind == k && in.name == name })
		if i < 0 {
			all = append(all, input{kind: k, name: name, where: where})
			i = len(all) - 1
		}
		all[i].keys = append(all[i].keys, keys...)
	}
	for _, v := range spec.Volumes {
		where := "volumes[" + v.Name + "]"
		if s := v.Secret; s != nil {
			need(secretKind, s.SecretName, where+".secret.secretName", s.Optional, paths(s.Items)...)
		}
		if c := v.ConfigMap; c != nil {
			need(configMapKind, c.Name, where+".configMap.name", c.Optional, paths(c.Items)...)
		}
		if c := v.PersistentVolumeClaim; c != nil {
			need(claimKind, c.ClaimName, where+".persistentVolumeClaim.claimName", nil)
		}
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if s := source.Secret; s != nil {
				need(secretKind, s.Name, where+".projected", s.Optional, paths(s.Items)...)
			}
			if c := source.ConfigMap; c != nil {
				need(configMapKind, c.Name, where+".projected", c.Optional, paths(c.Items)...)
			}
		}
	}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, from := range c.EnvFrom {
			if s := from.SecretRef; s != nil {
				need(secretKind, s.Name, "containers["+c.Name+"].envFrom", s.Optional)
			}
			if m := from.ConfigMapRef; m != nil {
				need(configMapKind, m.Name, "containers["+c.Name+"].envFrom", m.Optional)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			where := "containers[" + c.Name + "].env[" + e.Name + "]"
			if s := e.ValueFrom.SecretKeyRef; s != nil {
				need(secretKind, s.Name, where, s.Optional, s.Key)
			}
			if m := e.ValueFrom.ConfigMapKeyRef; m != nil {
				need(configMapKind, m.Name, where, m.Optional, m.Key)
			}
		}
	}
	return all
}

func paths(items []corev1.KeyToPath) []string {
	keys := make([]string, len(items))
	for i, item := range items {
		keys[i] = item.Key
	}
	return keys
}

// inputs looks for what a pod needs and does not have.
func (f *facts) inputs(pod *corev1.Pod, t target) []api.Finding {
	if begun(pod) {
		return nil
	}
	var out []api.Finding
	proof := f.complaints(pod)
	for _, in := range inputsOf(&pod.Spec) {
		if finding := f.input(pod, in, t); finding != nil {
			if finding.State == api.WhyBroken {
				finding.Evidence = append(finding.Evidence, proof...)
			}
			out = append(out, *finding)
		}
	}
	told := slices.ContainsFunc(out, func(f api.Finding) bool { return f.State == api.WhyBroken })
	if told || len(proof) == 0 {
		return out
	}
	// Something is wrong that the objects do not show, or that may not be read.
	words := proof[0].Words
	finding := broken("inputsFailed", params("message", words), proof...)
	return append(out, mended(finding, mend("inputsFailed", nil, "kubectl describe pod "+pod.Name+" -n "+pod.Namespace)))
}

// complaints are the kubelet's about volumes and configuration.
func (f *facts) complaints(pod *corev1.Pod) []api.Evidence {
	var proof []api.Evidence
	for _, s := range statuses(pod) {
		if w := s.State.Waiting; w != nil && w.Reason == "CreateContainerConfigError" {
			proof = append(proof, evidence(podKind.ref(pod), statusField(pod, s)+".state.waiting", w.Reason+": "+w.Message, time.Time{}))
		}
	}
	if c := api.PodCondition(pod, "PodReadyToStartContainers"); c != nil && c.Status == corev1.ConditionTrue {
		return proof // volumes are there
	}
	if e := f.event(podKind, pod, "FailedMount", "FailedAttachVolume", "FailedMapVolume"); e != nil {
		proof = append(proof, eventEvidence(e))
	}
	return proof
}

func (f *facts) input(pod *corev1.Pod, in input, t target) *api.Finding {
	if in.kind == claimKind {
		return f.claimOf(pod, in, t)
	}
	var keys map[string]bool
	var err error
	if in.kind == secretKind {
		var secret *corev1.Secret
		if secret, err = get[*corev1.Secret](f, secretKind, pod.Namespace, in.name); secret != nil {
			keys = keysOf(secret.Data, secret.StringData)
		}
	} else {
		var config *corev1.ConfigMap
		if config, err = get[*corev1.ConfigMap](f, configMapKind, pod.Namespace, in.name); config != nil {
			keys = keysOf(config.BinaryData, config.Data)
		}
	}
	p := params("kind", in.kind.name, "name", in.name, "namespace", pod.Namespace, "field", t.field(in.where))
	e := evidence(podKind.ref(pod), "spec."+in.where, in.name, time.Time{})
	switch {
	case apierrors.IsNotFound(err):
		finding := mended(broken("missing", p, e, evidence(in.kind.named(pod.Namespace, in.name), "not found", "", time.Time{})), createInput(in, pod.Namespace, p))
		return &finding
	case err != nil:
		finding := mayNot(err, "get", in.kind, pod.Namespace)
		return &finding
	}
	for _, key := range in.keys {
		if !keys[key] {
			p["key"] = key
			finding := mended(broken("missingKey", p, e, evidence(in.kind.named(pod.Namespace, in.name), "data", strings.Join(slices.Sorted(maps.Keys(keys)), ", "), time.Time{})),
				mend("addKey", p, fmt.Sprintf("kubectl edit %s %s -n %s", strings.ToLower(in.kind.name), in.name, pod.Namespace)))
			return &finding
		}
	}
	return nil
}

// createInput is the command that makes a missing Secret or ConfigMap, with the
// keys that are asked of it.
func createInput(in input, namespace string, p map[string]string) api.Mend {
	command := "kubectl create configmap "
	if in.kind == secretKind {
		command = "kubectl create secret generic "
	}
	command += in.name + " -n " + namespace
	keys := in.keys
	if len(keys) == 0 {
		keys = []string{"KEY"}
	}
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		command += " --from-literal=" + key + "=VALUE"
	}
	return mend("create", p, command)
}

func keysOf[A, B any](data map[string]A, more map[string]B) map[string]bool {
	keys := make(map[string]bool, len(data)+len(more))
	for key := range data {
		keys[key] = true
	}
	for key := range more {
		keys[key] = true
	}
	return keys
}

// claimOf is a claim of a pod that is not bound, or not there.
func (f *facts) claimOf(pod *corev1.Pod, in input, t target) *api.Finding {
	claim, err := get[*corev1.PersistentVolumeClaim](f, claimKind, pod.Namespace, in.name)
	p := params("kind", claimKind.name, "name", in.name, "namespace", pod.Namespace, "field", t.field(in.where))
	switch {
	case apierrors.IsNotFound(err):
		finding := mended(broken("missing", p, evidence(podKind.ref(pod), "spec."+in.where, in.name, time.Time{}), evidence(claimKind.named(pod.Namespace, in.name), "not found", "", time.Time{})),
			mend("createClaim", p))
		return &finding
	case err != nil:
		finding := mayNot(err, "get", claimKind, pod.Namespace)
		return &finding
	}
	finding := f.claim(claim, true)
	if finding.State == api.WhyOK {
		return nil
	}
	return &finding
}

// claim is how a claim stands; used: a pod waits for it.
func (f *facts) claim(claim *corev1.PersistentVolumeClaim, used bool) api.Finding {
	ref := claimKind.ref(claim)
	e := evidence(ref, "status.phase", string(claim.Status.Phase), time.Time{})
	size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	p := params("name", claim.Name, "volume", claim.Spec.VolumeName, "size", size.String(), "class", "")
	switch claim.Status.Phase {
	case corev1.ClaimBound:
		return fine("claimBound", p, e)
	case corev1.ClaimLost:
		return mended(broken("claimLost", p, e), mend("claimLost", p))
	}
	complaint := f.event(claimKind, claim, "ProvisioningFailed", "FailedBinding", "ProvisioningCleanupFailed")
	proof := []api.Evidence{e}
	if complaint != nil {
		p["message"] = complaint.Message
		proof = append(proof, eventEvidence(complaint))
	}
	class, finding := f.classOf(claim, p, proof)
	if finding != nil {
		return *finding
	}
	switch {
	case class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer && claim.Annotations["volume.kubernetes.io/selected-node"] == "":
		if used {
			return fine("claimWaitsForNode", p, proof...)
		}
		return waiting("claimUnused", p, proof...)
	case complaint != nil && complaint.Reason == "ProvisioningFailed":
		return mended(broken("provisioningFailed", p, proof...), mend("provisioner", p, "kubectl describe pvc "+claim.Name+" -n "+claim.Namespace))
	case class == nil || class.Provisioner == "kubernetes.io/no-provisioner":
		return mended(broken("noVolume", p, proof...), mend("makeVolume", p))
	}
	p["provisioner"] = class.Provisioner
	if f.now.Sub(claim.CreationTimestamp.Time) > time.Minute {
		return mended(broken("provisionerSilent", p, proof...), mend("provisioner", p, "kubectl describe pvc "+claim.Name+" -n "+claim.Namespace))
	}
	return waiting("provisioning", p, proof...)
}

// classOf finds the class of an unbound claim; the finding is what is wrong with
// it. Neither: volumes are made by hand, or the class may not be read.
func (f *facts) classOf(claim *corev1.PersistentVolumeClaim, p map[string]string, proof []api.Evidence) (*storagev1.StorageClass, *api.Finding) {
	classes := list[*storagev1.StorageClass](f, classKind, "")
	if refused := f.refused(classKind, ""); refused != nil {
		refused.State = api.WhyWaiting
		refused.Evidence = proof
		return nil, refused
	}
	var names []string
	for _, c := range classes {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	p["classes"] = strings.Join(names, ", ")
	if claim.Spec.StorageClassName == nil {
		if claim.Spec.VolumeName != "" {
			return nil, nil
		}
		finding := mended(broken("noDefaultClass", p, proof...), mend("setClass", p))
		return nil, &finding
	}
	p["class"] = *claim.Spec.StorageClassName
	for _, c := range classes {
		if c.Name == p["class"] {
			return c, nil
		}
	}
	if p["class"] == "" {
		return nil, nil
	}
	// Volumes made by hand may carry the name of a class that nobody defined.
	finding := mended(broken("noClass", p, proof...), mend("setClass", p))
	return nil, &finding
}
