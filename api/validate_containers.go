package api

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validContainers checks the main containers.
func (c *podCheck) validContainers(at *field.Path) field.ErrorList {
	if len(c.spec.Containers) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range c.spec.Containers {
		one, here := &c.spec.Containers[i], at.Index(i)
		errs = append(errs, c.validContainer(one, here)...)
		if names[one.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), one.Name))
		}
		names[one.Name] = true
		errs = append(errs, c.validLifecycle(one, here)...)
		errs = append(errs, validRestart(one, here)...)
	}
	return append(errs, validHostPorts(c.spec.Containers, at)...)
}

// validInitContainers checks the init containers. Only those that go on running
// have probes and hooks.
func (c *podCheck) validInitContainers(at *field.Path) field.ErrorList {
	const onlySidecars = "may not be set for init containers without restartPolicy=Always"
	var errs field.ErrorList
	names := c.names(false)
	for i := range c.spec.InitContainers {
		one, here := &c.spec.InitContainers[i], at.Index(i)
		errs = append(errs, c.validContainer(one, here)...)
		errs = append(errs, validRestart(one, here)...)
		if names[one.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), one.Name))
		}
		names[one.Name] = one.Name != ""
		errs = append(errs, validHostPorts([]corev1.Container{*one}, at)...)
		if IsSidecar(one) {
			errs = append(errs, c.validLifecycle(one, here)...)
			continue
		}
		errs = append(errs, forbid(one.Lifecycle != nil, here.Child("lifecycle"), onlySidecars)...)
		errs = append(errs, forbid(one.LivenessProbe != nil, here.Child("livenessProbe"), onlySidecars)...)
		errs = append(errs, forbid(one.ReadinessProbe != nil, here.Child("readinessProbe"), onlySidecars)...)
		errs = append(errs, forbid(one.StartupProbe != nil, here.Child("startupProbe"), onlySidecars)...)
		for j, p := range one.ResizePolicy {
			errs = append(errs, c.old("restarting init container", refuse(p.RestartPolicy == corev1.RestartContainer, here.Child("resizePolicy").Index(j).Child("restartPolicy"),
				p.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers"))...)
		}
	}
	return errs
}

// names are those of the containers that are part of the pod from its beginning.
func (c *podCheck) names(initToo bool) map[string]bool {
	names := map[string]bool{}
	for i := range c.spec.Containers {
		names[c.spec.Containers[i].Name] = true
	}
	for i := range c.spec.InitContainers {
		if initToo {
			names[c.spec.InitContainers[i].Name] = true
		}
	}
	return names
}

// validEphemeral keeps ephemeral containers to what can be added to a pod that
// runs.
func (c *podCheck) validEphemeral(at *field.Path) field.ErrorList {
	const why = "cannot be set for an Ephemeral Container"
	var errs field.ErrorList
	all, targets := c.names(true), c.names(true)
	for i := range c.spec.EphemeralContainers {
		e, here := &c.spec.EphemeralContainers[i], at.Index(i)
		one := corev1.Container(e.EphemeralContainerCommon)
		errs = append(errs, c.validContainer(&one, here)...)
		errs = append(errs, validImageSpace(&one, here)...)
		if all[e.Name] {
			errs = append(errs, field.Duplicate(here.Child("name"), e.Name))
		}
		all[e.Name] = true
		if e.TargetContainerName != "" && !targets[e.TargetContainerName] {
			errs = append(errs, field.NotFound(here.Child("targetContainerName"), e.TargetContainerName))
		}
		errs = append(errs, onlyFields(e.EphemeralContainerCommon, here, why, "Name", "Image", "Command", "Args", "WorkingDir", "EnvFrom", "Env", "VolumeMounts", "VolumeDevices",
			"TerminationMessagePath", "TerminationMessagePolicy", "ImagePullPolicy", "SecurityContext", "Stdin", "StdinOnce", "TTY")...)
		for j, m := range e.VolumeMounts {
			errs = append(errs, forbid(m.SubPath != "", here.Child("volumeMounts").Index(j).Child("subPath"), why)...)
			errs = append(errs, forbid(m.SubPathExpr != "", here.Child("volumeMounts").Index(j).Child("subPathExpr"), why)...)
		}
	}
	return errs
}

// onlyFields forbids all fields of a struct but those named.
func onlyFields(of any, at *field.Path, why string, allowed ...string) field.ErrorList {
	var errs field.ErrorList
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; !v.Field(i).IsZero() && !slices.Contains(allowed, name) {
			errs = append(errs, field.Forbidden(at.Child(string(unicode.ToLower(rune(name[0])))+name[1:]), why))
		}
	}
	return errs
}

