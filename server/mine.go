package server

import (
	"encoding/json"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/api"
	"orrery.dev/server/registry"
)

// Mine answers GET on api.NamespacesPath.
type Mine struct {
	Source *StreamSource
	Rules  authorizer.RuleResolver
}

// ServeHTTP names the namespaces in which the user may list anything.
func (m *Mine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all, err := m.Source.Namespaces(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	who, mine := registry.UserFrom(r.Context()), []string{}
	for _, ns := range all {
		// What it can't say of some authoriser does not hide what another one allows.
		rules, _, _, _ := m.Rules.RulesFor(r.Context(), who, ns)
		if slices.ContainsFunc(rules, m.lists) {
			mine = append(mine, ns)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(api.Namespaces{Names: mine})
}

// lists is about what is in namespaces: some of the rest everybody may list.
func (m *Mine) lists(r authorizer.ResourceRuleInfo) bool {
	verbs := r.GetVerbs()
	return len(r.GetResourceNames()) == 0 && m.Source.Table.Within(r.GetResources()) && (slices.Contains(verbs, "list") || slices.Contains(verbs, "*"))
}
