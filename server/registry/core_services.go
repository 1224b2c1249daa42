package registry

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/api"
)

func serviceKind(gv schema.GroupVersion) *Kind {
	parts := halves[corev1.Service, corev1.ServiceSpec, corev1.ServiceStatus]{
		spec:   func(s *corev1.Service) *corev1.ServiceSpec { return &s.Spec },
		status: func(s *corev1.Service) *corev1.ServiceStatus { return &s.Status },
	}
	return kind[corev1.Service, corev1.ServiceList]{
		Plural: "services", Short: []string{"svc"}, In: []string{"all"}, Prefix: "services/specs",
		Validate: api.ValidateService,
		Warn:     warnService,
		Columns:  serviceColumns(), Row: serviceRow,
		Default:        api.DefaultService,
		CreateOnUpdate: true,
		ValidName:      apivalidation.NameIsDNS1035Label,
		Prepare: func(s, old *corev1.Service) {
			parts.prepare(s, old)
			if old != nil {
				keepServiceFields(s, old)
			}
			api.SetServiceAddresses(s)
		},
		Fields: func(s *corev1.Service) fields.Set {
			return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
		},
		Sub: Sub{
			"status": parts.sub(),
			"proxy":  handled[corev1.ServiceProxyOptions](gv.WithKind("ServiceProxyOptions"), proxyVerbs...),
		},
	}.erase(gv)
}

// keepServiceFields carries over what the cluster allocated, when an update
// leaves it out and still wants it: `kubectl replace` with the original
// manifest must not lose the address. What the new type does not use is dropped,
// unless the client changed it on purpose.
func keepServiceFields(s, old *corev1.Service) {
	if s.Spec.Type != corev1.ServiceTypeExternalName && old.Spec.Type != corev1.ServiceTypeExternalName {
		if s.Spec.ClusterIP == "" && len(s.Spec.ClusterIPs) == 0 {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = old.Spec.ClusterIP, append([]string(nil), old.Spec.ClusterIPs...)
		}
		if len(s.Spec.ClusterIPs) == 0 && s.Spec.ClusterIP == old.Spec.ClusterIP {
			s.Spec.ClusterIPs = append([]string(nil), old.Spec.ClusterIPs...)
		}
	}
	if usesNodePorts(s) && usesNodePorts(old) {
		keepNodePorts(s, old)
		if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal && s.Spec.HealthCheckNodePort == 0 {
			s.Spec.HealthCheckNodePort = old.Spec.HealthCheckNodePort
		}
	}
	dropUnusedServiceFields(s, old)
}

func keepNodePorts(s, old *corev1.Service) {
	type key struct {
		protocol corev1.Protocol
		port     int32
	}
	had, used := map[key]int32{}, map[int32]bool{}
	for _, p := range old.Spec.Ports {
		had[key{p.Protocol, p.Port}] = p.NodePort
	}
	for _, p := range s.Spec.Ports {
		used[p.NodePort] = true
	}
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		if before := had[key{p.Protocol, p.Port}]; p.NodePort == 0 && before != 0 && !used[before] {
			p.NodePort = before
		}
	}
}

func dropUnusedServiceFields(s, old *corev1.Service) {
	if s.Spec.Type == corev1.ServiceTypeExternalName && old.Spec.Type != corev1.ServiceTypeExternalName {
		if s.Spec.ClusterIP == old.Spec.ClusterIP {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "", nil
		}
		s.Spec.IPFamilies, s.Spec.IPFamilyPolicy, s.Spec.InternalTrafficPolicy = nil, nil, nil
	}
	if usesNodePorts(old) && !usesNodePorts(s) {
		for i := range s.Spec.Ports {
			if i < len(old.Spec.Ports) && s.Spec.Ports[i].NodePort == old.Spec.Ports[i].NodePort {
				s.Spec.Ports[i].NodePort = 0
			}
		}
		if s.Spec.HealthCheckNodePort == old.Spec.HealthCheckNodePort {
			s.Spec.HealthCheckNodePort = 0
		}
		if s.Spec.Type == corev1.ServiceTypeClusterIP && len(s.Spec.ExternalIPs) == 0 || s.Spec.Type == corev1.ServiceTypeExternalName {
			s.Spec.ExternalTrafficPolicy = ""
		}
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer && old.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.Spec.AllocateLoadBalancerNodePorts, s.Spec.LoadBalancerClass = nil, nil
		s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	}
}

// warnService names what is on its way out.
func warnService(s, _ *corev1.Service) []string {
	var warnings []string
	if len(s.Spec.ExternalIPs) > 0 {
		warnings = append(warnings, "spec.externalIPs is deprecated and may no longer be implemented in some clusters")
	}
	if d := s.Spec.TrafficDistribution; d != nil && *d == corev1.ServiceTrafficDistributionPreferClose {
		warnings = append(warnings, `spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"`)
	}
	return warnings
}

func usesNodePorts(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer
}

func endpointsKind(gv schema.GroupVersion) *Kind {
	return kind[corev1.Endpoints, corev1.EndpointsList]{
		Plural: "endpoints", Singular: "endpoints", Short: []string{"ep"}, Prefix: "services/endpoints",
		Validate:   api.ValidateEndpoints,
		Deprecated: "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
		Columns:    endpointsColumns(), Row: endpointsRow,
		Default:        api.DefaultEndpoints,
		CreateOnUpdate: true,
	}.erase(gv)
}