// validContainer checks what all containers have.
func (c *podCheck) validContainer(one *corev1.Container, at *field.Path) field.ErrorList {
	errs := requiredValid(one.Name, at.Child("name"), label)
	errs = append(errs, required(one.Image, at.Child("image"))...)
	errs = append(errs, requiredAmong(one.TerminationMessagePolicy, at.Child("terminationMessagePolicy"), corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, validPorts(one.Ports, at.Child("ports"))...)
	errs = append(errs, validEnv(one.Env, at.Child("env"))...)
	errs = append(errs, validEnvFrom(one.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, c.validMounts(one, at.Child("volumeMounts"))...)
	errs = append(errs, c.validDevices(one, at.Child("volumeDevices"))...)
	errs = append(errs, validPullPolicy(one.ImagePullPolicy, at.Child("imagePullPolicy"))...)
	errs = append(errs, c.validResources(&one.Resources, validContainerResource, at.Child("resources"))...)
	errs = append(errs, c.validResizePolicy(one.ResizePolicy, at.Child("resizePolicy"))...)
	return append(errs, c.validContainerSecurity(one.SecurityContext, at.Child("securityContext"))...)
}

// validImageSpace is a rule for pods only: templates had images with spaces before
// there was one.
func validImageSpace(one *corev1.Container, at *field.Path) field.ErrorList {
	return refuse(strings.TrimSpace(one.Image) != one.Image, at.Child("image"), one.Image, "must not have leading or trailing whitespace")
}

func validPullPolicy(p corev1.PullPolicy, at *field.Path) field.ErrorList {
	return oneOf(p, at, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

func (c *podCheck) validLifecycle(one *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if l := one.Lifecycle; l != nil {
		here := at.Child("lifecycle")
		if l.PostStart != nil {
			errs = append(errs, c.validHook(l.PostStart, here.Child("postStart"))...)
		}
		if l.PreStop != nil {
			errs = append(errs, c.validHook(l.PreStop, here.Child("preStop"))...)
		}
	}
	errs = append(errs, validProbe(one.LivenessProbe, at.Child("livenessProbe"))...)
	errs = append(errs, onlyOnce(one.LivenessProbe, at.Child("livenessProbe"))...)
	errs = append(errs, validProbe(one.ReadinessProbe, at.Child("readinessProbe"))...)
	if p := one.ReadinessProbe; p != nil {
		errs = append(errs, refuse(p.TerminationGracePeriodSeconds != nil, at.Child("readinessProbe", "terminationGracePeriodSeconds"), p.TerminationGracePeriodSeconds, "must not be set for readinessProbes")...)
	}
	errs = append(errs, validProbe(one.StartupProbe, at.Child("startupProbe"))...)
	return append(errs, onlyOnce(one.StartupProbe, at.Child("startupProbe"))...)
}

func (c *podCheck) validHook(h *corev1.LifecycleHandler, at *field.Path) field.ErrorList {
	return validHandler(handler{h.Exec, h.HTTPGet, h.TCPSocket, nil, h.Sleep, c.spec.TerminationGracePeriodSeconds}, at)
}

func validProbe(p *corev1.Probe, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validHandler(handler{p.Exec, p.HTTPGet, p.TCPSocket, p.GRPC, nil, nil}, at)
	errs = append(errs, nonNegative(p.InitialDelaySeconds, at.Child("initialDelaySeconds"))...)
	errs = append(errs, nonNegative(p.TimeoutSeconds, at.Child("timeoutSeconds"))...)
	errs = append(errs, nonNegative(p.PeriodSeconds, at.Child("periodSeconds"))...)
	errs = append(errs, nonNegative(p.SuccessThreshold, at.Child("successThreshold"))...)
	errs = append(errs, nonNegative(p.FailureThreshold, at.Child("failureThreshold"))...)
	if grace := p.TerminationGracePeriodSeconds; grace != nil {
		errs = append(errs, refuse(*grace <= 0, at.Child("terminationGracePeriodSeconds"), *grace, "must be greater than 0")...)
	}
	return errs
}

// onlyOnce wants a probe whose success ends it to need just one.
func onlyOnce(p *corev1.Probe, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	return refuse(p.SuccessThreshold != 1, at.Child("successThreshold"), p.SuccessThreshold, "must be 1")
}

// handler is the ways in which probes and hooks ask or tell a container.
type handler struct {
	exec  *corev1.ExecAction
	http  *corev1.HTTPGetAction
	tcp   *corev1.TCPSocketAction
	grpc  *corev1.GRPCAction
	sleep *corev1.SleepAction
	grace *int64 // the longest sleep
}

// validHandler wants exactly one way.
func validHandler(h handler, at *field.Path) field.ErrorList {
	ways := []struct {
		name  string
		set   bool
		check func(*field.Path) field.ErrorList
	}{
		{"exec", h.exec != nil, func(at *field.Path) field.ErrorList { return need(len(h.exec.Command) == 0, at.Child("command"), "") }},
		{"httpGet", h.http != nil, func(at *field.Path) field.ErrorList { return validHTTPGet(h.http, at) }},
		{"tcpSocket", h.tcp != nil, func(at *field.Path) field.ErrorList { return validPortOrName(h.tcp.Port, at.Child("port")) }},
		{"grpc", h.grpc != nil, func(at *field.Path) field.ErrorList {
			return validPortOrName(intstr.FromInt32(h.grpc.Port), at.Child("port"))
		}},
		{"sleep", h.sleep != nil, func(at *field.Path) field.ErrorList {
			if h.grace == nil {
				return nil
			}
			n := h.sleep.Seconds
			return refuse(n < 0 || n > *h.grace, at, n, fmt.Sprintf("must be non-negative and less than terminationGracePeriodSeconds (%d)", *h.grace))
		}},
	}
	var errs field.ErrorList
	found := false
	for _, w := range ways {
		switch {
		case !w.set:
			continue
		case found:
			errs = append(errs, field.Forbidden(at.Child(w.name), "may not specify more than 1 handler type"))
		default:
			errs = append(errs, w.check(at.Child(w.name))...)
		}
		found = true
	}
	return append(errs, need(!found, at, "must specify a handler type")...)
}

func validHTTPGet(g *corev1.HTTPGetAction, at *field.Path) field.ErrorList {
	errs := append(required(g.Path, at.Child("path")), validPortOrName(g.Port, at.Child("port"))...)
	errs = append(errs, among(g.Scheme, at.Child("scheme"), corev1.URISchemeHTTP, corev1.URISchemeHTTPS)...)
	for _, header := range g.HTTPHeaders {
		errs = append(errs, invalid(at.Child("httpHeaders"), header.Name, validation.IsHTTPHeaderName(header.Name))...)
	}
	return errs
}

func validPortOrName(p intstr.IntOrString, at *field.Path) field.ErrorList {
	if p.Type == intstr.String {
		return invalid(at, p.StrVal, validation.IsValidPortName(p.StrVal))
	}
	return invalid(at, p.IntValue(), validation.IsValidPortNum(p.IntValue()))
}

// validRestart checks when a container is started again by itself.
func validRestart(one *corev1.Container, at *field.Path) field.ErrorList {
	const mostRules, mostValues = 20, 255
	policy, rules := one.RestartPolicy, one.RestartPolicyRules
	errs := need(policy == nil && len(rules) > 0, at.Child("restartPolicy"), "must specify restartPolicy when restart rules are used")
	errs = append(errs, amongIfSet(policy, at.Child("restartPolicy"), corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure)...)
	if len(rules) > mostRules {
		errs = append(errs, field.TooMany(at.Child("restartPolicyRules"), len(rules), mostRules))
	}
	for i, rule := range rules {
		here := at.Child("restartPolicyRules").Index(i)
		errs = append(errs, among(rule.Action, here.Child("action"), corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers)...)
		codes, here := rule.ExitCodes, here.Child("exitCodes")
		if codes == nil {
			errs = append(errs, field.Required(here, "must be specified"))
			continue
		}
		errs = append(errs, among(codes.Operator, here.Child("operator"), corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn)...)
		if len(codes.Values) > mostValues {
			errs = append(errs, field.TooMany(here.Child("values"), len(codes.Values), mostValues))
		}
	}
	return errs
}

func (c *podCheck) validResizePolicy(policies []corev1.ContainerResizePolicy, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceName]bool{}
	for i, p := range policies {
		if seen[p.ResourceName] {
			errs = append(errs, field.Duplicate(at.Index(i), p.ResourceName))
		}
		seen[p.ResourceName] = true
		errs = append(errs, oneOf(p.ResourceName, at, corev1.ResourceCPU, corev1.ResourceMemory)...)
		errs = append(errs, oneOf(p.RestartPolicy, at, corev1.NotRequired, corev1.RestartContainer)...)
		errs = append(errs, refuse(c.spec.RestartPolicy == corev1.RestartPolicyNever && p.RestartPolicy != corev1.NotRequired, at, p.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")...)
	}
	return errs
}

func validPort(n int32, at *field.Path) field.ErrorList {
	return invalid(at, n, validation.IsValidPortNum(int(n)))
}

func validProtocol(p corev1.Protocol, at *field.Path) field.ErrorList {
	return oneOf(p, at, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

func validPorts(ports []corev1.ContainerPort, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i, p := range ports {
		here := at.Index(i)
		if p.Name != "" {
			bad := validation.IsValidPortName(p.Name)
			errs = append(errs, invalid(here.Child("name"), p.Name, bad)...)
			if len(bad) == 0 && names[p.Name] {
				errs = append(errs, field.Duplicate(here.Child("name"), p.Name))
			}
			names[p.Name] = names[p.Name] || len(bad) == 0
		}
		if p.ContainerPort == 0 {
			errs = append(errs, field.Required(here.Child("containerPort"), ""))
		} else {
			errs = append(errs, validPort(p.ContainerPort, here.Child("containerPort"))...)
		}
		if p.HostPort != 0 {
			errs = append(errs, validPort(p.HostPort, here.Child("hostPort"))...)
		}
		errs = append(errs, validProtocol(p.Protocol, here.Child("protocol"))...)
	}
	return errs
}

// validHostPorts wants each port of the host to be asked for once.
func validHostPorts(containers []corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	used := map[string]bool{}
	for i := range containers {
		for j, p := range containers[i].Ports {
			if p.HostPort == 0 {
				continue
			}
			key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
			if used[key] {
				errs = append(errs, field.Duplicate(at.Index(i).Child("ports").Index(j).Child("hostPort"), key))
			}
			used[key] = true
		}
	}
	return errs
}

func validEnv(env []corev1.EnvVar, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range env {
		errs = append(errs, requiredValid(env[i].Name, at.Index(i).Child("name"), validation.IsRelaxedEnvVarName)...)
		errs = append(errs, validEnvSource(&env[i], at.Index(i).Child("valueFrom"))...)
	}
	return errs
}

func validEnvSource(e *corev1.EnvVar, at *field.Path) field.ErrorList {
	from := e.ValueFrom
	if from == nil {
		return nil
	}
	var errs field.ErrorList
	sources := 0
	if from.FieldRef != nil {
		sources++
		errs = append(errs, validFieldRef(from.FieldRef, envFields, at.Child("fieldRef"))...)
	}
	if r := from.ResourceFieldRef; r != nil {
		sources++
		errs = append(errs, validResourceRef(r, false, at.Child("resourceFieldRef"))...)
	}
	if r := from.ConfigMapKeyRef; r != nil {
		sources++
		errs = append(errs, validKeyRef(r.Name, r.Key, at.Child("configMapKeyRef"))...)
	}
	if r := from.SecretKeyRef; r != nil {
		sources++
		errs = append(errs, validKeyRef(r.Name, r.Key, at.Child("secretKeyRef"))...)
	}
	if r := from.FileKeyRef; r != nil {
		sources++
		here := at.Child("fileKeyRef")
		errs = append(errs, requiredValid(r.Key, here.Child("key"), validation.IsRelaxedEnvVarName)...)
		errs = append(errs, requiredValid(r.VolumeName, here.Child("volumeName"), label)...)
		errs = append(errs, validHostFile(r.Path, here.Child("path"))...)
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case e.Value != "":
		errs = append(errs, field.Invalid(at, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func validKeyRef(name, key string, at *field.Path) field.ErrorList {
	return append(invalid(at.Child("name"), name, subdomain(name)), requiredValid(key, at.Child("key"), validation.IsConfigMapKey)...)
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
	"metadata.labels", "metadata.annotations", "spec.restartPolicy", "spec.schedulerName", "status.phase",
}, envFields...)

func validFieldRef(ref *corev1.ObjectFieldSelector, allowed []string, at *field.Path) field.ErrorList {
	switch {
	case ref.APIVersion == "":
		return field.ErrorList{field.Required(at.Child("apiVersion"), "")}
	case ref.FieldPath == "":
		return field.ErrorList{field.Required(at.Child("fieldPath"), "")}
	}
	unknown := func(why string) field.ErrorList {
		return field.ErrorList{field.Invalid(at.Child("fieldPath"), ref.FieldPath, "error converting fieldPath: "+why)}
	}
	if ref.APIVersion != "v1" {
		return unknown("unsupported pod version: " + ref.APIVersion)
	}
	text, subscripted := strings.CutSuffix(ref.FieldPath, "']")
	if base, key, ok := strings.Cut(text, "['"); subscripted && ok && base != "" {
		switch base {
		case "metadata.annotations":
			key = strings.ToLower(key)
		case "metadata.labels":
		default:
			return unknown("field label does not support subscript: " + ref.FieldPath)
		}
		return invalid(at, key, validation.IsQualifiedName(key))
	}
	name := ref.FieldPath
	if name == "spec.host" { // its name in the first versions
		name = "spec.nodeName"
	}
	if !slices.Contains(podFields, name) {
		return unknown("field label not supported: " + ref.FieldPath)
	}
	return among(name, at.Child("fieldPath"), allowed...)
}

func validResourceRef(r *corev1.ResourceFieldSelector, volume bool, at *field.Path) field.ErrorList {
	huge := strings.HasPrefix(r.Resource, "limits.hugepages-") || strings.HasPrefix(r.Resource, "requests.hugepages-")
	var errs field.ErrorList
	switch {
	case volume && r.ContainerName == "":
		errs = append(errs, field.Required(at.Child("containerName"), ""))
	case r.Resource == "":
		errs = append(errs, field.Required(at.Child("resource"), ""))
	case !huge:
		errs = append(errs, among(r.Resource, at.Child("resource"), "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory")...)
	}
	return append(errs, validDivisor(r, huge, at.Child("divisor"))...)
}

// validDivisor wants a unit in which the resource is counted.
func validDivisor(r *corev1.ResourceFieldSelector, huge bool, at *field.Path) field.ErrorList {
	if r.Divisor.IsZero() {
		return nil
	}
	units, what := []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}, ""
	listed := strings.Join(units, ", ")
	switch strings.TrimPrefix(strings.TrimPrefix(r.Resource, "limits."), "requests.") {
	case "cpu":
		units, listed, what = []string{"1m", "1"}, "1m and 1", "cpu"
	case "memory":
		what = "memory"
	case "ephemeral-storage":
		what = "local ephemeral storage"
	default:
		if !huge {
			return nil
		}
		what = "hugepages"
	}
	return refuse(!slices.Contains(units, r.Divisor.String()), at, r.Resource, fmt.Sprintf("only divisor's values %s are supported with the %s resource", listed, what))
}

func validEnvFrom(sources []corev1.EnvFromSource, at *field.Path) field.ErrorList {
	// A name is looked at as if more of it were to come.
	name := func(s string) []string {
		if len(s) > 1 && strings.HasSuffix(s, "-") {
			s = s[:len(s)-2] + "a"
		}
		return subdomain(s)
	}
	var errs field.ErrorList
	for i, s := range sources {
		here := at.Index(i)
		errs = append(errs, validIfSet(s.Prefix, here.Child("prefix"), validation.IsRelaxedEnvVarName)...)
		if s.ConfigMapRef != nil {
			errs = append(errs, requiredValid(s.ConfigMapRef.Name, here.Child("configMapRef", "name"), name)...)
		}
		if s.SecretRef != nil {
			errs = append(errs, requiredValid(s.SecretRef.Name, here.Child("secretRef", "name"), name)...)
		}
		errs = append(errs, refuse(s.ConfigMapRef == nil && s.SecretRef == nil, at, "", "must specify one of: `configMapRef` or `secretRef`")...)
		errs = append(errs, refuse(s.ConfigMapRef != nil && s.SecretRef != nil, at, "", "may not have more than one field specified at a time")...)
	}
	return errs
}

// validMounts checks the mounts of a container. Some of their faults do not tell
// which mount it is.
func (c *podCheck) validMounts(one *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	used := map[string]bool{}
	for i, m := range one.VolumeMounts {
		here := at.Index(i)
		errs = append(errs, required(m.Name, here.Child("name"))...)
		if c.volumes[m.Name] == nil {
			errs = append(errs, field.NotFound(here.Child("name"), m.Name))
		}
		errs = append(errs, required(m.MountPath, here.Child("mountPath"))...)
		errs = append(errs, refuse(used[m.MountPath], here.Child("mountPath"), m.MountPath, "must be unique")...)
		used[m.MountPath] = true
		sameName := func(d corev1.VolumeDevice) bool { return d.Name == m.Name }
		errs = append(errs, refuse(slices.ContainsFunc(one.VolumeDevices, sameName), here.Child("name"), m.Name, "must not already exist in volumeDevices")...)
		samePath := func(d corev1.VolumeDevice) bool { return d.DevicePath == m.MountPath }
		errs = append(errs, refuse(slices.ContainsFunc(one.VolumeDevices, samePath), here.Child("mountPath"), m.MountPath, "must not already exist as a path in volumeDevices")...)
		errs = append(errs, validLocalPath(m.SubPath, at.Child("subPath"))...)
		errs = append(errs, refuse(m.SubPath != "" && m.SubPathExpr != "", here.Child("subPathExpr"), m.SubPathExpr, "subPathExpr and subPath are mutually exclusive")...)
		errs = append(errs, validLocalPath(m.SubPathExpr, at.Child("subPathExpr"))...)
		errs = append(errs, validPropagation(&m, one.SecurityContext, at)...)
	}
	return errs
}

// validPropagation checks how far a mount, or that it is read only, reaches.
func validPropagation(m *corev1.VolumeMount, s *corev1.SecurityContext, at *field.Path) field.ErrorList {
	p := m.MountPropagation
	errs := amongIfSet(p, at.Child("mountPropagation"), corev1.MountPropagationBidirectional, corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
	privileged := s != nil && s.Privileged != nil && *s.Privileged
	errs = append(errs, forbid(p != nil && *p == corev1.MountPropagationBidirectional && !privileged, at.Child("mountPropagation"), "Bidirectional mount propagation is available only to privileged containers")...)
	r, at := m.RecursiveReadOnly, at.Child("recursiveReadOnly")
	errs = append(errs, amongIfSet(r, at, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)...)
	recursive := r != nil && (*r == corev1.RecursiveReadOnlyEnabled || *r == corev1.RecursiveReadOnlyIfPossible)
	errs = append(errs, forbid(recursive && !m.ReadOnly, at, "may only be specified when readOnly is true")...)
	return append(errs, forbid(recursive && p != nil && *p != corev1.MountPropagationNone, at, "may only be specified when mountPropagation is None or not specified")...)
}

func (c *podCheck) validDevices(one *corev1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	names, paths := map[string]bool{}, map[string]bool{}
	for i, d := range one.VolumeDevices {
		name, path := at.Index(i).Child("name"), at.Index(i).Child("devicePath")
		v := c.volumes[d.Name]
		errs = append(errs, required(d.Name, name)...)
		errs = append(errs, refuse(names[d.Name], name, d.Name, "must be unique")...)
		errs = append(errs, refuse(v != nil && v.PersistentVolumeClaim == nil && v.Ephemeral == nil, name, d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")...)
		if v == nil {
			errs = append(errs, field.NotFound(name, d.Name))
		}
		errs = append(errs, required(d.DevicePath, path)...)
		errs = append(errs, refuse(paths[d.DevicePath], path, d.DevicePath, "must be unique")...)
		backsteps := len(noBacksteps(d.DevicePath, path)) > 0
		errs = append(errs, refuse(backsteps, path, d.DevicePath, "can not contain backsteps ('..')")...)
		paths[d.DevicePath] = paths[d.DevicePath] || !backsteps
		sameName := func(m corev1.VolumeMount) bool { return m.Name == d.Name }
		errs = append(errs, refuse(slices.ContainsFunc(one.VolumeMounts, sameName), name, d.Name, "must not already exist in volumeMounts")...)
		samePath := func(m corev1.VolumeMount) bool { return m.MountPath == d.DevicePath }
		errs = append(errs, refuse(slices.ContainsFunc(one.VolumeMounts, samePath), path, d.DevicePath, "must not already exist as a path in volumeMounts")...)
		names[d.Name] = d.Name != ""
	}
	return errs
}
