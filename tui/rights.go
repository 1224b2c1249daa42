package tui

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	authzv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// rights remembers for a while what the authoriser answered.
type rights struct {
	words words

	mu    sync.Mutex // protects known
	known map[authzv1.ResourceAttributes]answer
}

type answer struct {
	allowed bool
	at      time.Time
}

const answerHolds = 30 * time.Second

func newRights(w words) *rights {
	return &rights{words: w, known: map[authzv1.ResourceAttributes]answer{}}
}

// refusal says why the user may not do act to t; empty if they may, or if
// nobody can tell, because then the server will.
func (r *rights) refusal(ctx context.Context, c *cluster, act action, t target, home string) string {
	if act.home {
		t.namespace = home
	}
	ask := authzv1.ResourceAttributes{Verb: act.verb, Group: t.kind.group, Resource: t.kind.plural, Subresource: act.sub, Namespace: t.namespace}
	if act.resource != "" {
		ask.Resource, ask.Group, _ = strings.Cut(act.resource, ".")
	}
	r.mu.Lock()
	known, ok := r.known[ask]
	r.mu.Unlock()
	if !ok || time.Since(known.at) > answerHolds {
		review := &authzv1.SelfSubjectAccessReview{Spec: authzv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &ask}}
		out, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return ""
		}
		known = answer{allowed: out.Status.Allowed, at: time.Now()}
		r.mu.Lock()
		r.known[ask] = known
		r.mu.Unlock()
	}
	if known.allowed {
		return ""
	}
	resource := ask.Resource
	if ask.Subresource != "" {
		resource += "/" + ask.Subresource
	}
	if ask.Namespace != "" {
		return r.words.say("needs the verb %q on %s in %s", ask.Verb, resource, ask.Namespace)
	}
	return r.words.say("needs the verb %q on %s", ask.Verb, resource)
}

// home is the namespace that one works in, the first of several.
func (a *app) home() string {
	namespace, _, _ := strings.Cut(cmp.Or(a.namespace, metav1.NamespaceDefault), ",")
	return namespace
}
