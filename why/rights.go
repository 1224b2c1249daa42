package why

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-helpers/auth/rbac/validation"

	"orrery.dev/api"
)

var (
	roleKind           = kindOf(rbacv1.SchemeGroupVersion, "roles", "Role")
	bindingKind        = kindOf(rbacv1.SchemeGroupVersion, "rolebindings", "RoleBinding")
	clusterRoleKind    = kindOf(rbacv1.SchemeGroupVersion, "clusterroles", "ClusterRole")
	clusterBindingKind = kindOf(rbacv1.SchemeGroupVersion, "clusterrolebindings", "ClusterRoleBinding")
)

// nodeRole has what the node authoriser lets kubelets do with what is of their pods.
const nodeRole = "system:node"

// nodePrefix is what the user names of kubelets begin with.
const nodePrefix = "system:node:"

// bound is a role that a binding gives to subjects.
type bound struct {
	namespace     string // where it holds; "" is everywhere
	binding, role api.ObjectRef
	subjects      []rbacv1.Subject
	rules         []rbacv1.PolicyRule
}

// policy are the bindings that hold in a namespace, or all.
type policy struct {
	bounds []bound // those that hold everywhere first
	nodes  []rbacv1.PolicyRule
}

func readPolicy(reader Reader, namespace string) (*policy, error) {
	f := &facts{reader: reader}
	clusterRoles, err := read[*rbacv1.ClusterRole](f, clusterRoleKind, "")
	if err != nil {
		return nil, err
	}
	rules := map[api.ObjectRef][]rbacv1.PolicyRule{}
	for _, r := range clusterRoles {
		rules[clusterRoleKind.ref(r)] = r.Rules
	}
	roles, err := read[*rbacv1.Role](f, roleKind, namespace)
	if err != nil {
		return nil, err
	}
	for _, r := range roles {
		rules[roleKind.ref(r)] = r.Rules
	}
	bounds, err := readBindings(f, namespace)
	for i := range bounds {
		bounds[i].rules = rules[bounds[i].role]
	}
	return &policy{bounds, rules[clusterRoleKind.named("", nodeRole)]}, err
}

// readBindings are the bindings without the rules of their roles.
func readBindings(f *facts, namespace string) ([]bound, error) {
	everywhere, err := read[*rbacv1.ClusterRoleBinding](f, clusterBindingKind, "")
	if err != nil {
		return nil, err
	}
	within, err := read[*rbacv1.RoleBinding](f, bindingKind, namespace)
	if err != nil {
		return nil, err
	}
	var all []bound
	for _, b := range everywhere {
		all = append(all, bound{"", clusterBindingKind.ref(b), clusterRoleKind.named("", b.RoleRef.Name), b.Subjects, nil})
	}
	for _, b := range within {
		role := clusterRoleKind.named("", b.RoleRef.Name)
		if b.RoleRef.Kind == roleKind.name {
			role = roleKind.named(b.Namespace, b.RoleRef.Name)
		}
		all = append(all, bound{b.Namespace, bindingKind.ref(b), role, b.Subjects, nil})
	}
	slices.SortStableFunc(all, func(x, y bound) int {
		return cmp.Or(strings.Compare(x.namespace, y.namespace), strings.Compare(x.binding.Name, y.binding.Name))
	})
	return all, nil
}

// subjectOf is whom a binding names: the user that a service account is, is that.
func subjectOf(s rbacv1.Subject, namespace string) api.Subject {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		return api.Subject{Kind: s.Kind, Namespace: cmp.Or(s.Namespace, namespace), Name: s.Name}
	case rbacv1.UserKind:
		if account, ok := api.ParseSubject("u:" + s.Name); ok {
			return account
		}
	}
	return api.Subject{Kind: s.Kind, Name: s.Name}
}

// askRights answers what is asked of api.RightsPath.
func askRights(reader Reader, q url.Values) (any, error) {
	namespace := q.Get("namespace")
	switch of := q.Get("of"); {
	case q.Get("verb") != "" && q.Get("resource") != "":
		return WhoCan(reader, Deed{q.Get("verb"), q.Get("group"), q.Get("resource"), q.Get("name"), namespace})
	case q.Has("verb") || q.Has("resource"):
		return nil, apierrors.NewBadRequest("a verb and a resource are needed")
	case of == "me":
		return Rights(reader, nil, namespace)
	case of != "":
		subject, ok := api.ParseSubject(of)
		if !ok {
			return nil, apierrors.NewBadRequest("a subject is user:NAME, group:NAME or sa:NAMESPACE:NAME")
		}
		return Rights(reader, &subject, namespace)
	}
	return Subjects(reader, namespace)
}

