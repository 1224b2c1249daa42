package tui

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	authnv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"orrery.dev/api"
)

// can asks what follows ":can": "delete pods" who can do that, "u:jane" what jane may
// do, and nothing what the user may.
func (a *app) can(c command) {
	var words []string
	for i := 0; i < len(c.args); i++ {
		switch c.args[i] {
		case "-A":
			a.namespace = ""
		case "-n":
			if i++; i < len(c.args) {
				a.namespace = c.args[i]
			}
		default:
			words = append(words, c.args[i])
		}
	}
	filter := c.filter
	if filter != "" && len(words) == 1 { // "get /metrics"
		words, filter = append(words, "/"+filter), ""
	}
	var t *tablePane
	switch len(words) {
	case 0:
		t = a.newPolicy("me")
	case 1:
		subject, ok := api.ParseSubject(words[0])
		if !ok {
			a.fail(fmt.Errorf("%s", a.words.say(":can VERB RESOURCE, or :can u:NAME, g:NAME, s:NAMESPACE:NAME")))
			return
		}
		t = a.newPolicy(subject.String())
	default:
		t = a.newHolders(words[0], words[1], strings.Join(words[2:], " "))
	}
	t.setFilter(filter)
	a.replace(t)
}

// newAnswer is a table of what the API server answers about a namespace, "" being all.
// It is asked anew when the user goes to another one.
func newAnswer[T any](a *app, plural string, columns []string, query url.Values, show func(answer *T, namespaces string) ([]api.Row, []api.Finding)) *tablePane {
	var in atomic.Pointer[string]
	var t *tablePane
	t = a.newList(plural, columns, 0, func(ctx context.Context) ([]api.Row, error) {
		namespaces, ask := *in.Load(), maps.Clone(query)
		if !strings.Contains(namespaces, ",") { // some are found in the answer about all
			ask.Set("namespace", namespaces)
		}
		answer := new(T)
		if err := a.ask(ctx, api.RightsPath, ask, answer); err != nil {
			return nil, err
		}
		rows, remarks := show(answer, namespaces)
		a.post(func() {
			t.remarks = nil
			for _, r := range remarks {
				t.remarks = append(t.remarks, a.shared.Finding(r))
			}
		})
		return rows, nil
	})
	t.kind.namespaced = true
	load := t.source
	t.source = func(tell func(api.Tell)) func() {
		namespaces := a.namespace
		in.Store(&namespaces)
		return load(tell)
	}
	return t
}

// newHolders is the table of those who can do something.
func (a *app) newHolders(verb, resource, name string) *tablePane {
	q := url.Values{"verb": {verb}, "resource": {resource}, "name": {name}}
	if !strings.HasPrefix(resource, "/") {
		of, sub, within := strings.Cut(resource, "/")
		of, group, _ := strings.Cut(of, ".")
		if k, ok := a.kinds.resolve(strings.TrimSuffix(resource, "/"+sub)); ok {
			of, group = k.plural, k.group
		}
		if within {
			of += "/" + sub
		}
		q.Set("resource", of)
		q.Set("group", group)
	}
	everywhere := a.words.say("everywhere")
	t := newAnswer(a, "holders", []string{"Name", "Kind", "Where", "Role", "Binding", "Names"}, q, func(who *api.WhoCan, namespaces string) ([]api.Row, []api.Finding) {
		var rows []api.Row
		for _, h := range who.Holders {
			if h.Namespace != "" && namespaces != "" && !slices.Contains(strings.Split(namespaces, ","), h.Namespace) {
				continue
			}
			r := subjectRow(h.Subject, h.Subject.Kind, cmp.Or(h.Namespace, everywhere), h.Role.Kind+"/"+h.Role.Name, h.Binding.Kind+"/"+h.Binding.Name, strings.Join(h.Names, ","))
			r.UID, r.Namespace = fmt.Sprint(r.UID, h.Binding), h.Namespace
			rows = append(rows, r)
		}
		return rows, who.Remarks
	})
	t.name = a.words.say("who can %s", strings.TrimSpace(strings.Join([]string{verb, resource, name}, " ")))
	t.opens = func(subject string) { a.push(a.newPolicy(subject)) }
	return t
}

// subjectRow is the row of a subject, with what else there is to say of it.
func subjectRow(s api.Subject, cells ...string) api.Row {
	name := s.Name
	if s.Namespace != "" {
		name = s.Namespace + "/" + name
	}
	r := listRow("", append([]string{name}, cells...)...)
	r.UID, r.Name = s.String(), s.String()
	return r
}

// newSubjects is the table of the users, or groups, that bindings name.
func (a *app) newSubjects(plural, kind string) *tablePane {
	t := newAnswer(a, plural, []string{"Name", "Bindings"}, url.Values{}, func(all *api.Subjects, _ string) (rows []api.Row, _ []api.Finding) {
		for _, s := range all.Items {
			if s.Subject.Kind == kind {
				rows = append(rows, subjectRow(s.Subject, fmt.Sprint(s.Bindings)))
			}
		}
		return rows, nil
	})
	t.name = a.words.say(plural)
	t.opens = func(subject string) { a.push(a.newPolicy(subject)) }
	return t
}

// policyVerbs are the columns of the table of rights.
var policyVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"}

