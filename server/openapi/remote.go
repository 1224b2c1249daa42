package openapi

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Remote is what is known of a group version that another server answers for.
type Remote struct {
	// Name is the APIService's; GroupPriority and VersionPriority are as it says.
	Name                           string
	GroupPriority, VersionPriority int32
	// Discovery is what the server last told of the group version, and whether
	// that is fresh.
	Discovery apidiscoveryv2.APIVersionDiscovery
	// OpenAPI is the group version's part of the server's /openapi/v2; nil: it has
	// told nothing. Index are the addresses of the documents below its /openapi/v3;
	// nil: it has none, and OpenAPI is converted.
	OpenAPI *spec.Swagger
	Index   map[string]string
	// Handler passes requests on to the server.
	Handler http.Handler
}

func (r Remote) converted() *spec3.OpenAPI {
	if r.Index != nil || r.OpenAPI == nil {
		return nil
	}
	return openapiconv.ConvertV2ToV3(r.OpenAPI)
}

// Aggregated puts what a server told of a group version into the newer form, in
// which subresources hang below their resource.
func Aggregated(gv schema.GroupVersion, told *metav1.APIResourceList) apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version}
	at := map[string]int{}
	for _, r := range told.APIResources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		scope := apidiscoveryv2.ScopeCluster
		if r.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		at[r.Name] = len(out.Resources)
		out.Resources = append(out.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: r.Name, SingularResource: r.SingularName, Scope: scope, ResponseKind: toldKind(r),
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
	}
	for _, r := range told.APIResources {
		name, sub, ok := strings.Cut(r.Name, "/")
		if i, known := at[name]; ok && known {
			out.Resources[i].Subresources = append(out.Resources[i].Subresources, apidiscoveryv2.APISubresourceDiscovery{
				Subresource: sub, ResponseKind: toldKind(r), Verbs: r.Verbs,
			})
		}
	}
	return out
}

func toldKind(r metav1.APIResource) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// elsewhere is who has a document of v3, or nil: this server, if anyone.
func (d *Documents) elsewhere(name string) http.Handler {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.remote {
		if _, has := r.Index[name]; has && r.Handler != nil {
			if _, ours := d.sections()[name]; !ours {
				return r.Handler
			}
		}
	}
	return nil
}

// remotesByPriority are the remote group versions, the most important first: by
// their groups', then by their own.
func (d *Documents) remotesByPriority() []Remote {
	groups := map[string]int32{}
	for gv, r := range d.remote {
		groups[gv.Group] = max(groups[gv.Group], r.GroupPriority)
	}
	var all []Remote
	for _, gv := range slices.SortedFunc(maps.Keys(d.remote), func(a, b schema.GroupVersion) int {
		return cmp.Or(
			cmp.Compare(groups[b.Group], groups[a.Group]), cmp.Compare(a.Group, b.Group),
			cmp.Compare(d.remote[b].VersionPriority, d.remote[a].VersionPriority), byName(a, b),
		)
	}) {
		all = append(all, d.remote[gv])
	}
	return all
}
