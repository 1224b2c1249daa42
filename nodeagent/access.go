package nodeagent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// access lets in those whom the API server says may have a node's subresources.
// Clients show a certificate, or a token that the API server reviews.
type access struct {
	a *Agent

	mu      sync.Mutex // protects the fields below
	tokens  map[string]cachedIdentity
	allowed map[string]time.Time // until when
}

type identity struct {
	name, uid string
	groups    []string
}

type cachedIdentity struct {
	identity
	until time.Time
}

const (
	tokenKept   = 2 * time.Minute
	allowedKept = 5 * time.Minute
)

// guard puts authentication and authorisation before a route.
func (c *access) guard(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, ok := c.who(r)
		if !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		if !c.may(r, who, route.what) {
			http.Error(w, fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=[%s])", who.name, verbOf(r), route.what), http.StatusForbidden)
			return
		}
		route.serve(w, r)
	})
}

// who identifies the caller.
func (c *access) who(r *http.Request) (identity, bool) {
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		subject := r.TLS.VerifiedChains[0][0].Subject
		return identity{name: subject.CommonName, groups: append(subject.Organization, "system:authenticated")}, true
	}
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if bearer && *c.a.cfg.Kubelet.Authentication.Webhook.Enabled {
		return c.review(r, token)
	}
	if *c.a.cfg.Kubelet.Authentication.Anonymous.Enabled {
		return identity{name: "system:anonymous", groups: []string{"system:unauthenticated"}}, true
	}
	return identity{}, false
}

// review asks the API server whose token it is.
func (c *access) review(r *http.Request, token string) (identity, bool) {
	sum := sha256.Sum256([]byte(token))
	key := hex.EncodeToString(sum[:])
	c.mu.Lock()
	have, ok := c.tokens[key]
	c.mu.Unlock()
	if ok && time.Now().Before(have.until) {
		return have.identity, true
	}
	if c.a.clients == nil {
		return identity{}, false
	}
	got, err := c.a.clients.AuthenticationV1().TokenReviews().Create(r.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil || !got.Status.Authenticated {
		return identity{}, false
	}
	who := identity{name: got.Status.User.Username, uid: got.Status.User.UID, groups: got.Status.User.Groups}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, v := range c.tokens {
		if time.Now().After(v.until) {
			delete(c.tokens, k)
		}
	}
	c.tokens[key] = cachedIdentity{who, time.Now().Add(tokenKept)}
	return who, true
}

// may asks the API server whether who may use the node's subresource what, or
// all of them, which is "proxy".
func (c *access) may(r *http.Request, who identity, what string) bool {
	if c.a.cfg.Kubelet.Authorization.Mode == "AlwaysAllow" {
		return true
	}
	key := who.name + "\x00" + strings.Join(who.groups, ",") + "\x00" + verbOf(r) + "\x00" + what
	c.mu.Lock()
	until := c.allowed[key]
	c.mu.Unlock()
	if time.Now().Before(until) {
		return true
	}
	if c.a.clients == nil {
		return false
	}
	for _, sub := range []string{what, "proxy"} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: who.name, UID: who.uid, Groups: who.groups,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verbOf(r), Version: "v1", Resource: "nodes", Subresource: sub, Name: c.a.cfg.NodeName},
		}}
		got, err := c.a.clients.AuthorizationV1().SubjectAccessReviews().Create(r.Context(), review, metav1.CreateOptions{})
		if err != nil {
			c.a.log.Warn("access to the node can't be reviewed", "user", who.name, "err", err)
			return false
		}
		if got.Status.Allowed {
			c.mu.Lock()
			defer c.mu.Unlock()
			for k, v := range c.allowed {
				if time.Now().After(v) {
					delete(c.allowed, k)
				}
			}
			c.allowed[key] = time.Now().Add(allowedKept)
			return true
		}
		if sub == "proxy" || what == "stats" || what == "metrics" || what == "log" || what == "checkpoint" {
			break
		}
	}
	return false
}

func verbOf(r *http.Request) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return "get"
}
