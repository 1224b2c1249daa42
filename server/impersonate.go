package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/audit"
)

const (
	headerUser  = "Impersonate-User"
	headerGroup = "Impersonate-Group"
	headerUID   = "Impersonate-Uid"
	headerExtra = "Impersonate-Extra-"
)

// impersonate lets a user act as another one, if it may in one of the modes.
func (s *Server) impersonate(c *gin.Context) {
	asked, err := impersonation(c.Request.Header)
	if err != nil {
		c.Header("X-Content-Type-Options", "nosniff")
		s.refuse(c, err)
		return
	}
	if asked == nil {
		return
	}
	ctx := c.Request.Context()
	as, constraint, err := s.modes.choose(ctx, s.Authorizer, asked, attributesOf(c.Request))
	if err != nil {
		s.refuse(c, err)
		return
	}
	audit.From(ctx).Impersonates(as, constraint)
	s.become(c, as)
}

// impersonation takes the headers out of a request and returns who they ask for,
// nil if nobody.
func impersonation(h http.Header) (*user.DefaultInfo, error) {
	asked := &user.DefaultInfo{Name: h.Get(headerUser), UID: h.Get(headerUID), Groups: slices.Clone(h.Values(headerGroup))}
	extra := false
	for header, values := range h {
		key, ok := strings.CutPrefix(header, headerExtra)
		if !ok {
			continue
		}
		extra = true
		if len(values) == 0 {
			continue
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		if asked.Extra == nil {
			asked.Extra = map[string][]string{}
		}
		asked.Extra[key] = append(asked.Extra[key], values...)
	}
	if asked.Name == "" {
		if asked.UID != "" || len(asked.Groups) > 0 || extra {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", asked))
		}
		return nil, nil
	}
	for header := range h {
		if header == headerUser || header == headerUID || header == headerGroup || strings.HasPrefix(header, headerExtra) {
			h.Del(header)
		}
	}
	return asked, nil
}

// mode is a way of impersonation. In the constrained ones a user needs, beside the
// right to be somebody ("impersonate:MODE" on that name, group, uid and extra
// fields), the right to do what it is about to do as somebody else
// ("impersonate-on:MODE:VERB" on the object). The oldest one knows only the former.
type mode struct {
	name    string // "": the oldest
	applies func(asked *user.DefaultInfo, by user.Info) bool
	// seen changes what the authoriser is shown; nil: nothing.
	seen func(*authorizer.AttributesRecord)
}

// modes lists them in the order in which they are tried.
var modes = []mode{
	{name: "associated-node", applies: ownNode, seen: asAnyNode},
	{name: "arbitrary-node", applies: func(asked *user.DefaultInfo, _ user.Info) bool { return onlyName(asked) && isNode(asked.Name) }},
	{name: "serviceaccount", applies: func(asked *user.DefaultInfo, _ user.Info) bool {
		return onlyName(asked) && isServiceAccount(asked.Name)
	}},
	{name: "user-info", applies: func(asked *user.DefaultInfo, _ user.Info) bool {
		return !isNode(asked.Name) && !isServiceAccount(asked.Name)
	}},
	{applies: func(*user.DefaultInfo, user.Info) bool { return true }},
}

func onlyName(u *user.DefaultInfo) bool {
	return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0
}

func isServiceAccount(name string) bool {
	_, _, err := serviceaccount.SplitUsername(name)
	return err == nil
}

const nodePrefix = "system:node:"

func isNode(name string) bool {
	node, ok := strings.CutPrefix(name, nodePrefix)
	return ok && len(validation.NameIsDNSSubdomain(node, false)) == 0
}

// ownNode: a service account's pod runs on the node that it wants to be.
func ownNode(asked *user.DefaultInfo, by user.Info) bool {
	node := by.GetExtra()[serviceaccount.NodeNameKey]
	return onlyName(asked) && isNode(asked.Name) && isServiceAccount(by.GetName()) && len(node) == 1 && nodePrefix+node[0] == asked.Name
}

// asAnyNode makes the right to be one's own node independent of which that is.
func asAnyNode(a *authorizer.AttributesRecord) {
	if a.Verb == "impersonate:associated-node" {
		a.Name = "*"
	}
	var keys []string
	for key := range a.User.GetExtra() {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	a.User = &user.DefaultInfo{
		Name: a.User.GetName(), UID: a.User.GetUID(), Groups: a.User.GetGroups(),
		Extra: map[string][]string{"authentication.kubernetes.io/associated-node-keys": keys},
	}
}

// modeMemory remembers the mode in which a user last succeeded: it is tried first.
type modeMemory struct {
	mu   sync.Mutex // protects last
	last map[string]int
}

// modesKept bounds the memory.
const modesKept = 1024

func (m *modeMemory) get(name string) (int, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.last[name]
	return n, ok
}

func (m *modeMemory) set(name string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil || len(m.last) >= modesKept {
		m.last = map[string]int{}
	}
	m.last[name] = n
}

// choose returns whom a request is made as, and by which constrained right. The
// error is that of the first mode that applies.
func (m *modeMemory) choose(ctx context.Context, authz authorizer.UnconditionalAuthorizer, asked *user.DefaultInfo, a *authorizer.AttributesRecord) (user.Info, string, error) {
	by := a.User.GetName()
	order := make([]int, 0, len(modes)+1)
	first, known := m.get(by)
	if known {
		order = append(order, first)
	}
	for n := range modes {
		if !known || n != first {
			order = append(order, n)
		}
	}
	refused := errors.New("all impersonation modes failed")
	failed := false
	for _, n := range order {
		if !modes[n].applies(asked, a.User) {
			continue
		}
		attempt := &impersonationAttempt{mode: &modes[n], authz: authz, by: a.User}
		as, err := attempt.try(ctx, asked, a)
		if err == nil {
			m.set(by, n)
			return as, attempt.constraint(), nil
		}
		if !failed {
			refused, failed = err, true
		}
	}
	return nil, "", refused
}

// impersonationAttempt is one mode at work.
type impersonationAttempt struct {
	mode  *mode
	authz authorizer.UnconditionalAuthorizer
	by    user.Info
}

func (i *impersonationAttempt) constrained() bool { return i.mode.name != "" }

func (i *impersonationAttempt) constraint() string {
	if !i.constrained() {
		return ""
	}
	return "impersonate:" + i.mode.name
}

// try checks all that the mode asks for.
func (i *impersonationAttempt) try(ctx context.Context, asked *user.DefaultInfo, a *authorizer.AttributesRecord) (user.Info, error) {
	if i.constrained() {
		on := *a
		on.Verb = "impersonate-on:" + i.mode.name + ":" + a.Verb
		if err := i.check(ctx, on); err != nil {
			return nil, err
		}
	}
	for _, check := range []func(context.Context, *user.DefaultInfo) error{i.checkName, i.checkUID, i.checkGroups, i.checkExtra} {
		if err := check(ctx, asked); err != nil {
			return nil, err
		}
	}
	as := *asked
	as.Groups = i.groups(asked)
	addAuthenticated(&as)
	return &as, nil
}

// about is a question about being something.
func (i *impersonationAttempt) about(group, resource, name string) authorizer.AttributesRecord {
	verb := "impersonate"
	if i.constrained() {
		verb = i.constraint()
	}
	return authorizer.AttributesRecord{User: i.by, Verb: verb, APIGroup: group, APIVersion: "v1", Resource: resource, Name: name, ResourceRequest: true}
}

const authenticationGroup = "authentication.k8s.io"

// nameGroup is the API group of users and groups, which are no objects.
func (i *impersonationAttempt) nameGroup() string {
	if i.constrained() {
		return authenticationGroup
	}
	return ""
}

func (i *impersonationAttempt) checkName(ctx context.Context, asked *user.DefaultInfo) error {
	q := i.about(i.nameGroup(), "users", asked.Name)
	if i.constrained() && isNode(asked.Name) {
		q.Resource, q.Name = "nodes", strings.TrimPrefix(asked.Name, nodePrefix)
	}
	if namespace, name, err := serviceaccount.SplitUsername(asked.Name); err == nil {
		q.Resource, q.Namespace, q.Name = "serviceaccounts", namespace, name
	}
	return i.check(ctx, q)
}

// groups are those asked for, or those that a service account or node always has.
func (i *impersonationAttempt) groups(asked *user.DefaultInfo) []string {
	if i.constrained() && isNode(asked.Name) {
		return []string{user.NodesGroup}
	}
	if namespace, _, err := serviceaccount.SplitUsername(asked.Name); err == nil && len(asked.Groups) == 0 {
		return serviceaccount.MakeGroupNames(namespace)
	}
	return asked.Groups
}

func (i *impersonationAttempt) checkUID(ctx context.Context, asked *user.DefaultInfo) error {
	if asked.UID == "" {
		return nil
	}
	return i.check(ctx, i.about(authenticationGroup, "uids", asked.UID))
}

// manyChecks is from how many questions on it is worth asking for all at once.
const manyChecks = 4

func (i *impersonationAttempt) checkGroups(ctx context.Context, asked *user.DefaultInfo) error {
	q := i.about(i.nameGroup(), "groups", "")
	if i.constrained() && len(asked.Groups) > 0 {
		if slices.Contains(asked.Groups, "") {
			return errForbidden(&q, "impersonating the empty string group is not allowed")
		}
		if slices.Contains(asked.Groups, user.SystemPrivilegedGroup) {
			q.Name = user.SystemPrivilegedGroup
			return errForbidden(&q, "impersonating the system:masters group is not allowed")
		}
		if q.Name = "*"; len(asked.Groups) >= manyChecks && i.check(ctx, q) == nil {
			return nil
		}
	}
	for _, q.Name = range asked.Groups {
		if err := i.check(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

func (i *impersonationAttempt) checkExtra(ctx context.Context, asked *user.DefaultInfo) error {
	q := i.about(authenticationGroup, "userextras", "")
	count := 0
	for _, values := range asked.Extra {
		count += len(values)
	}
	if i.constrained() && len(asked.Extra) > 0 {
		if err := checkExtraFields(asked.Extra); err != nil {
			return errForbidden(&q, err.Error())
		}
		if q.Subresource, q.Name = "*", "*"; (count >= manyChecks || len(asked.Extra) >= manyChecks) && i.check(ctx, q) == nil {
			return nil
		}
	}
	for key, values := range asked.Extra {
		q.Subresource = key
		for _, q.Name = range values {
			if err := i.check(ctx, q); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkExtraFields(extra map[string][]string) error {
	for key, values := range extra {
		switch {
		case key == "":
			return errors.New("impersonating the empty string key in extra is not allowed")
		case len(utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key)) > 0:
			return fmt.Errorf("impersonating an invalid key in extra is not allowed: %w", utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate())
		case key != strings.ToLower(key):
			return fmt.Errorf("impersonating a non-lowercase key in extra is not allowed: %q", key)
		case len(values) == 0:
			return errors.New("impersonating empty values in extra is not allowed")
		case slices.Contains(values, ""):
			return errors.New("impersonating the empty string value in extra is not allowed")
		}
	}
	return nil
}

// check asks the authoriser. Trouble with it is a refusal.
func (i *impersonationAttempt) check(ctx context.Context, q authorizer.AttributesRecord) error {
	if i.mode.seen != nil {
		i.mode.seen(&q)
	}
	decision, reason, err := i.authz.Authorize(ctx, &q)
	if decision == authorizer.DecisionAllow {
		return nil
	}
	if err != nil {
		reason = strings.TrimSuffix(err.Error()+": "+reason, ": ")
	}
	return errForbidden(&q, reason)
}

// addAuthenticated adds the group of all who are somebody.
func addAuthenticated(who *user.DefaultInfo) {
	group := user.AllAuthenticated
	if who.Name == user.Anonymous {
		group = user.AllUnauthenticated
	}
	if !slices.Contains(who.Groups, group) && !slices.Contains(who.Groups, user.AllUnauthenticated) {
		who.Groups = append(slices.Clone(who.Groups), group)
	}
}
