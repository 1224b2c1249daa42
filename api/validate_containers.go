package api

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validContainers checks all containers of a pod; volumes are the names that
// they may mount.
func validContainers(spec *corev1.PodSpec, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	name := func(n string, at *field.Path) {
		if names[n] {
			errs = append(errs, field.Duplicate(at.Child("name"), n))
		}
		names[n] = true
	}
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	for i := range spec.Containers {
		c, at := &spec.Containers[i], path.Child("containers").Index(i)
		name(c.Name, at)
		errs = append(errs, validContainer(c, volumes, at)...)
	}
	for i := range spec.InitContainers {
		c, at := &spec.InitContainers[i], path.Child("initContainers").Index(i)
		name(c.Name, at)
		errs = append(errs, validContainer(c, volumes, at)...)
		errs = append(errs, validInitContainer(c, at)...)
	}
	for i := range spec.EphemeralContainers {
		e, at := &spec.EphemeralContainers[i], path.Child("ephemeralContainers").Index(i)
		name(e.Name, at)
		c := corev1.Container(e.EphemeralContainerCommon)
		errs = append(errs, validContainer(&c, volumes, at)...)
		errs = append(errs, validEphemeral(e, spec, at)...)
	}
	return errs
}

// validInitContainer keeps probes and hooks to those that go on running.
func validInitContainer(c *corev1.Container, path *field.Path) field.ErrorList {
	if IsSidecar(c) {
		return nil
	}
	var errs field.ErrorList
	const why = "may not be set for init containers without restartPolicy=Always"
	if c.Lifecycle != nil {
		errs = append(errs, field.Forbidden(path.Child("lifecycle"), why))
	}
	for name, probe := range map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe} {
		if probe != nil {
			errs = append(errs, field.Forbidden(path.Child(name), why))
		}
	}
	return errs
}

// validEphemeral keeps ephemeral containers to what can be added to a pod that
// runs.
func validEphemeral(e *corev1.EphemeralContainer, spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	forbid := func(set bool, name string) {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), "cannot be set for an Ephemeral Container"))
		}
	}
	forbid(len(e.Ports) > 0, "ports")
	forbid(e.LivenessProbe != nil, "livenessProbe")
	forbid(e.ReadinessProbe != nil, "readinessProbe")
	forbid(e.StartupProbe != nil, "startupProbe")
	forbid(e.Lifecycle != nil, "lifecycle")
	forbid(len(e.Resources.Limits)+len(e.Resources.Requests) > 0, "resources")
	if e.TargetContainerName == "" {
		return errs
	}
	for _, c := range append(append([]corev1.Container{}, spec.Containers...), spec.InitContainers...) {
		if c.Name == e.TargetContainerName {
			return errs
		}
	}
	return append(errs, field.NotFound(path.Child("targetContainerName"), e.TargetContainerName))
}

