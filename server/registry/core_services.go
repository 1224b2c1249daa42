package registry

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
)

func serviceKind(gv schema.GroupVersion) *Kind {
	parts := halves[corev1.Service]{}
	return kind[corev1.Service, corev1.ServiceList]{
		Plural: "services", Short: []string{"svc"}, In: []string{"all"}, Prefix: "services/specs",
		Validate: api.ValidateService, Warn: api.WarnService,
		Columns: serviceColumns(), Row: serviceRow,
		Default:        api.DefaultService,
		CreateOnUpdate: true,
		ValidName:      apivalidation.NameIsDNSLabel,
		Prepare: func(s, old *corev1.Service) {
			parts.prepare(s, old)
			if old != nil {
				keepServiceFields(s, old)
			}
			if s.Spec.ClusterIP != "" && len(s.Spec.ClusterIPs) == 0 {
				s.Spec.ClusterIPs = []string{s.Spec.ClusterIP}
			}
		},
		Fields: func(s *corev1.Service) fields.Set {
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		},
		Sub: Sub{
			"status": warning(parts.sub(api.ValidateServiceStatus), api.WarnServiceStatus),
			"proxy":  handled[corev1.ServiceProxyOptions](gv.WithKind("ServiceProxyOptions"), proxyVerbs...),
		},
	}.erase(gv)
}

// keepServiceFields carries over what the cluster allocated, when an update
// leaves it out and still wants it: `kubectl replace` with the original
// manifest must not lose the address. What the new type does not use is dropped,
// unless the client changed it on purpose.
func keepServiceFields(s, old *corev1.Service) {
	is, was := &s.Spec, &old.Spec
	if is.Type != corev1.ServiceTypeExternalName && was.Type != corev1.ServiceTypeExternalName {
		if is.ClusterIP == "" {
			is.ClusterIP = was.ClusterIP
		}
		if len(is.ClusterIPs) == 0 {
			is.ClusterIPs = slices.Clone(was.ClusterIPs)
		}
	}
	if usesNodePorts(s) && usesNodePorts(old) {
		keepNodePorts(is, was)
	}
	if healthChecked(s) && healthChecked(old) && is.HealthCheckNodePort == 0 {
		is.HealthCheckNodePort = was.HealthCheckNodePort
	}
	if is.ClusterIP == was.ClusterIP && len(is.ClusterIPs) == 0 {
		is.ClusterIPs = slices.Clone(was.ClusterIPs)
	}
	if is.ClusterIP != was.ClusterIP && slices.Equal(is.ClusterIPs, was.ClusterIPs) {
		is.ClusterIPs = nil // a client that knows one address changed or cleared it
	}
	dropUnusedServiceFields(s, old)
}

// keepNodePorts gives ports the numbers that those of their names had.
func keepNodePorts(is, was *corev1.ServiceSpec) {
	had, used := map[string]int32{}, map[int32]bool{}
	for _, p := range was.Ports {
		had[p.Name] = p.NodePort
	}
	for _, p := range is.Ports {
		used[p.NodePort] = true
	}
	for i := range is.Ports {
		if p := &is.Ports[i]; p.NodePort == 0 && !used[had[p.Name]] {
			p.NodePort = had[p.Name]
		}
	}
}

func dropUnusedServiceFields(s, old *corev1.Service) {
	is, was := &s.Spec, &old.Spec
	if is.Type == corev1.ServiceTypeExternalName && was.Type != corev1.ServiceTypeExternalName {
		if is.ClusterIP == was.ClusterIP && slices.Equal(is.ClusterIPs, was.ClusterIPs) {
			is.ClusterIP, is.ClusterIPs = "", nil
		}
		if slices.Equal(is.IPFamilies, was.IPFamilies) {
			is.IPFamilies = nil
		}
		dropSame(&is.IPFamilyPolicy, was.IPFamilyPolicy)
	}
	if usesNodePorts(old) && !usesNodePorts(s) && !newNodePorts(is, was) {
		for i := range is.Ports {
			is.Ports[i].NodePort = 0
		}
	}
	if healthChecked(old) && !healthChecked(s) && is.HealthCheckNodePort == was.HealthCheckNodePort {
		is.HealthCheckNodePort = 0
	}
	if was.Type == corev1.ServiceTypeLoadBalancer && is.Type != was.Type {
		dropSame(&is.AllocateLoadBalancerNodePorts, was.AllocateLoadBalancerNodePorts)
		dropSame(&is.LoadBalancerClass, was.LoadBalancerClass)
	}
	if reachable(old) && !reachable(s) && is.ExternalTrafficPolicy == was.ExternalTrafficPolicy {
		is.ExternalTrafficPolicy = ""
	}
	if is.Type != corev1.ServiceTypeLoadBalancer {
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// dropSame empties a field that is as it was.
func dropSame[T comparable](field **T, was *T) {
	if *field != nil && was != nil && **field == *was {
		*field = nil
	}
}

// newNodePorts tells if there are node ports that were not there before.
func newNodePorts(is, was *corev1.ServiceSpec) bool {
	return slices.ContainsFunc(is.Ports, func(p corev1.ServicePort) bool {
		return p.NodePort != 0 && !slices.ContainsFunc(was.Ports, func(o corev1.ServicePort) bool { return o.NodePort == p.NodePort })
	})
}

// healthChecked tells if a load balancer asks nodes whether they have endpoints.
func healthChecked(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// reachable tells if a service can be reached from outside the cluster.
func reachable(s *corev1.Service) bool {
	return usesNodePorts(s) || s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) > 0
}

func usesNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func endpointsKind(gv schema.GroupVersion) *Kind {
	return kind[corev1.Endpoints, corev1.EndpointsList]{
		Plural: "endpoints", Singular: "endpoints", Short: []string{"ep"}, Prefix: "services/endpoints",
		Validate: api.ValidateEndpoints, Warn: api.WarnEndpoints,
		Deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		Columns:    endpointsColumns(), Row: endpointsRow,
		Default:        api.DefaultEndpoints,
		CreateOnUpdate: true,
	}.erase(gv)
}
