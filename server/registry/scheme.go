package registry

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"orrery.dev/api"
)

// Scheme makes a scheme that knows every type the server speaks: all of
// k8s.io/api, CustomResourceDefinition, APIService, the kinds of metav1 (Status,
// WatchEvent, Table, PartialObjectMetadata and the request options), and
// discovery documents. Codecs and content negotiation are built on it. It is
// made anew at every call; callers keep it.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	// These fail only when two types claim one name, which is a bug of ours.
	utilruntime.Must(clientscheme.AddToScheme(s))
	utilruntime.Must(apiextensionsv1.AddToScheme(s))
	utilruntime.Must(api.AddAPIRegistration(s))
	utilruntime.Must(apidiscoveryv2.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	s.AddUnversionedTypes(schema.GroupVersion{Version: "v1"},
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	return s
}
