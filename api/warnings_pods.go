package api

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// podWarnings gathers what is odd about a pod or a template, but not wrong.
type podWarnings struct {
	spec *corev1.PodSpec
	meta *metav1.ObjectMeta
	at   *field.Path // of a template; nil: it is a pod
	warnings
}

// WarnPod names what is odd about a new pod.
func WarnPod(pod, old *corev1.Pod) []string {
	if old != nil {
		return nil
	}
	var w warnings
	w.name(pod.Name, "the Pod's hostname")
	return append(w, warnSpec(&pod.Spec, &pod.ObjectMeta, nil)...)
}

// warnTemplate names what is odd about the template of pods.
func warnTemplate(t *corev1.PodTemplateSpec, at *field.Path) []string {
	return warnSpec(&t.Spec, &t.ObjectMeta, at)
}

func warnSpec(spec *corev1.PodSpec, meta *metav1.ObjectMeta, at *field.Path) []string {
	w := &podWarnings{spec: spec, meta: meta, at: at}
	w.nodes(at.Child("spec"))
	w.annotations()
	w.volumes(at.Child("spec", "volumes"))
	w.paths()
	w.repeats(at.Child("spec"))
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		w.fraction(spec.Overhead, name, at.Child("spec", "overhead"))
	}
	if _, ok := meta.Annotations[corev1.SeccompPodAnnotationKey]; ok && (spec.SecurityContext == nil || spec.SecurityContext.SeccompProfile == nil) {
		w.annotation(corev1.SeccompPodAnnotationKey, noSeccomp)
	}
	check := &podCheck{spec: spec}
	check.each(at.Child("spec"), w.container)
	w.ports(check)
	if s := spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		w.say(at.Child("spec", "terminationGracePeriodSeconds"), "must be >= 0; negative values are invalid and will be treated as 1")
	}
	w.affinity(at.Child("spec", "affinity"))
	if c := spec.DNSConfig; c != nil {
		for i, ip := range c.Nameservers {
			w.ip(ip, at.Child("spec", "dnsConfig", "nameservers").Index(i))
		}
	}
	for i, alias := range spec.HostAliases {
		w.ip(alias.IP, at.Child("spec", "hostAliases").Index(i).Child("ip"))
	}
	return w.warnings
}

// oldNodeLabels are labels of nodes that have become others, and what they became.
var oldNodeLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

// OldNodeLabel is the warning for who picks nodes by a label; "": none.
func OldNodeLabel(key string) string { return oldNodeLabels[key] }

// nodeTerm looks for old labels in a term of a node selector.
func (w *warnings) nodeTerm(term *corev1.NodeSelectorTerm, preferred bool, at *field.Path) {
	for i, e := range term.MatchExpressions {
		here := at.Child("matchExpressions").Index(i)
		if text, ok := oldNodeLabels[e.Key]; ok {
			w.say(here.Child("key"), e.Key+" is "+text)
		}
		for j, value := range e.Values {
			if !preferred {
				break
			}
			for _, text := range validation.IsValidLabelValue(value) {
				w.say(here.Child("values").Index(j), value+" is invalid, "+text)
			}
		}
	}
}

const matchesNothing = "a null labelSelector results in matching no pod"

// nodes looks at how nodes are picked.
func (w *podWarnings) nodes(at *field.Path) {
	for _, key := range sortedKeys(w.spec.NodeSelector) {
		if text, ok := oldNodeLabels[key]; ok {
			w.say(at.Child("nodeSelector").Key(key), text)
		}
	}
	if a := w.spec.Affinity; a != nil && a.NodeAffinity != nil {
		here := at.Child("affinity", "nodeAffinity")
		if must := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; must != nil {
			for i := range must.NodeSelectorTerms {
				w.nodeTerm(&must.NodeSelectorTerms[i], false, here.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms").Index(i))
			}
		}
		for i := range a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			term := &a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference
			w.nodeTerm(term, true, here.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("preference"))
		}
	}
	for i, c := range w.spec.TopologySpreadConstraints {
		here := at.Child("topologySpreadConstraints").Index(i)
		if text, ok := oldNodeLabels[c.TopologyKey]; ok {
			w.say(here.Child("topologyKey"), c.TopologyKey+" is "+text)
		}
		if c.LabelSelector == nil {
			w.say(here.Child("labelSelector"), matchesNothing)
		}
	}
}