func validContainer(c *corev1.Container, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	errs := requiredLabel(c.Name, path.Child("name"))
	switch {
	case c.Image == "":
		errs = append(errs, field.Required(path.Child("image"), ""))
	case strings.TrimSpace(c.Image) != c.Image:
		errs = append(errs, field.Invalid(path.Child("image"), c.Image, "must not have leading or trailing whitespace"))
	}
	errs = append(errs, oneOf(c.ImagePullPolicy, path.Child("imagePullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	errs = append(errs, oneOf(c.TerminationMessagePolicy, path.Child("terminationMessagePolicy"), corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validPorts(c.Ports, path.Child("ports"))...)
	errs = append(errs, validEnv(c.Env, path.Child("env"))...)
	errs = append(errs, validEnvFrom(c.EnvFrom, path.Child("envFrom"))...)
	errs = append(errs, validMounts(c.VolumeMounts, volumes, path.Child("volumeMounts"))...)
	errs = append(errs, validDevices(c, volumes, path.Child("volumeDevices"))...)
	errs = append(errs, ValidateResources(&c.Resources, path.Child("resources"))...)
	errs = append(errs, validProbe(c.LivenessProbe, path.Child("livenessProbe"), true)...)
	errs = append(errs, validProbe(c.ReadinessProbe, path.Child("readinessProbe"), false)...)
	errs = append(errs, validProbe(c.StartupProbe, path.Child("startupProbe"), true)...)
	if c.Lifecycle != nil {
		errs = append(errs, validHook(c.Lifecycle.PostStart, path.Child("lifecycle", "postStart"))...)
		errs = append(errs, validHook(c.Lifecycle.PreStop, path.Child("lifecycle", "preStop"))...)
	}
	return append(errs, validContainerSecurity(c.SecurityContext, path.Child("securityContext"))...)
}

func validContainerSecurity(s *corev1.SecurityContext, path *field.Path) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	for name, id := range map[string]*int64{"runAsUser": s.RunAsUser, "runAsGroup": s.RunAsGroup} {
		if id != nil {
			errs = append(errs, invalid(path.Child(name), *id, validation.IsValidUserID(*id))...)
		}
	}
	if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		return errs
	}
	if s.Privileged != nil && *s.Privileged {
		errs = append(errs, field.Invalid(path, s, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
	}
	if s.Capabilities != nil {
		for _, add := range s.Capabilities.Add {
			if add == "CAP_SYS_ADMIN" {
				errs = append(errs, field.Invalid(path, s, "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
			}
		}
	}
	return errs
}

func validPort(n int32, path *field.Path) field.ErrorList {
	return invalid(path, n, validation.IsValidPortNum(int(n)))
}

func validPorts(ports []corev1.ContainerPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		at := path.Index(i)
		if p.Name != "" {
			if bad := validation.IsValidPortName(p.Name); len(bad) > 0 {
				errs = append(errs, invalid(at.Child("name"), p.Name, bad)...)
			} else if names[p.Name] {
				errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(at.Child("containerPort"), ""))
		} else {
			errs = append(errs, validPort(p.ContainerPort, at.Child("containerPort"))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, validPort(p.HostPort, at.Child("hostPort"))...)
		}
		errs = append(errs, oneOf(p.Protocol, at.Child("protocol"), corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)...)
		if p.HostIP != "" {
			errs = append(errs, validation.IsValidIPForLegacyField(at.Child("hostIP"), p.HostIP, false, nil)...)
		}
	}
	return errs
}

func validEnv(env []corev1.EnvVar, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, e := range env {
		at := path.Index(i)
		if e.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, invalid(at.Child("name"), e.Name, validation.IsRelaxedEnvVarName(e.Name))...)
		}
		errs = append(errs, validEnvSource(e, at.Child("valueFrom"))...)
	}
	return errs
}

func validEnvSource(e corev1.EnvVar, path *field.Path) field.ErrorList {
	from := e.ValueFrom
	if from == nil {
		return nil
	}
	var errs field.ErrorList
	sources := 0
	if from.FieldRef != nil {
		sources++
		errs = append(errs, validFieldRef(from.FieldRef, envFields, path.Child("fieldRef"))...)
	}
	if r := from.ResourceFieldRef; r != nil {
		sources++
		errs = append(errs, validResourceRef(r, false, path.Child("resourceFieldRef"))...)
	}
	if r := from.ConfigMapKeyRef; r != nil {
		sources++
		errs = append(errs, validKeyRef(r.Name, r.Key, path.Child("configMapKeyRef"))...)
	}
	if r := from.SecretKeyRef; r != nil {
		sources++
		errs = append(errs, validKeyRef(r.Name, r.Key, path.Child("secretKeyRef"))...)
	}
	if r := from.FileKeyRef; r != nil {
		sources++
		errs = append(errs, required(r.VolumeName, path.Child("fileKeyRef", "volumeName"))...)
		errs = append(errs, required(r.Path, path.Child("fileKeyRef", "path"))...)
		errs = append(errs, required(r.Key, path.Child("fileKeyRef", "key"))...)
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case e.Value != "":
		errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func validKeyRef(name, key string, path *field.Path) field.ErrorList {
	errs := required(name, path.Child("name"))
	if key == "" {
		return append(errs, field.Required(path.Child("key"), ""))
	}
	return append(errs, invalid(path.Child("key"), key, validation.IsConfigMapKey(key))...)
}

// Fields of the pod that the downward API gives: as variables, and as files.
var (
	envFields = []string{
		"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
	}
	fileFields = []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
)

// podFields are the fields of a pod that have a name, wherever it may be used.
var podFields = append([]string{
	"metadata.labels", "metadata.annotations", "spec.restartPolicy", "spec.schedulerName", "spec.hostNetwork",
	"status.phase", "status.nominatedNodeName",
}, envFields...)

func validFieldRef(ref *corev1.ObjectFieldSelector, allowed []string, path *field.Path) field.ErrorList {
	if ref.APIVersion == "" {
		return field.ErrorList{field.Required(path.Child("apiVersion"), "")}
	}
	if ref.FieldPath == "" {
		return field.ErrorList{field.Required(path.Child("fieldPath"), "")}
	}
	base, key, subscript := strings.Cut(strings.TrimSuffix(ref.FieldPath, "']"), "['")
	if subscript && (base == "metadata.labels" || base == "metadata.annotations") {
		return invalid(path, key, validation.IsQualifiedName(strings.ToLower(key)))
	}
	for _, a := range allowed {
		if a == ref.FieldPath {
			return nil
		}
	}
	if slices.Contains(podFields, base) {
		return field.ErrorList{field.NotSupported(path.Child("fieldPath"), ref.FieldPath, allowed)}
	}
	return field.ErrorList{field.Invalid(path.Child("fieldPath"), ref.FieldPath, "error converting fieldPath: field label not supported: "+ref.FieldPath)}
}

func validResourceRef(r *corev1.ResourceFieldSelector, volume bool, path *field.Path) field.ErrorList {
	if volume && r.ContainerName == "" {
		return field.ErrorList{field.Required(path.Child("containerName"), "")}
	}
	if r.Resource == "" {
		return field.ErrorList{field.Required(path.Child("resource"), "")}
	}
	allowed := []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"}
	if strings.HasPrefix(r.Resource, "limits.hugepages-") || strings.HasPrefix(r.Resource, "requests.hugepages-") {
		return nil
	}
	return oneOf(r.Resource, path.Child("resource"), allowed...)
}

func validEnvFrom(sources []corev1.EnvFromSource, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, s := range sources {
		at := path.Index(i)
		if s.Prefix != "" {
			errs = append(errs, invalid(at.Child("prefix"), s.Prefix, validation.IsRelaxedEnvVarName(s.Prefix))...)
		}
		switch {
		case s.ConfigMapRef == nil && s.SecretRef == nil:
			errs = append(errs, field.Invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
		case s.ConfigMapRef != nil && s.SecretRef != nil:
			errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
		case s.ConfigMapRef != nil:
			errs = append(errs, required(s.ConfigMapRef.Name, at.Child("configMapRef", "name"))...)
		default:
			errs = append(errs, required(s.SecretRef.Name, at.Child("secretRef", "name"))...)
		}
	}
	return errs
}

func validMounts(mounts []corev1.VolumeMount, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	used := map[string]bool{}
	for i, m := range mounts {
		at := path.Index(i)
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else if volumes[m.Name] == nil {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		if m.MountPath == "" {
			errs = append(errs, field.Required(at.Child("mountPath"), ""))
		}
		if used[m.MountPath] {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
		used[m.MountPath] = true
		if m.SubPath != "" && m.SubPathExpr != "" {
			errs = append(errs, field.Invalid(at.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive"))
		}
		errs = append(errs, validLocalPath(m.SubPath, at.Child("subPath"))...)
		errs = append(errs, validLocalPath(m.SubPathExpr, at.Child("subPathExpr"))...)
		errs = append(errs, oneOfIfSet(m.MountPropagation, at.Child("mountPropagation"), corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)...)
		if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled && !m.ReadOnly {
			errs = append(errs, field.Forbidden(at.Child("recursiveReadOnly"), "may only be specified when readOnly is true"))
		}
	}
	return errs
}

func validDevices(c *corev1.Container, volumes map[string]*corev1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, d := range c.VolumeDevices {
		at := path.Index(i)
		switch v := volumes[d.Name]; {
		case d.Name == "":
			errs = append(errs, field.Required(at.Child("name"), ""))
		case v == nil:
			errs = append(errs, field.NotFound(at.Child("name"), d.Name))
		case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
			errs = append(errs, field.Invalid(at.Child("name"), d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"))
		}
		errs = append(errs, required(d.DevicePath, at.Child("devicePath"))...)
	}
	return errs
}

// validLocalPath keeps a path inside the place that it is relative to.
func validLocalPath(p string, path *field.Path) field.ErrorList {
	if p == "" {
		return nil
	}
	var errs field.ErrorList
	if strings.HasPrefix(p, "/") {
		errs = append(errs, field.Invalid(path, p, "must be a relative path"))
	}
	return append(errs, noBacksteps(p, path)...)
}

func noBacksteps(p string, path *field.Path) field.ErrorList {
	for _, part := range strings.Split(p, "/") {
		if part == ".." {
			return field.ErrorList{field.Invalid(path, p, "must not contain '..'")}
		}
	}
	return nil
}

func validProbe(p *corev1.Probe, path *field.Path, onceOnly bool) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validHandler(&corev1.LifecycleHandler{Exec: p.Exec, HTTPGet: p.HTTPGet, TCPSocket: p.TCPSocket}, p.GRPC, path)
	for _, n := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds}, {"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold}, {"failureThreshold", p.FailureThreshold},
	} {
		errs = append(errs, nonNegative(n.value, path.Child(n.name))...)
	}
	if onceOnly && p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(path.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	if p.TerminationGracePeriodSeconds != nil {
		if !onceOnly {
			errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), p.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
		} else if *p.TerminationGracePeriodSeconds <= 0 {
			errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds, "must be greater than 0"))
		}
	}
	return errs
}

func validHook(h *corev1.LifecycleHandler, path *field.Path) field.ErrorList {
	if h == nil {
		return nil
	}
	return validHandler(h, nil, path)
}

// validHandler wants exactly one way of asking or telling.
func validHandler(h *corev1.LifecycleHandler, grpc *corev1.GRPCAction, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	count := 0
	next := func(name string) bool {
		if count++; count > 1 {
			errs = append(errs, field.Forbidden(path.Child(name), "may not specify more than 1 handler type"))
			return false
		}
		return true
	}
	if h.Exec != nil && next("exec") && len(h.Exec.Command) == 0 {
		errs = append(errs, field.Required(path.Child("exec", "command"), ""))
	}
	if h.HTTPGet != nil && next("httpGet") {
		at := path.Child("httpGet")
		errs = append(errs, required(h.HTTPGet.Path, at.Child("path"))...)
		errs = append(errs, validPortOrName(h.HTTPGet.Port, at.Child("port"))...)
		errs = append(errs, oneOf(h.HTTPGet.Scheme, at.Child("scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
		for _, header := range h.HTTPGet.HTTPHeaders {
			errs = append(errs, invalid(at.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))...)
		}
	}
	if h.TCPSocket != nil && next("tcpSocket") {
		errs = append(errs, validPortOrName(h.TCPSocket.Port, path.Child("tcpSocket", "port"))...)
	}
	if grpc != nil && next("grpc") {
		errs = append(errs, validPort(grpc.Port, path.Child("grpc", "port"))...)
	}
	if h.Sleep != nil && next("sleep") {
		errs = append(errs, nonNegative(h.Sleep.Seconds, path.Child("sleep", "seconds"))...)
	}
	if count == 0 {
		errs = append(errs, field.Required(path, "must specify a handler type"))
	}
	return errs
}

func validPortOrName(p intstr.IntOrString, path *field.Path) field.ErrorList {
	if p.Type == intstr.String {
		return invalid(path, p.StrVal, validation.IsValidPortName(p.StrVal))
	}
	return invalid(path, p.IntValue(), validation.IsValidPortNum(p.IntValue()))
}

// ValidateResources names the faults of requests and limits.
func ValidateResources(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	errs := validQuantities(r.Limits, path.Child("limits"))
	errs = append(errs, validQuantities(r.Requests, path.Child("requests"))...)
	for name, request := range r.Requests {
		limit, limited := r.Limits[name]
		switch {
		case limited && request.Cmp(limit) != 0 && !overcommittable(name):
			errs = append(errs, field.Invalid(path.Child("requests"), request.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case limited && request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(path.Child("requests"), request.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		case !limited && !overcommittable(name):
			errs = append(errs, field.Required(path.Child("limits"), "Limit must be set for non overcommitable resources"))
		}
	}
	return errs
}

// overcommittable resources may be promised more than once: all of the nodes'
// own but huge pages.
func overcommittable(name corev1.ResourceName) bool {
	s := string(name)
	return !strings.HasPrefix(s, corev1.ResourceHugePagesPrefix) && (!strings.Contains(s, "/") || strings.Contains(s, "kubernetes.io/"))
}

func validQuantities(list corev1.ResourceList, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for name, q := range list {
		at := path.Key(string(name))
		errs = append(errs, validResourceName(string(name), at)...)
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(at, q.String(), notNegative))
		}
		if strings.Contains(string(name), "/") && q.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at, q.String(), "must be an integer"))
		}
	}
	return errs
}

func validResourceName(name string, path *field.Path) field.ErrorList {
	if bad := validation.IsQualifiedName(name); len(bad) > 0 {
		return invalid(path, name, bad)
	}
	if strings.Contains(name, "/") || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix) {
		return nil
	}
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return nil
	}
	return field.ErrorList{field.Invalid(path, name, "must be a standard resource for containers")}
}