// Subjects are all that the bindings of a namespace name, or those of all.
func Subjects(reader Reader, namespace string) (*api.Subjects, error) {
	bounds, err := readBindings(&facts{reader: reader}, namespace)
	if err != nil {
		return nil, err
	}
	counts := map[api.Subject]int{}
	for _, b := range bounds {
		for _, s := range b.subjects {
			counts[subjectOf(s, b.namespace)]++
		}
	}
	answer := &api.Subjects{Items: []api.BoundSubject{}}
	for s, n := range counts {
		answer.Items = append(answer.Items, api.BoundSubject{Subject: s, Bindings: n})
	}
	slices.SortFunc(answer.Items, func(x, y api.BoundSubject) int { return compareSubjects(x.Subject, y.Subject) })
	return answer, nil
}

func compareSubjects(x, y api.Subject) int {
	return cmp.Or(strings.Compare(x.Kind, y.Kind), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
}

// Deed is what somebody might do: a verb on a resource ("pods/log"), or on a path of the
// API server.
type Deed struct{ Verb, Group, Resource, Name, Namespace string }

// rule is the least rule that allows it, whatever the object's name.
func (d Deed) rule() rbacv1.PolicyRule {
	if strings.HasPrefix(d.Resource, "/") {
		return rbacv1.PolicyRule{Verbs: []string{d.Verb}, NonResourceURLs: []string{d.Resource}}
	}
	return rbacv1.PolicyRule{Verbs: []string{d.Verb}, APIGroups: []string{d.Group}, Resources: []string{d.Resource}}
}

// WhoCan finds who may do something.
func WhoCan(reader Reader, d Deed) (*api.WhoCan, error) {
	policy, err := readPolicy(reader, d.Namespace)
	if err != nil {
		return nil, err
	}
	kinds, err := reader.Kinds()
	if err != nil {
		return nil, err
	}
	answer := &api.WhoCan{Holders: []api.Holder{}, Remarks: []api.Finding{fine("mastersMay", nil)}}
	if ok, _ := validation.Covers(policy.nodes, []rbacv1.PolicyRule{d.rule()}); ok {
		answer.Remarks = append(answer.Remarks, fine("nodesMay", nil))
	}
	if _, mine, err := reader.Self(d.Namespace); err != nil || mine.Incomplete {
		answer.Remarks = append(answer.Remarks, fine("othersMayDecide", nil))
	}
	for _, b := range policy.bounds {
		if b.namespace != "" && !within(kinds, d.Group, d.Resource) {
			continue
		}
		ok, names := d.allowed(b.rules)
		if !ok {
			continue
		}
		for _, s := range b.subjects {
			answer.Holders = append(answer.Holders, api.Holder{Subject: subjectOf(s, b.namespace), Binding: b.binding, Role: b.role, Namespace: b.namespace, Names: names})
		}
	}
	slices.SortStableFunc(answer.Holders, func(x, y api.Holder) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), compareSubjects(x.Subject, y.Subject))
	})
	return answer, nil
}

