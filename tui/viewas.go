package tui

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	authnv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"orrery.dev/api"
)

func viewAsActions() []action {
	const instead = "use kubectl --as there" // whom that server stands for is not for the user to say
	return []action{
		{name: "as", help: "see the cluster as another may: USER GROUP..., or s:NAMESPACE:NAME; alone comes back", instead: instead, run: (*app).askAs},
		{name: "view-as", hint: "view as", help: "see the cluster as this one may; :as comes back", on: []string{"serviceaccounts", "users", "groups", "holders"}, instead: instead, run: one(func(a *app, t target) {
			if t.kind.plural == "serviceaccounts" {
				a.viewAs(userOf(accountOf(t)))
				return
			}
			if s, ok := api.ParseSubject(t.name); ok {
				a.viewAs(userOf(s))
			}
		})},
	}
}

// askAs reads what follows ":as".
func (a *app) askAs(c call) {
	if len(c.args) == 0 {
		if a.config.self == nil {
			a.note("you see it as yourself")
			return
		}
		a.viewAs(rest.ImpersonationConfig{})
		return
	}
	s, ok := api.ParseSubject(c.args[0])
	if !ok {
		s = api.Subject{Kind: rbacv1.UserKind, Name: c.args[0]}
	}
	who := userOf(s)
	who.Groups = slices.Concat(who.Groups, c.args[1:])
	a.viewAs(who)
}

// userOf is whom a subject is. That of a group is a user of no other.
func userOf(s api.Subject) rest.ImpersonationConfig {
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		return rest.ImpersonationConfig{UserName: "system:serviceaccount:" + s.Namespace + ":" + s.Name}
	case rbacv1.GroupKind:
		return rest.ImpersonationConfig{UserName: "member-of:" + s.Name, Groups: []string{s.Name}}
	}
	return rest.ImpersonationConfig{UserName: s.Name}
}

// viewAs goes on with the view on screen as another user, or as oneself again. The API
// server decides who may: it is asked before what is on screen is left.
func (a *app) viewAs(who rest.ImpersonationConfig) {
	a.keepPlace()
	here := a.trail.here()
	to := Connection{Context: a.config.Context, REST: cmp.Or(a.config.self, a.config.REST), Instead: a.config.Instead}
	if who.UserName != "" {
		to.self = to.REST
		to.REST = rest.CopyConfig(to.self)
		to.REST.Impersonate = who
	}
	a.async(func(ctx context.Context) func() {
		c, err := newCluster(to.REST, to.Instead)
		if err == nil && who.UserName != "" {
			_, err = c.kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authnv1.SelfSubjectReview{}, metav1.CreateOptions{})
		}
		return func() {
			if err != nil {
				a.fail(fmt.Errorf("as %s: %w", who.UserName, err))
				return
			}
			a.leaveFor(to, c, here)
		}
	})
}
