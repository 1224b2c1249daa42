package nodeagent

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"orrery.dev/nodeagent/volume"
)

// environment is a container's environment: the services of its namespace,
// then envFrom, then env, each able to override what came before.
func (w *worker) environment(ctx context.Context, pod *corev1.Pod, c *corev1.Container, ips []string) ([]corev1.EnvVar, error) {
	services, err := w.a.serviceEnv(ctx, pod)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for _, from := range c.EnvFrom {
		if err := w.envFrom(ctx, pod, from, values); err != nil {
			return nil, err
		}
	}
	// References in env see what was defined before them, and the services.
	known := func(name string) (string, bool) {
		if v, ok := values[name]; ok {
			return v, true
		}
		v, ok := services[name]
		return v, ok
	}
	for _, e := range c.Env {
		value := e.Value
		switch {
		case e.ValueFrom != nil:
			v, ok, err := w.envValue(ctx, pod, c, e.ValueFrom, ips)
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
			value = v
		case value != "":
			value = expand(value, known)
		}
		values[e.Name] = value
	}
	for name, value := range services {
		if _, set := values[name]; !set {
			values[name] = value
		}
	}
	out := make([]corev1.EnvVar, 0, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, corev1.EnvVar{Name: name, Value: values[name]})
	}
	return out, nil
}

func envLookup(env []corev1.EnvVar) func(string) (string, bool) {
	values := map[string]string{}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	return func(name string) (string, bool) {
		v, ok := values[name]
		return v, ok
	}
}

// envFrom adds all of a ConfigMap or Secret.
func (w *worker) envFrom(ctx context.Context, pod *corev1.Pod, from corev1.EnvFromSource, values map[string]string) error {
	get := &objects{a: w.a}
	switch {
	case from.ConfigMapRef != nil:
		cm, err := get.ConfigMap(ctx, pod.Namespace, from.ConfigMapRef.Name)
		if volume.IsMissing(err) && isTrue(from.ConfigMapRef.Optional) {
			return nil
		}
		if err != nil {
			return err
		}
		for k, v := range cm.Data {
			values[from.Prefix+k] = v
		}
	case from.SecretRef != nil:
		secret, err := get.Secret(ctx, pod.Namespace, from.SecretRef.Name)
		if volume.IsMissing(err) && isTrue(from.SecretRef.Optional) {
			return nil
		}
		if err != nil {
			return err
		}
		for k, v := range secret.Data {
			values[from.Prefix+k] = string(v)
		}
	}
	return nil
}

// envValue is the value that a variable takes from elsewhere; ok is false when
// an optional source is not there.
func (w *worker) envValue(ctx context.Context, pod *corev1.Pod, c *corev1.Container, from *corev1.EnvVarSource, ips []string) (string, bool, error) {
	get := &objects{a: w.a}
	switch {
	case from.FieldRef != nil:
		v, err := w.a.field(pod, from.FieldRef.FieldPath, ips)
		return v, true, err
	case from.ResourceFieldRef != nil:
		v, err := volume.ResourceValue(pod, from.ResourceFieldRef, c.Name, w.a.allocatable())
		return v, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		cm, err := get.ConfigMap(ctx, pod.Namespace, ref.Name)
		if err != nil {
			return "", false, unlessOptional(err, ref.Optional)
		}
		if v, ok := cm.Data[ref.Key]; ok {
			return v, true, nil
		}
		if isTrue(ref.Optional) {
			return "", false, nil
		}
		return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, pod.Namespace, ref.Name)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		secret, err := get.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			return "", false, unlessOptional(err, ref.Optional)
		}
		if v, ok := secret.Data[ref.Key]; ok {
			return string(v), true, nil
		}
		if isTrue(ref.Optional) {
			return "", false, nil
		}
		return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, pod.Namespace, ref.Name)
	case from.FileKeyRef != nil:
		ref := from.FileKeyRef
		v, ok, err := volume.FileKey(w.volumes[ref.VolumeName], ref)
		return v, ok, err
	}
	return "", false, nil
}