func (w *podWarnings) affinity(at *field.Path) {
	if w.spec.Affinity == nil {
		return
	}
	look := func(must []corev1.PodAffinityTerm, may []corev1.WeightedPodAffinityTerm, at *field.Path) {
		for i, t := range must {
			if t.LabelSelector == nil {
				w.say(at.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i).Child("labelSelector"), matchesNothing)
			}
		}
		for i, t := range may {
			if t.PodAffinityTerm.LabelSelector == nil {
				w.say(at.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm", "labelSelector"), matchesNothing)
			}
		}
	}
	if a := w.spec.Affinity.PodAffinity; a != nil {
		look(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAffinity"))
	}
	if a := w.spec.Affinity.PodAntiAffinity; a != nil {
		look(a.RequiredDuringSchedulingIgnoredDuringExecution, a.PreferredDuringSchedulingIgnoredDuringExecution, at.Child("podAntiAffinity"))
	}
}

const (
	noSeccomp   = `non-functional in v1.27+; use the "seccompProfile" field instead`
	oldAppArmor = `deprecated since v1.30; use the "appArmorProfile" field instead`
	noSysctls   = `non-functional in v1.11+; use the "sysctls" field instead`
)

func (w *podWarnings) annotation(key, text string) {
	w.say(w.at.Child("metadata", "annotations").Key(key), text)
}

func (w *podWarnings) annotations() {
	for _, a := range []struct{ key, text string }{
		{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
		{"security.alpha.kubernetes.io/sysctls", noSysctls},
		{"security.alpha.kubernetes.io/unsafe-sysctls", noSysctls},
	} {
		if _, ok := w.meta.Annotations[a.key]; ok {
			w.annotation(a.key, a.text)
		}
	}
}

// What has become of types of volumes that nodes cannot mount any more.
const (
	goneIn16 = "deprecated in v1.11, non-functional in v1.16+"
	goneIn22 = "deprecated in v1.16, non-functional in v1.22+"
	goneIn25 = "deprecated in v1.22, non-functional in v1.25+"
	goneIn26 = "deprecated in v1.25, non-functional in v1.26+"
	goneIn31 = "deprecated in v1.28, non-functional in v1.31+"
)

// gone is a type of volume, if it is set, and what has become of it.
type gone struct {
	set        bool
	name, text string
}

func (w *warnings) gone(list []gone, at *field.Path) {
	for _, g := range list {
		if g.set {
			w.say(at.Child(g.name), g.text)
		}
	}
}

func (w *podWarnings) volumes(at *field.Path) {
	for i := range w.spec.Volumes {
		v, here := &w.spec.Volumes[i], at.Index(i)
		w.gone([]gone{
			{v.PhotonPersistentDisk != nil, "photonPersistentDisk", goneIn16},
			{v.GitRepo != nil, "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"},
			{v.ScaleIO != nil, "scaleIO", goneIn22}, {v.Flocker != nil, "flocker", goneIn25},
			{v.StorageOS != nil, "storageOS", goneIn25}, {v.Quobyte != nil, "quobyte", goneIn25},
			{v.Glusterfs != nil, "glusterfs", goneIn26},
		}, here)
		if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
			w.claim(&v.Ephemeral.VolumeClaimTemplate.Spec, here.Child("ephemeral", "volumeClaimTemplate", "spec"))
		}
		w.gone([]gone{{v.CephFS != nil, "cephfs", goneIn31}, {v.RBD != nil, "rbd", goneIn31}}, here)
	}
}

// placed is a path within a volume, and what puts a file there.
type placed struct{ path, by string }

func (p placed) String() string {
	if p.by == "" {
		return fmt.Sprintf("%q", p.path)
	}
	return fmt.Sprintf("%q (%s)", p.path, p.by)
}

// paths looks for files of a volume that would be where others are.
func (w *podWarnings) paths() {
	for i := range w.spec.Volumes {
		v := &w.spec.Volumes[i]
		if c := v.ConfigMap; c != nil {
			w.overlaps(v.Name, fmt.Sprintf("ConfigMap %q", c.Name), itemPaths(c.Items, ""))
		}
		if s := v.Secret; s != nil {
			w.overlaps(v.Name, fmt.Sprintf("Secret %q", s.SecretName), itemPaths(s.Items, ""))
		}
		if d := v.DownwardAPI; d != nil {
			w.overlaps(v.Name, "DownwardAPI", filePaths(d.Items, ""))
		}
		if v.Projected == nil {
			continue
		}
		var all []placed
		for _, source := range v.Projected.Sources {
			if source == (corev1.VolumeProjection{}) {
				w.add("volume %q (Projected) has no sources provided", v.Name)
			}
			all = append(all, projectedPaths(&source)...)
		}
		w.overlaps(v.Name, "Projected", all)
	}
}

func (w *podWarnings) overlaps(volume, of string, paths []placed) {
	for i := range paths {
		paths[i].path = strings.TrimRight(paths[i].path, "/")
		here := paths[i]
		for _, other := range paths[:i] {
			if here.path == "" || other.path == "" {
				continue
			}
			if within(here.path, other.path) || within(other.path, here.path) {
				w.add("volume %q (%s): overlapping paths: %s with %s", volume, of, here, other)
			}
		}
	}
}

func within(path, directory string) bool { return strings.HasPrefix(path+"/", directory+"/") }

func itemPaths(items []corev1.KeyToPath, by string) []placed {
	var paths []placed
	for _, item := range items {
		paths = append(paths, placed{item.Path, by})
	}
	return paths
}

func filePaths(items []corev1.DownwardAPIVolumeFile, by string) []placed {
	var paths []placed
	for _, item := range items {
		paths = append(paths, placed{item.Path, by})
	}
	return paths
}

func projectedPaths(s *corev1.VolumeProjection) []placed {
	switch {
	case s.ConfigMap != nil && s.ConfigMap.Items != nil:
		return itemPaths(s.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", s.ConfigMap.Name))
	case s.Secret != nil && s.Secret.Items != nil:
		return itemPaths(s.Secret.Items, fmt.Sprintf("Secret %q", s.Secret.Name))
	case s.DownwardAPI != nil && s.DownwardAPI.Items != nil:
		return filePaths(s.DownwardAPI.Items, "DownwardAPI")
	case s.ServiceAccountToken != nil:
		return []placed{{s.ServiceAccountToken.Path, "ServiceAccountToken"}}
	case s.ClusterTrustBundle != nil:
		name := s.ClusterTrustBundle.Name
		if name == nil {
			name = s.ClusterTrustBundle.SignerName // one of them is set
		}
		return []placed{{s.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", *name)}}
	case s.PodCertificate != nil:
		c := s.PodCertificate
		return []placed{{c.CertificateChainPath, "PodCertificate chain"}, {c.KeyPath, "PodCertificate key"}, {c.CredentialBundlePath, "PodCertificate credential bundle"}}
	}
	return nil
}

// repeats looks for things that are there twice.
func (w *podWarnings) repeats(at *field.Path) {
	var ips, names []string
	for i, alias := range w.spec.HostAliases {
		if slices.Contains(ips, alias.IP) {
			w.say(at.Child("hostAliases").Index(i).Child("ip"), fmt.Sprintf("duplicate ip %q", alias.IP))
		}
		ips = append(ips, alias.IP)
	}
	here := at.Child("imagePullSecrets")
	for i, s := range w.spec.ImagePullSecrets {
		if slices.Contains(names, s.Name) {
			w.say(here.Index(i).Child("name"), fmt.Sprintf("duplicate name %q", s.Name))
		}
		names = append(names, s.Name)
	}
	for i, s := range w.spec.ImagePullSecrets {
		if s.Name == "" {
			w.say(here.Index(i).Child("name"), `invalid empty name ""`)
		}
	}
}

// fraction complains about a part of a byte.
func (w *warnings) fraction(list corev1.ResourceList, name corev1.ResourceName, at *field.Path) {
	if q, ok := list[name]; ok && isFraction(&q) {
		w.say(at.Key(string(name)), fmt.Sprintf("fractional byte value %q is invalid, must be an integer", q.String()))
	}
}

func (w *podWarnings) container(c *corev1.Container, at *field.Path) {
	key := corev1.SeccompContainerAnnotationKeyPrefix + c.Name
	if _, ok := w.meta.Annotations[key]; ok && (c.SecurityContext == nil || c.SecurityContext.SeccompProfile == nil) {
		w.annotation(key, noSeccomp)
	}
	key = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
	if told, ok := w.meta.Annotations[key]; ok && w.at != nil && (c.SecurityContext == nil || c.SecurityContext.AppArmorProfile == nil) {
		var whole *corev1.AppArmorProfile
		if s := w.spec.SecurityContext; s != nil {
			whole = s.AppArmorProfile
		}
		if whole == nil || !equality.Semantic.DeepEqual(whole, appArmorOf(told)) {
			w.annotation(key, oldAppArmor)
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		w.fraction(c.Resources.Limits, name, at.Child("resources", "limits"))
		w.fraction(c.Resources.Requests, name, at.Child("resources", "requests"))
	}
	seen := map[string]bool{}
	for i, e := range c.Env {
		ref := "$(" + e.Name + ")"
		if seen[e.Name] && (e.ValueFrom != nil || e.Value == ref || !strings.Contains(e.Value, ref)) {
			w.say(at.Child("env").Index(i), fmt.Sprintf("hides previous definition of %q, which may be dropped when using apply", e.Name))
		}
		seen[e.Name] = true
	}
}

// ports looks for ports of the containers that are as good as the same.
func (w *podWarnings) ports(check *podCheck) {
	type known struct {
		at   *field.Path
		port corev1.ContainerPort
	}
	all, names := map[string][]known{}, map[string]*field.Path{}
	var repeated warnings
	check.each(w.at.Child("spec"), func(c *corev1.Container, at *field.Path) {
		for i, p := range c.Ports {
			here := at.Child("ports").Index(i)
			if p.HostIP != "" && p.HostPort == 0 {
				w.say(here, fmt.Sprintf("hostIP set without hostPort: %+v", p))
			}
			key := fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol)
			for _, other := range all[key] {
				if how := alike(p, other.port); how != "" {
					w.say(here, fmt.Sprintf("%s port definition with %s", how, other.at))
				}
			}
			all[key] = append(all[key], known{here, p})
			if other := names[p.Name]; other != nil {
				repeated.say(here, fmt.Sprintf("duplicate port name %q with %s, services and probes that select ports by name will use %s", p.Name, other, other))
			} else if p.Name != "" {
				names[p.Name] = here
			}
		}
	})
	w.warnings = append(w.warnings, repeated...)
}

// SyncAppArmor gives containers the profiles that annotations of a new pod name, and
// returns the warnings of those that should be fields.
func SyncAppArmor(pod *corev1.Pod) []string {
	spec := &pod.Spec
	if spec.OS != nil && spec.OS.Name == corev1.Windows {
		return nil
	}
	var whole *corev1.AppArmorProfile
	if spec.SecurityContext != nil {
		whole = spec.SecurityContext.AppArmorProfile
	}
	var warnings []string
	eachContainer(spec, func(c *corev1.Container) {
		key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + c.Name
		told, ok := pod.Annotations[key]
		if !ok || c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			return
		}
		profile := appArmorOf(told)
		if len(validAppArmor(profile, nil)) > 0 {
			profile = nil
		}
		if profile != nil && equality.Semantic.DeepEqual(profile, whole) {
			return
		}
		warnings = append(warnings, fmt.Sprintf("%s: %s", field.NewPath("metadata", "annotations").Key(key), oldAppArmor))
		if profile != nil {
			fillPtr(&c.SecurityContext, corev1.SecurityContext{})
			c.SecurityContext.AppArmorProfile = profile
		}
	})
	return warnings
}

// appArmorOf is the profile that an annotation names; nil: none.
func appArmorOf(told string) *corev1.AppArmorProfile {
	file, local := strings.CutPrefix(told, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case told == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case told == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case local && file != "":
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &file}
	}
	return nil
}

// alike tells how two definitions of one port of containers get in each other's way.
func alike(a, b corev1.ContainerPort) string {
	switch {
	case a.HostIP == b.HostIP && a.HostPort == b.HostPort:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	case a.HostPort == b.HostPort && (a.HostIP == "") != (b.HostIP == ""):
		return "dangerously ambiguous"
	}
	return ""
}

// WarnPodStatus is the warnings about the addresses of a pod.
func WarnPodStatus(pod *corev1.Pod) []string {
	var w warnings
	for i, ip := range pod.Status.PodIPs {
		w.ip(ip.IP, statusPath().Child("podIPs").Index(i).Child("ip"))
	}
	for i, ip := range pod.Status.HostIPs {
		w.ip(ip.IP, statusPath().Child("hostIPs").Index(i).Child("ip"))
	}
	return w
}
