package openapi

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"sort"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"orrery.dev/server/registry"
)

// errNone says that there is no such document.
var errNone = errors.New("no such document")

// allVerbs are those of a kind that does not say.
var allVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

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
	return nil, errNone
}

// group is an API group with its versions, the preferred one first.
type group struct {
	name     string
	versions []groupVersion
}

type groupVersion struct {
	schema.GroupVersion
	kinds []*registry.Kind // by plural
	// remote versions are another server's; told is nil while it is silent.
	remote bool
	told   *metav1.APIResourceList
}

// groups are the groups in discovery order: the built-in ones as the table has
// them, then those of custom resources by name. Versions of a custom group are
// ordered by age and stability, v2 before v1 before v1beta1.
func (d *Documents) groups() []group {
	byVersion := map[schema.GroupVersion][]*registry.Kind{}
	custom := map[string]bool{}
	for _, k := range d.table.Kinds() {
		byVersion[k.GroupVersion()] = append(byVersion[k.GroupVersion()], k)
		custom[k.Group] = k.Unstructured()
	}
	var all []group
	for _, gv := range d.table.Versions() {
		i := slices.IndexFunc(all, func(g group) bool { return g.name == gv.Group })
		if i < 0 {
			i, all = len(all), append(all, group{name: gv.Group})
		}
		all[i].versions = append(all[i].versions, groupVersion{GroupVersion: gv, kinds: byVersion[gv]})
	}
	for gv, told := range d.remote {
		i := slices.IndexFunc(all, func(g group) bool { return g.name == gv.Group })
		if i < 0 {
			i, all = len(all), append(all, group{name: gv.Group})
			custom[gv.Group] = true
		}
		at := slices.IndexFunc(all[i].versions, func(v groupVersion) bool { return v.GroupVersion == gv })
		v := groupVersion{GroupVersion: gv, remote: true, told: told}
		if at >= 0 {
			all[i].versions[at] = v
		} else {
			all[i].versions = append(all[i].versions, v)
		}
	}
	sort.SliceStable(all, func(i, j int) bool {
		a, b := all[i], all[j]
		if !custom[a.name] || !custom[b.name] {
			return !custom[a.name] && custom[b.name]
		}
		return a.name < b.name
	})
	for _, g := range all {
		if custom[g.name] {
			sort.SliceStable(g.versions, func(i, j int) bool {
				return version.CompareKubeAwareVersionStrings(g.versions[i].Version, g.versions[j].Version) > 0
			})
		}
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
	return nil, errNone
}

func describeVersion(v groupVersion) *metav1.APIResourceList {
	out := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: v.String()}
	if v.GroupVersion != (schema.GroupVersion{Version: "v1"}) {
		out.APIVersion = "v1"
	}
	for _, k := range v.kinds {
		r := metav1.APIResource{
			Name: k.Plural, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind,
			Verbs: verbsOf(k.Verbs), ShortNames: k.Short, Categories: k.Categories,
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
	return names
}

func verbsOf(verbs []string) []string {
	if verbs == nil {
		return allVerbs
	}
	return verbs
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
	if v.remote {
		return aggregateRemote(v)
	}
	out := apidiscoveryv2.APIVersionDiscovery{Version: v.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, k := range v.kinds {
		r := apidiscoveryv2.APIResourceDiscovery{
			Resource: k.Plural, SingularResource: k.Singular, Scope: apidiscoveryv2.ScopeCluster,
			ResponseKind: responseKind(v.GroupVersion, k.GroupVersionKind), Verbs: verbsOf(k.Verbs), ShortNames: k.Short, Categories: k.Categories,
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
				Subresource: name, ResponseKind: responseKind(v.GroupVersion, kind), Verbs: sub.Verbs,
			})
		}
		out.Resources = append(out.Resources, r)
	}
	return out
}

// aggregateRemote puts what another server told into the newer form, in which
// subresources hang below their resource.
func aggregateRemote(v groupVersion) apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{Version: v.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	if v.told == nil {
		out.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		return out
	}
	at := map[string]int{}
	for _, r := range v.told.APIResources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		scope := apidiscoveryv2.ScopeCluster
		if r.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		at[r.Name] = len(out.Resources)
		out.Resources = append(out.Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource: r.Name, SingularResource: r.SingularName, Scope: scope, ResponseKind: toldKind(v, r),
			Verbs: r.Verbs, ShortNames: r.ShortNames, Categories: r.Categories,
		})
	}
	for _, r := range v.told.APIResources {
		name, sub, ok := strings.Cut(r.Name, "/")
		if i, known := at[name]; ok && known {
			out.Resources[i].Subresources = append(out.Resources[i].Subresources, apidiscoveryv2.APISubresourceDiscovery{
				Subresource: sub, ResponseKind: toldKind(v, r), Verbs: r.Verbs,
			})
		}
	}
	return out
}

func toldKind(v groupVersion, r metav1.APIResource) *metav1.GroupVersionKind {
	gvk := v.GroupVersion.WithKind(r.Kind)
	if r.Version != "" {
		gvk.Group, gvk.Version = r.Group, r.Version
	}
	return responseKind(v.GroupVersion, gvk)
}

// responseKind names the kind alone if it is of the group version that it is
// listed in.
func responseKind(in schema.GroupVersion, gvk schema.GroupVersionKind) *metav1.GroupVersionKind {
	if gvk.GroupVersion() == in {
		return &metav1.GroupVersionKind{Kind: gvk.Kind}
	}
	return &metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
}