func unlessOptional(err error, optional *bool) error {
	if volume.IsMissing(err) && isTrue(optional) {
		return nil
	}
	return err
}

// field is the value of a downward API field, including those that only the
// node knows.
func (a *Agent) field(pod *corev1.Pod, path string, ips []string) (string, error) {
	if pod.Spec.HostNetwork {
		ips = []string{a.cfg.NodeIP}
	}
	switch path {
	case "spec.nodeName":
		return a.cfg.NodeName, nil
	case "status.hostIP", "status.hostIPs":
		return a.cfg.NodeIP, nil
	case "status.podIP":
		if len(ips) > 0 {
			return ips[0], nil
		}
		return "", nil
	case "status.podIPs":
		return strings.Join(ips, ","), nil
	}
	return volume.FieldValue(pod, path)
}

// servicesPatience is how long a container's start waits for the services to be
// read: an agent that has just found the API server reads them in a moment, and
// failing would cost the pod its first back-off.
const servicesPatience = 5 * time.Second

func (a *Agent) servicesRead(ctx context.Context) bool {
	if a.synced() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, servicesPatience)
	defer cancel()
	return cache.WaitForCacheSync(ctx.Done(), a.synced)
}

// serviceEnv describes services as Docker links did. That of the API server is
// always there.
func (a *Agent) serviceEnv(ctx context.Context, pod *corev1.Pod) (map[string]string, error) {
	env := map[string]string{}
	if a.services == nil {
		return env, nil
	}
	if !isStatic(pod) && !a.servicesRead(ctx) {
		return nil, fmt.Errorf("services have not yet been read at least once, cannot construct envs")
	}
	api, _ := a.services.Services(corev1.NamespaceDefault).Get("kubernetes")
	if pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks {
		all, err := a.services.Services(pod.Namespace).List(labels.Everything())
		if err != nil {
			return nil, err
		}
		for _, svc := range all {
			addServiceEnv(env, svc)
		}
	}
	if api != nil {
		addServiceEnv(env, api)
	}
	return env, nil
}

func addServiceEnv(env map[string]string, svc *corev1.Service) {
	ip := svc.Spec.ClusterIP
	if ip == "" || ip == corev1.ClusterIPNone || len(svc.Spec.Ports) == 0 {
		return
	}
	prefix := strings.ToUpper(strings.ReplaceAll(svc.Name, "-", "_"))
	env[prefix+"_SERVICE_HOST"] = ip
	env[prefix+"_SERVICE_PORT"] = strconv.Itoa(int(svc.Spec.Ports[0].Port))
	for i, p := range svc.Spec.Ports {
		port := strconv.Itoa(int(p.Port))
		if p.Name != "" {
			env[prefix+"_SERVICE_PORT_"+strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))] = port
		}
		protocol := string(p.Protocol)
		if protocol == "" {
			protocol = "TCP"
		}
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(ip, port)
		if i == 0 {
			env[prefix+"_PORT"] = url
		}
		base := prefix + "_PORT_" + port + "_" + protocol
		env[base] = url
		env[base+"_PROTO"] = strings.ToLower(protocol)
		env[base+"_PORT"] = port
		env[base+"_ADDR"] = ip
	}
}

// expand replaces $(NAME). $$ is a dollar sign, and what can't be resolved is
// left as it is.
func expand(in string, lookup func(string) (string, bool)) string {
	var b strings.Builder
	for i := 0; i < len(in); i++ {
		if in[i] != '$' || i+1 == len(in) {
			b.WriteByte(in[i])
			continue
		}
		switch in[i+1] {
		case '$':
			b.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(in[i:], ')')
			if end < 0 {
				b.WriteString("$(")
				i++
				continue
			}
			name := in[i+2 : i+end]
			if v, ok := lookup(name); ok {
				b.WriteString(v)
			} else {
				b.WriteString(in[i : i+end+1])
			}
			i += end
		default:
			b.WriteString(in[i : i+2])
			i++
		}
	}
	return b.String()
}
