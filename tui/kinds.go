package tui

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a kind that the cluster serves.
type kind struct {
	group, version, plural, singular, name string
	short                                  []string
	namespaced                             bool
	verbs                                  []string
}

// scope is the kind as keys name it: "pods", "deployments.apps".
func (k kind) scope() string {
	if k.group == "" {
		return k.plural
	}
	return k.plural + "." + k.group
}

func (k kind) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.group, Version: k.version, Kind: k.name}
}

// kinds are what a name typed after ":" can mean.
type kinds []kind

// firstKinds are known before discovery has answered.
func firstKinds() kinds {
	verbs := []string{"list", "watch", "get", "delete", "patch", "update"}
	return kinds{
		{version: "v1", plural: "pods", singular: "pod", name: "Pod", short: []string{"po"}, namespaced: true, verbs: verbs},
		{version: "v1", plural: "nodes", singular: "node", name: "Node", short: []string{"no"}, verbs: verbs},
		{version: "v1", plural: "namespaces", singular: "namespace", name: "Namespace", short: []string{"ns"}, verbs: verbs},
		{version: "v1", plural: "services", singular: "service", name: "Service", short: []string{"svc"}, namespaced: true, verbs: verbs},
		{version: "v1", plural: "events", singular: "event", name: "Event", short: []string{"ev"}, namespaced: true, verbs: verbs},
		{group: "apps", version: "v1", plural: "deployments", singular: "deployment", name: "Deployment", short: []string{"deploy"}, namespaced: true, verbs: verbs},
	}
}

// extraNames are k9s's names for kinds beyond the server's own short names.
var extraNames = map[string]string{
	"dp": "deployments", "sec": "secrets", "cj": "cronjobs", "jo": "jobs", "crds": "customresourcedefinitions",
	"rb": "rolebindings", "crb": "clusterrolebindings", "cr": "clusterroles", "np": "networkpolicies", "ro": "roles",
}

// kindsFrom reads discovery. Core comes first, then the groups in the server's
// order: that is who gets a name that several have.
func kindsFrom(lists []*metav1.APIResourceList) kinds {
	var out kinds
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") {
				continue
			}
			k := kind{group: gv.Group, version: gv.Version, plural: r.Name, singular: r.SingularName, name: r.Kind,
				short: r.ShortNames, namespaced: r.Namespaced, verbs: r.Verbs}
			if r.Group != "" {
				k.group = r.Group
			}
			if r.Version != "" {
				k.version = r.Version
			}
			if k.singular == "" {
				k.singular = strings.ToLower(r.Kind)
			}
			out = append(out, k)
		}
	}
	slices.SortStableFunc(out, func(a, b kind) int { return rank(a) - rank(b) })
	return out
}

// rank puts the duplicate of events in its own group behind the core one.
func rank(k kind) int {
	switch {
	case k.group == "":
		return 0
	case k.group == "events.k8s.io":
		return 2
	case strings.Contains(k.group, "metrics"):
		return 3
	}
	return 1
}

// resolve finds the kind by plural, singular, short name, Kind, or any of these
// followed by its group.
func (ks kinds) resolve(name string) (kind, bool) {
	name = strings.ToLower(name)
	if full, ok := extraNames[name]; ok {
		name = full
	}
	for _, k := range ks {
		if slices.Contains(k.names(), name) {
			return k, true
		}
	}
	for _, k := range ks {
		if bare, ok := strings.CutSuffix(name, "."+k.group); ok && k.group != "" && slices.Contains(k.names(), bare) {
			return k, true
		}
	}
	return kind{}, false
}

func (ks kinds) byPlural(plural string) kind {
	k, _ := ks.resolve(plural)
	return k
}

// byKind finds an owner's kind.
func (ks kinds) byKind(name string) (kind, bool) {
	for _, k := range ks {
		if k.name == name {
			return k, true
		}
	}
	return kind{}, false
}

func (k kind) names() []string {
	return append([]string{k.plural, k.singular, strings.ToLower(k.name)}, k.short...)
}

// complete lists the plurals that begin with prefix.
func (ks kinds) complete(prefix string) []string {
	var out []string
	for _, k := range ks {
		if strings.HasPrefix(k.plural, prefix) && !slices.Contains(out, k.plural) {
			out = append(out, k.plural)
		}
	}
	slices.Sort(out)
	return out
}