// allowed says whether rules allow the deed, or for which names only, if none is given.
func (d Deed) allowed(rules []rbacv1.PolicyRule) (ok bool, names []string) {
	for _, r := range rules {
		only := r.ResourceNames
		r.ResourceNames = nil
		if ok, _ := validation.Covers([]rbacv1.PolicyRule{r}, []rbacv1.PolicyRule{d.rule()}); !ok {
			continue
		}
		if len(only) == 0 || d.Name != "" && slices.Contains(only, d.Name) {
			return true, nil
		}
		if d.Name == "" {
			names = append(names, only...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return len(names) > 0, names
}

// within says whether a RoleBinding has a say on a resource: not on what is in no
// namespace, but for the namespaces themselves. What nobody knows may be in one.
func within(kinds []Kind, group, resource string) bool {
	if strings.HasPrefix(resource, "/") {
		return false
	}
	resource, _, _ = strings.Cut(resource, "/")
	at := slices.IndexFunc(kinds, func(k Kind) bool { return k.Group == group && k.Resource == resource })
	return at < 0 || kinds[at].Namespaced || kinds[at].GroupResource() == namespaceKind.GroupResource()
}

// Rights finds what a subject may do, nil being the reader's own user, of whom more is
// known: all groups, and what other authorisers than RBAC say.
func Rights(reader Reader, of *api.Subject, namespace string) (*api.Rights, error) {
	kinds, err := reader.Kinds()
	if err != nil {
		return nil, err
	}
	answer := &api.Rights{Rules: []api.RightsRule{}}
	policy, unread := readPolicy(reader, namespace)
	if of == nil {
		self, mine, err := reader.Self(namespace)
		if err != nil {
			return nil, err
		}
		answer.Subject, _ = api.ParseSubject("u:" + self.GetName())
		answer.Groups = self.GetGroups()
		if unread == nil {
			answer.Rules = policy.rulesOf(answer.Subject, answer.Groups)
		} else {
			answer.Remarks = append(answer.Remarks, api.Finding{State: api.WhyUnknown, Code: "originsUnread", Params: params("message", unread.Error())})
		}
		addOwn(answer, mine)
	} else {
		if unread != nil {
			return nil, unread
		}
		answer.Subject, answer.Groups = *of, impliedGroups(*of)
		answer.Rules = policy.rulesOf(*of, answer.Groups)
		if of.Kind == rbacv1.UserKind {
			answer.Remarks = append(answer.Remarks, fine("groupsUnknown", params("name", of.Name)))
		}
	}
	if slices.Contains(answer.Groups, user.SystemPrivilegedGroup) {
		all := []string{"*"}
		answer.Rules = append(answer.Rules, api.RightsRule{PolicyRule: rbacv1.PolicyRule{Verbs: all, APIGroups: all, Resources: all}},
			api.RightsRule{PolicyRule: rbacv1.PolicyRule{Verbs: all, NonResourceURLs: all}})
		answer.Remarks = append(answer.Remarks, fine("mastersPass", nil))
	}
	if policy != nil && slices.Contains(answer.Groups, user.NodesGroup) {
		for _, r := range policy.nodes {
			answer.Rules = append(answer.Rules, api.RightsRule{PolicyRule: r, Limited: true})
		}
		answer.Remarks = append(answer.Remarks, fine("nodesPass", nil))
	}
	answer.Kinds = sum(answer.Rules, kinds, namespace)
	return answer, nil
}

// addOwn adds what the server says that its user may do, and no binding does.
func addOwn(answer *api.Rights, mine Own) {
	for _, rule := range mine.Rules {
		var held []rbacv1.PolicyRule
		for _, known := range answer.Rules {
			if known.Namespace == "" || known.Namespace == mine.Namespace {
				held = append(held, known.PolicyRule)
			}
		}
		if ok, _ := validation.Covers(held, []rbacv1.PolicyRule{rule}); !ok {
			answer.Rules = append(answer.Rules, api.RightsRule{PolicyRule: rule, Namespace: mine.Namespace})
		}
	}
	if mine.Incomplete {
		answer.Remarks = append(answer.Remarks, fine("othersMayDecide", nil))
	}
}

// impliedGroups are those that a subject is in, whoever authenticates it.
func impliedGroups(s api.Subject) []string {
	switch {
	case s.Kind == rbacv1.ServiceAccountKind:
		return append(serviceaccount.MakeGroupNames(s.Namespace), user.AllAuthenticated)
	case s.Kind == rbacv1.GroupKind && (s.Name == user.AllAuthenticated || s.Name == user.AllUnauthenticated):
		return []string{s.Name}
	case s.Kind == rbacv1.GroupKind:
		return []string{s.Name, user.AllAuthenticated}
	case s.Name == user.Anonymous:
		return []string{user.AllUnauthenticated}
	case strings.HasPrefix(s.Name, nodePrefix):
		return []string{user.NodesGroup, user.AllAuthenticated}
	}
	return []string{user.AllAuthenticated}
}

// rulesOf are the rules that bindings give to a subject, or to groups that it is in.
func (p *policy) rulesOf(of api.Subject, groups []string) []api.RightsRule {
	all := []api.RightsRule{}
	for i := range p.bounds {
		b := &p.bounds[i]
		at := slices.IndexFunc(b.subjects, func(s rbacv1.Subject) bool {
			return subjectOf(s, b.namespace) == of || s.Kind == rbacv1.GroupKind && slices.Contains(groups, s.Name)
		})
		if at < 0 {
			continue
		}
		through := subjectOf(b.subjects[at], b.namespace)
		for _, r := range b.rules {
			all = append(all, api.RightsRule{PolicyRule: r, Namespace: b.namespace, Through: &through, Binding: &b.binding, Role: &b.role})
		}
	}
	return all
}

// The verbs of objects, and of the paths of the API server.
var (
	objectVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	pathVerbs   = []string{"get", "post", "put", "patch", "delete", "head", "options"}
)

// sum tells what rules come to, by kind, and at the end by path.
func sum(rules []api.RightsRule, kinds []Kind, namespace string) []api.KindRights {
	kinds = slices.Concat(kinds, unlisted(rules, kinds))
	slices.SortStableFunc(kinds, func(x, y Kind) int {
		return cmp.Or(strings.Compare(x.Group, y.Group), strings.Compare(x.Resource, y.Resource))
	})
	all := make([]api.KindRights, 0, len(kinds))
	for _, k := range kinds {
		all = append(all, sumKind(rules, k, namespace))
	}
	var paths []string
	for _, r := range rules {
		if !inNamespace(r) {
			paths = append(paths, r.NonResourceURLs...)
		}
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		row := api.KindRights{Resource: path}
		for i, r := range rules {
			if !inNamespace(r) {
				add(&row, i, r.PolicyRule, rbacv1.PolicyRule{NonResourceURLs: []string{path}}, pathVerbs, r.Limited)
			}
		}
		all = append(all, row)
	}
	return all
}

// inNamespace says whether a rule is a RoleBinding's, which has no say on paths.
func inNamespace(r api.RightsRule) bool { return r.Namespace != "" && r.Binding != nil }

// unlisted are what rules name and cannot be listed: subresources, reviews, what other
// servers serve. Of a group of which nothing is known, "*" stands for all.
func unlisted(rules []api.RightsRule, kinds []Kind) (more []Kind) {
	known := func(all []Kind, group, resource string) bool {
		return slices.ContainsFunc(all, func(k Kind) bool {
			return (k.Group == group || group == "*") && (k.Resource == resource || resource == "*")
		})
	}
	for _, r := range rules {
		for _, resource := range r.Resources {
			of, _, sub := strings.Cut(resource, "/")
			// What one of the groups has, the others have not.
			groups := slices.DeleteFunc(slices.Clone(r.APIGroups), func(g string) bool { return !known(kinds, g, of) })
			if len(groups) == 0 {
				groups = r.APIGroups
			} else if !sub {
				continue
			}
			for _, group := range groups {
				if !known(more, group, resource) {
					more = append(more, Kind{GroupVersionResource: schema.GroupVersionResource{Group: group, Resource: resource}, Namespaced: within(kinds, group, resource)})
				}
			}
		}
	}
	return more
}

func sumKind(rules []api.RightsRule, k Kind, namespace string) api.KindRights {
	row := api.KindRights{Group: k.Group, Resource: k.Resource, Namespaced: k.Namespaced}
	outside := !k.Namespaced && k.GroupResource() != namespaceKind.GroupResource()
	for i, r := range rules {
		if r.Namespace != "" && outside {
			continue
		}
		verbs := objectVerbs
		if slices.Contains(r.Resources, k.Resource) { // it means this kind with such as impersonate and bind
			verbs = r.Verbs
			if slices.Contains(verbs, "*") {
				verbs = objectVerbs
			}
		}
		some := r.Limited || len(r.ResourceNames) > 0 || r.Namespace != "" && (r.Namespace != namespace || !k.Namespaced)
		add(&row, i, r.PolicyRule, rbacv1.PolicyRule{APIGroups: []string{k.Group}, Resources: []string{k.Resource}}, verbs, some)
	}
	return row
}

// add counts in those of some verbs on wanted that the i-th rule allows, to all objects
// or some.
func add(row *api.KindRights, i int, r, wanted rbacv1.PolicyRule, verbs []string, some bool) {
	r.ResourceNames = nil
	wanted.Verbs = verbs
	_, missing := validation.Covers([]rbacv1.PolicyRule{r}, []rbacv1.PolicyRule{wanted})
	if len(missing) == len(verbs) {
		return
	}
	row.Rules = append(row.Rules, i)
	for _, verb := range verbs {
		switch {
		case slices.ContainsFunc(missing, func(m rbacv1.PolicyRule) bool { return m.Verbs[0] == verb }), slices.Contains(row.All, verb):
		case !some:
			row.All = append(row.All, verb)
			row.Some = slices.DeleteFunc(row.Some, func(v string) bool { return v == verb })
		case !slices.Contains(row.Some, verb):
			row.Some = append(row.Some, verb)
		}
	}
}

// OwnOf is what a review of the user's own rules says of a namespace.
func OwnOf(said authorizationv1.SubjectRulesReviewStatus, namespace string) Own {
	own := Own{Namespace: namespace, Incomplete: said.Incomplete || said.EvaluationError != ""}
	for _, r := range said.ResourceRules {
		own.Rules = append(own.Rules, rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames})
	}
	for _, r := range said.NonResourceRules {
		own.Rules = append(own.Rules, rbacv1.PolicyRule{Verbs: r.Verbs, NonResourceURLs: r.NonResourceURLs})
	}
	return own
}
