package openapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"sort"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"orrery.dev/server/registry"
)

// allVerbs are those of a kind that does not say; customVerbs, those of a custom
// one, and goneVerbs when it is about to go.
var (
	allVerbs    = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	customVerbs = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	goneVerbs   = []string{"delete", "deletecollection", "get", "list", "watch"}
)

// discovery makes the document of a path below /api or /apis.
func (d *Documents) discovery(path string, aggregated bool) (runtime.Object, error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	groups := d.groups()
	switch {
	case aggregated:
		return aggregate(groups, parts[0] == "api"), nil
	case parts[0] == "api" && len(parts) == 1:
		return d.legacyVersions(groups), nil
	case parts[0] == "api" && len(parts) == 2:
		return resourceList(groups, schema.GroupVersion{Version: parts[1]})
	case parts[0] == "apis" && len(parts) == 1:
		return groupList(groups), nil
	case parts[0] == "apis" && len(parts) == 2:
		for _, g := range groups {
			if g.name == parts[1] && g.name != "" {
				group := g.describe()
				group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				return &group, nil
			}
		}
	case parts[0] == "apis" && len(parts) == 3 && parts[1] != "":
		return resourceList(groups, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return nil, ErrNone
}

// group is an API group with its versions, the preferred one first.
type group struct {
	name     string
	priority int32
	versions []groupVersion
}

type groupVersion struct {
	schema.GroupVersion
	kinds  []*registry.Kind // by plural
	remote *Remote          // whose it is; nil: ours

	priority int32
}

// groups are the groups in discovery order: by their priority, those of one
// priority as the table has them or by name.
func (d *Documents) groups() []group {
	byVersion := map[schema.GroupVersion][]*registry.Kind{}
	for _, k := range d.table.Kinds() {
		byVersion[k.GroupVersion()] = append(byVersion[k.GroupVersion()], k)
	}
	all := []group{}
	add := func(v groupVersion, forGroup, forVersion int32) {
		i := slices.IndexFunc(all, func(g group) bool { return g.name == v.Group })
		if i < 0 {
			i, all = len(all), append(all, group{name: v.Group})
		}
		all[i].priority = max(all[i].priority, forGroup)
		v.priority = forVersion
		all[i].versions = append(all[i].versions, v)
	}
	for _, gv := range d.table.Versions() {
		if _, remote := d.remote[gv]; !remote {
			forGroup, forVersion := Priority(gv)
			add(groupVersion{GroupVersion: gv, kinds: byVersion[gv]}, forGroup, forVersion)
		}
	}
	for gv, r := range d.remote {
		add(groupVersion{GroupVersion: gv, remote: &r}, r.GroupPriority, r.VersionPriority)
	}
	slices.SortStableFunc(all, func(a, b group) int {
		if c := cmp.Compare(b.priority, a.priority); c != 0 || a.priority > customPriority {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	for _, g := range all {
		slices.SortStableFunc(g.versions, func(a, b groupVersion) int {
			return cmp.Or(cmp.Compare(b.priority, a.priority), byName(a.GroupVersion, b.GroupVersion))
		})
	}
	return all
}

func (g group) describe() metav1.APIGroup {
	out := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v.String(), Version: v.Version})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

func (d *Documents) legacyVersions(groups []group) *metav1.APIVersions {
	out := &metav1.APIVersions{
		TypeMeta:                   metav1.TypeMeta{Kind: "APIVersions"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: d.options.Address}},
	}
	for _, g := range groups {
		for _, v := range g.versions {
			if g.name == "" {
				out.Versions = append(out.Versions, v.Version)
			}
		}
	}
	return out
}

func groupList(groups []group) *metav1.APIGroupList {
	out := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, g := range groups {
		if g.name != "" {
			out.Groups = append(out.Groups, g.describe())
		}
	}
	return out
}

func resourceList(groups []group, gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	for _, g := range groups {
		for _, v := range g.versions {
			if v.GroupVersion == gv {
				return describeVersion(v), nil
			}
		}
	}
	return nil, ErrNone
}

func describeVersion(v groupVersion) *metav1.APIResourceList {
	out := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: v.String()}
	if v.GroupVersion != (schema.GroupVersion{Version: "v1"}) {
		out.APIVersion = "v1"
	}
	for _, k := range v.kinds {
		r := metav1.APIResource{
			Name: k.Plural, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind,
			Verbs: verbsOf(k), ShortNames: k.Short, Categories: k.Categories,
		}
		if k.Can("get") && k.Can("create") {
			r.StorageVersionHash = storageHash(k.Stored().GroupVersionKind)
		}
		out.APIResources = append(out.APIResources, r)
		for _, name := range subNames(k) {
			sub := k.Sub[name]
			r := metav1.APIResource{Name: k.Plural + "/" + name, Namespaced: k.Namespaced, Kind: k.Kind, Verbs: sub.Verbs}
			if !sub.Kind.Empty() {
				r.Kind = sub.Kind.Kind
				if sub.Kind.GroupVersion() != k.GroupVersion() {
					r.Group, r.Version = sub.Kind.Group, sub.Kind.Version
				}
			}
			out.APIResources = append(out.APIResources, r)
		}
	}
	return out
}

func subNames(k *registry.Kind) []string {
	names := make([]string, 0, len(k.Sub))
	for name := range k.Sub {
		names = append(names, name)
	}
	sort.Strings(names)
	if k.Unstructured() {
		slices.Reverse(names) // the status before the scale
	}
	return names
}

func verbsOf(k *registry.Kind) []string {
	switch {
	case k.Unstructured() && k.Verbs != nil:
		return goneVerbs
	case k.Unstructured():
		return customVerbs
	case k.Verbs == nil:
		return allVerbs
	}
	return k.Verbs
}

// storageHash names the form in which objects are stored, so that a client can
// see that it changed.
func storageHash(gvk schema.GroupVersionKind) string {
	sum := sha256.Sum256([]byte(gvk.Group + "/" + gvk.Version + "/" + gvk.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// aggregate is all of discovery in one document, of the core group or of all
// others.
func aggregate(groups []group, core bool) *apidiscoveryv2.APIGroupDiscoveryList {
	out := &apidiscoveryv2.APIGroupDiscoveryList{}
	out.SetGroupVersionKind(apidiscoveryv2.SchemeGroupVersion.WithKind("APIGroupDiscoveryList"))
	for _, g := range groups {
		if (g.name == "") != core {
			continue
		}
		item := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
		for _, v := range g.versions {
			item.Versions = append(item.Versions, aggregateVersion(v))
		}
		out.Items = append(out.Items, item)
	}
	return out
}

func aggregateVersion(v groupVersion) apidiscoveryv2.APIVersionDiscovery {
	if v.remote != nil {
		return v.remote.Discovery
	}
	out := apidiscoveryv2.APIVersionDiscovery{Version: v.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, k := range v.kinds {
		r := apidiscoveryv2.APIResourceDiscovery{
			Resource: k.Plural, SingularResource: k.Singular, Scope: apidiscoveryv2.ScopeCluster,
			ResponseKind: responseKind(k, k.GroupVersionKind), Verbs: verbsOf(k), ShortNames: k.Short, Categories: k.Categories,
		}
		if k.Namespaced {
			r.Scope = apidiscoveryv2.ScopeNamespace
		}
		for _, name := range subNames(k) {
			sub := k.Sub[name]
			kind := k.GroupVersionKind
			if !sub.Kind.Empty() {
				kind = sub.Kind
			}
			r.Subresources = append(r.Subresources, apidiscoveryv2.APISubresourceDiscovery{
				Subresource: name, ResponseKind: responseKind(k, kind), Verbs: sub.Verbs,
			})
		}
		out.Resources = append(out.Resources, r)
	}
	return out
}

// responseKind names the kind alone if it is built in, and of the group version
// that it is listed in.
func responseKind(in *registry.Kind, gvk schema.GroupVersionKind) *metav1.GroupVersionKind {
	if gvk.GroupVersion() == in.GroupVersion() && !in.Unstructured() {
		return &metav1.GroupVersionKind{Kind: gvk.Kind}
	}
	return &metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
}

// customPriority is that of the groups of custom resources, which come after all
// that is built in.
const customPriority = 1000

// priorities are those of the built-in groups.
var priorities = map[string]int32{
	"apiregistration.k8s.io": 20001,
	"":                       18000, "apps": 17800, "events.k8s.io": 17750, "authentication.k8s.io": 17700, "authorization.k8s.io": 17600,
	"autoscaling": 17500, "batch": 17400, "certificates.k8s.io": 17300, "networking.k8s.io": 17200, "policy": 17100,
	"rbac.authorization.k8s.io": 17000, "storage.k8s.io": 16800, "apiextensions.k8s.io": 16700,
	"admissionregistration.k8s.io": 16700, "scheduling.k8s.io": 16600, "coordination.k8s.io": 16500,
	"node.k8s.io": 16300, "discovery.k8s.io": 16200, "flowcontrol.apiserver.k8s.io": 16100,
	"resource.k8s.io": 16200, "storagemigration.k8s.io": 15800,
}

// Priority is the place of a group version in discovery: of the group, and of the
// version in it.
func Priority(gv schema.GroupVersion) (group, version int32) {
	group, ok := priorities[gv.Group]
	switch {
	case !ok:
		return customPriority, 100
	case gv.Group == "":
		return group, 1
	case gv.Version == "v2":
		return group, 30
	case gv.Group == "resource.k8s.io", gv.Group == "flowcontrol.apiserver.k8s.io":
		return group, 21 // above the versions before v1, which upstream can serve
	}
	return group, 15
}