// newPolicy is the table of what a subject may do with each kind, "me" being the user;
// Enter tells the rules that say so.
func (a *app) newPolicy(of string) *tablePane {
	columns := []string{"Name"}
	for _, verb := range policyVerbs {
		columns = append(columns, strings.ToUpper(verb[:1])+verb[1:])
	}
	var told atomic.Pointer[api.Rights]
	ks := a.kinds
	t := newAnswer(a, "rights", append(columns, "Others", "Bindings"), url.Values{"of": {of}}, func(r *api.Rights, _ string) (rows []api.Row, _ []api.Finding) {
		told.Store(r)
		for _, k := range r.Kinds {
			if len(k.All)+len(k.Some) > 0 {
				rows = append(rows, policyRow(r, k, ks))
			}
		}
		return rows, r.Remarks
	})
	t.name = a.words.say("rights of %s", of)
	if of == "me" {
		t.name = a.words.say("your rights")
	}
	t.opens = func(resource string) {
		r := told.Load()
		at := slices.IndexFunc(r.Kinds, func(k api.KindRights) bool { return nameOfKind(k) == resource })
		if at < 0 {
			return
		}
		lines := a.ruleLines(r, r.Kinds[at])
		a.push(newText(a, t.name+" ‹"+resource+"›", func(context.Context) ([]string, error) { return lines, nil }))
	}
	return t
}

func nameOfKind(k api.KindRights) string { return kind{plural: k.Resource, group: k.Group}.scope() }

func policyRow(r *api.Rights, k api.KindRights, ks kinds) api.Row {
	name := nameOfKind(k)
	cells := []string{name}
	known, ok := ks.resolve(name)
	ok = ok && known.scope() == name
	for _, verb := range policyVerbs {
		cell := "·"
		switch {
		case slices.Contains(k.All, verb):
			cell = "✓"
		case slices.Contains(k.Some, verb):
			cell = "◐"
		case ok && !slices.Contains(known.verbs, verb), strings.HasPrefix(name, "/"): // there is no such verb
			cell = ""
		}
		cells = append(cells, cell)
	}
	var others, from []string
	for _, verb := range slices.Concat(k.All, k.Some) {
		if !slices.Contains(policyVerbs, verb) {
			others = append(others, verb)
		}
	}
	for _, i := range k.Rules {
		if b := r.Rules[i].Binding; b != nil && !slices.Contains(from, b.Name) {
			from = append(from, b.Name)
		}
	}
	return listRow("", append(cells, strings.Join(others, ","), strings.Join(from, ","))...)
}

// ruleLines tell the rules that give somebody rights to a kind.
func (a *app) ruleLines(r *api.Rights, k api.KindRights) []string {
	var out []string
	for _, i := range k.Rules {
		rule := r.Rules[i]
		line := strings.Join(rule.Verbs, ", ") + "   " + strings.Join(slices.Concat(rule.Resources, rule.NonResourceURLs), ", ")
		if len(rule.ResourceNames) > 0 {
			line += "   " + a.words.say("only %s", strings.Join(rule.ResourceNames, ", "))
		}
		out = append(out, line, "    "+a.words.say("where: %s", cmp.Or(rule.Namespace, a.words.say("everywhere"))))
		if rule.Binding == nil {
			out = append(out, "    "+a.words.say("by no binding"), "")
			continue
		}
		out = append(out, "    "+rule.Binding.Kind+"/"+rule.Binding.Name+" → "+rule.Role.Kind+"/"+rule.Role.Name)
		if *rule.Through != r.Subject {
			out = append(out, "    "+a.words.say("as a member of %s", rule.Through.Name))
		}
		out = append(out, "")
	}
	return out
}

// showGiver describes the role, or the binding, by which a holder has the right.
func (a *app) showGiver(c call, column string) {
	row := c.table.current()
	if row == nil {
		return
	}
	at := slices.IndexFunc(c.table.snap.columns, func(col gridColumn) bool { return col.name == column })
	kind, name, _ := strings.Cut(row.cells[at], "/")
	k, ok := a.kinds.byKind(kind)
	if !ok {
		a.fail(fmt.Errorf("%s", a.words.say("no kind or command %q; Ctrl-A lists them", kind)))
		return
	}
	t := target{kind: k, name: name}
	if k.namespaced {
		t.namespace = row.row.Namespace
	}
	a.describe(t)
}

// showWhoAmI tells whom the API server takes the user for.
func (a *app) showWhoAmI() {
	a.replace(newText(a, "whoami", func(ctx context.Context) ([]string, error) {
		said, err := a.cluster.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authnv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		who := said.Status.UserInfo
		out := []string{padText(a.words.say("User"), 10) + who.Username}
		if who.UID != "" {
			out = append(out, padText("UID", 10)+who.UID)
		}
		for _, group := range who.Groups {
			out = append(out, padText(a.words.say("Group"), 10)+group)
		}
		for _, key := range slices.Sorted(maps.Keys(who.Extra)) {
			out = append(out, key+"  "+strings.Join(who.Extra[key], ", "))
		}
		return out, nil
	}))
}

// accountOf is the subject that a ServiceAccount is.
func accountOf(t target) api.Subject {
	return api.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: t.namespace, Name: t.name}
}

func policyActions() []action {
	on := []string{"holders"}
	return []action{
		{name: "show-role", hint: "role", help: "the role that gives the right", on: on, run: func(a *app, c call) { a.showGiver(c, "ROLE") }},
		{name: "show-binding", hint: "binding", help: "the binding that gives the right", on: on, run: func(a *app, c call) { a.showGiver(c, "BINDING") }},
	}
}
