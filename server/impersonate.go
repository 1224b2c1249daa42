package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/gin-gonic/gin"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// impersonate lets a user act as another one, if each part of the identity that
// it asks for is one that it may impersonate.
func (s *Server) impersonate(c *gin.Context) {
	asked, checks, err := impersonation(c.Request.Header)
	if err != nil {
		s.refuse(c, err)
		return
	}
	if asked == nil {
		return
	}
	ctx := c.Request.Context()
	who := userFrom(ctx)
	for _, a := range checks {
		a.User, a.Verb, a.ResourceRequest = who, "impersonate", true
		if err := s.mayDo(ctx, a); err != nil {
			s.refuse(c, err)
			return
		}
	}
	for name := range c.Request.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			c.Request.Header.Del(name)
		}
	}
	audit.From(ctx).Impersonates(asked, "")
	s.become(c, asked)
}

// impersonation reads the headers: the identity asked for, and what must be
// allowed for it. A nil user means that nothing was asked for.
func impersonation(h http.Header) (*user.DefaultInfo, []*authorizer.AttributesRecord, error) {
	name, groups, uid := h.Get(headerUser), h.Values(headerGroup), h.Get(headerUID)
	var extra map[string][]string
	for header, values := range h {
		if key, ok := strings.CutPrefix(header, headerExtra); ok {
			key = strings.ToLower(key)
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			if extra == nil {
				extra = map[string][]string{}
			}
			extra[key] = append(extra[key], values...)
		}
	}
	if name == "" {
		if len(groups) > 0 || uid != "" || len(extra) > 0 {
			return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", &user.DefaultInfo{UID: uid, Groups: groups, Extra: extra}))
		}
		return nil, nil, nil
	}
	asked := &user.DefaultInfo{Name: name, UID: uid, Groups: append([]string(nil), groups...), Extra: extra}
	var checks []*authorizer.AttributesRecord
	if namespace, account, err := serviceaccount.SplitUsername(name); err == nil {
		checks = append(checks, &authorizer.AttributesRecord{APIVersion: "v1", Resource: "serviceaccounts", Namespace: namespace, Name: account})
		if len(groups) == 0 {
			asked.Groups = serviceaccount.MakeGroupNames(namespace)
		}
	} else {
		checks = append(checks, &authorizer.AttributesRecord{APIVersion: "v1", Resource: "users", Name: name})
	}
	for _, g := range groups {
		checks = append(checks, &authorizer.AttributesRecord{APIVersion: "v1", Resource: "groups", Name: g})
	}
	const group = "authentication.k8s.io"
	for key, values := range extra {
		for _, v := range values {
			checks = append(checks, &authorizer.AttributesRecord{APIGroup: group, APIVersion: "v1", Resource: "userextras", Subresource: key, Name: v})
		}
	}
	if uid != "" {
		checks = append(checks, &authorizer.AttributesRecord{APIGroup: group, APIVersion: "v1", Resource: "uids", Name: uid})
	}
	addAuthenticated(asked)
	return asked, checks, nil
}

// addAuthenticated adds the group of all who are somebody.
func addAuthenticated(who *user.DefaultInfo) {
	if who.Name == user.Anonymous {
		if len(who.Groups) == 0 {
			who.Groups = []string{user.AllUnauthenticated}
		}
		return
	}
	for _, g := range who.Groups {
		if g == user.AllAuthenticated || g == user.AllUnauthenticated {
			return
		}
	}
	who.Groups = append(who.Groups, user.AllAuthenticated)
}
