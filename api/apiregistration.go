package api

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// apiregistration.k8s.io/v1 is declared here, since its Go types are part of
// the aggregator, which this project does not import. It is JSON in etcd, as
// upstream stores it.

// APIRegistrationGroup is the group and version of APIService.
const (
	APIRegistrationGroup   = "apiregistration.k8s.io"
	APIRegistrationVersion = "v1"
)

// AddAPIRegistration makes a scheme know APIService.
func AddAPIRegistration(s *runtime.Scheme) error {
	gv := schema.GroupVersion{Group: APIRegistrationGroup, Version: APIRegistrationVersion}
	s.AddKnownTypes(gv, &APIService{}, &APIServiceList{})
	metav1.AddToGroupVersion(s, gv)
	return nil
}

// APIService says which server answers for a group and version: this one, or
// one behind a Service.
//
// +k8s:openapi-gen=true
type APIService struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is what every object has; the name is the version and the group, with a dot between.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec says which server it is.
	Spec APIServiceSpec `json:"spec,omitempty"`
	// status says whether it answers.
	Status APIServiceStatus `json:"status,omitempty"`
}

// APIServiceList is a list of APIService.
// +k8s:openapi-gen=true
type APIServiceList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is what every list has.
	metav1.ListMeta `json:"metadata,omitempty"`
	// items are the list.
	Items []APIService `json:"items"`
}

// APIServiceSpec is what is registered. Without a Service the group and version
// is served here.
// +k8s:openapi-gen=true
type APIServiceSpec struct {
	// service is the Service of the server that serves this group and version; absent: this server does.
	Service *ServiceReference `json:"service,omitempty"`
	// group is the API group that this server hosts.
	Group string `json:"group,omitempty"`
	// version is the API version that this server hosts, for example "v1".
	Version string `json:"version,omitempty"`
	// insecureSkipTLSVerify turns off the check of the server's certificate; discouraged.
	InsecureSkipTLSVerify bool `json:"insecureSkipTLSVerify,omitempty"`
	// caBundle is a PEM bundle to check the server's certificate against.
	// +listType=atomic
	CABundle []byte `json:"caBundle,omitempty"`
	// groupPriorityMinimum is the least priority of the group; higher comes first in discovery.
	GroupPriorityMinimum int32 `json:"groupPriorityMinimum"`
	// versionPriority orders the versions within the group; higher comes first.
	VersionPriority int32 `json:"versionPriority"`
}

// ServiceReference names a Service and its port.
// +k8s:openapi-gen=true
type ServiceReference struct {
	// namespace is the namespace of the service.
	Namespace string `json:"namespace,omitempty"`
	// name is the name of the service.
	Name string `json:"name,omitempty"`
	// port is the service's port, 443 when absent.
	Port *int32 `json:"port,omitempty"`
}

// APIServiceStatus is what the server found out about the other.
// +k8s:openapi-gen=true
type APIServiceStatus struct {
	// conditions is the current state.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	Conditions []APIServiceCondition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// APIServiceCondition is the state of one aspect; its only type is Available.
// +k8s:openapi-gen=true
type APIServiceCondition struct {
	// type is the type of the condition.
	Type string `json:"type"`
	// status is True, False or Unknown.
	Status string `json:"status"`
	// lastTransitionTime is when the condition last changed its status.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// reason is one word in CamelCase for the last transition.
	Reason string `json:"reason,omitempty"`
	// message is a sentence about the last transition.
	Message string `json:"message,omitempty"`
}

// APIServiceAvailable is the condition that says whether the server answers.
const APIServiceAvailable = "Available"

// SetAvailable sets the one condition there is. Its time is that of the last
// change of its status.
func SetAvailable(obj *APIService, c APIServiceCondition) {
	c.Type = APIServiceAvailable
	c.LastTransitionTime = metav1.Now().Rfc3339Copy()
	for i, have := range obj.Status.Conditions {
		if have.Type != c.Type {
			continue
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
		obj.Status.Conditions[i] = c
		return
	}
	obj.Status.Conditions = append(obj.Status.Conditions, c)
}

// LocalAvailable is the condition of an APIService that this server answers for.
func LocalAvailable() APIServiceCondition {
	return APIServiceCondition{Status: "True", Reason: "Local", Message: "Local APIServices are always available"}
}

// DeepCopyObject implements runtime.Object.
func (a *APIService) DeepCopyObject() runtime.Object { return a.DeepCopy() }

// DeepCopy makes an independent copy.
func (a *APIService) DeepCopy() *APIService {
	if a == nil {
		return nil
	}
	out := *a
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if a.Spec.Service != nil {
		s := *a.Spec.Service
		if s.Port != nil {
			port := *s.Port
			s.Port = &port
		}
		out.Spec.Service = &s
	}
	out.Spec.CABundle = append([]byte(nil), a.Spec.CABundle...)
	out.Status.Conditions = append([]APIServiceCondition(nil), a.Status.Conditions...)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *APIServiceList) DeepCopyObject() runtime.Object {
	if l == nil {
		return nil
	}
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return &out
}

// The names under which OpenAPI documents know these types; upstream's, since
// clients look for them.
const apiregistrationModel = "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1."

// OpenAPIModelName is the type's name in OpenAPI documents.
func (APIService) OpenAPIModelName() string { return apiregistrationModel + "APIService" }

// OpenAPIModelName is the type's name in OpenAPI documents.
func (APIServiceList) OpenAPIModelName() string { return apiregistrationModel + "APIServiceList" }

// OpenAPIModelName is the type's name in OpenAPI documents.
func (APIServiceSpec) OpenAPIModelName() string { return apiregistrationModel + "APIServiceSpec" }

// OpenAPIModelName is the type's name in OpenAPI documents.
func (ServiceReference) OpenAPIModelName() string { return apiregistrationModel + "ServiceReference" }

// OpenAPIModelName is the type's name in OpenAPI documents.
func (APIServiceStatus) OpenAPIModelName() string { return apiregistrationModel + "APIServiceStatus" }

// OpenAPIModelName is the type's name in OpenAPI documents.
func (APIServiceCondition) OpenAPIModelName() string {
	return apiregistrationModel + "APIServiceCondition"
}
