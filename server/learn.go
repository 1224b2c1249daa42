package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"orrery.dev/server/openapi"
)

// What another API server says about its kinds is part of what this one says:
// discovery, OpenAPI v2, and where its OpenAPI v3 is.

// Whom other servers are asked as: about what they serve, and about what it looks
// like.
var (
	aggregatorUser = &user.DefaultInfo{Name: "system:kube-aggregator", Groups: []string{user.SystemPrivilegedGroup}}
	openAPIUser    = &user.DefaultInfo{Name: "system:aggregator"}
)

// learn asks a server for what it serves of a group version. One that does not
// tell is stale, and has no kinds.
func (s *Server) learn(ctx context.Context, r *remote, gv schema.GroupVersion) {
	r.asked = time.Now()
	before := r.told
	r.told = openapi.Remote{
		Name: r.from.Name, GroupPriority: r.from.Spec.GroupPriorityMinimum, VersionPriority: r.from.Spec.VersionPriority,
		Discovery: apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessStale},
		OpenAPI:   before.OpenAPI, Index: before.Index,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.aggregateTo(w, r, gv) }),
	}
	if !r.available {
		return
	}
	if found, err := s.remoteDiscovery(ctx, r, gv); err == nil {
		r.told.Discovery = found
		r.told.Discovery.Freshness = apidiscoveryv2.DiscoveryFreshnessCurrent
	} else {
		s.Log.Debug("discovery of another server", "key", r.from.Name, "err", err)
	}
	if err := s.remoteOpenAPI(ctx, r, gv); err != nil {
		s.Log.Debug("openapi of another server", "key", r.from.Name, "err", err)
	}
}

const acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// remoteDiscovery asks for all that a server has in one document, or else for the
// group version.
func (s *Server) remoteDiscovery(ctx context.Context, r *remote, gv schema.GroupVersion) (apidiscoveryv2.APIVersionDiscovery, error) {
	none := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version}
	base := "https://" + r.address
	all, err := s.fetch(ctx, r, base+"/apis", mediaOf(acceptAggregated), aggregatorUser)
	if err == nil && strings.Contains(all.header.Get("Content-Type"), "as=APIGroupDiscoveryList") {
		list := apidiscoveryv2.APIGroupDiscoveryList{}
		if err := json.Unmarshal(all.body, &list); err != nil {
			return none, err
		}
		return versionIn(list, gv), nil
	}
	one, err := s.fetch(ctx, r, base+"/apis/"+gv.String(), mediaOf("application/json"), aggregatorUser)
	if err != nil {
		return none, err
	}
	list := &metav1.APIResourceList{}
	if err := json.Unmarshal(one.body, list); err != nil {
		return none, err
	}
	return openapi.Aggregated(gv, list), nil
}

func versionIn(list apidiscoveryv2.APIGroupDiscoveryList, gv schema.GroupVersion) apidiscoveryv2.APIVersionDiscovery {
	for _, g := range list.Items {
		for _, v := range g.Versions {
			if g.Name == gv.Group && v.Version == gv.Version {
				return v
			}
		}
	}
	return apidiscoveryv2.APIVersionDiscovery{Version: gv.Version}
}

// remoteOpenAPI asks where a server's v3 documents are, and for what its v2
// document has of the group version.
func (s *Server) remoteOpenAPI(ctx context.Context, r *remote, gv schema.GroupVersion) error {
	base := "https://" + r.address
	if reply, err := s.fetch(ctx, r, base+"/openapi/v3", mediaOf("application/json"), openAPIUser); err == nil {
		index := struct {
			Paths map[string]struct {
				URL string `json:"serverRelativeURL"`
			} `json:"paths"`
		}{}
		if err := json.Unmarshal(reply.body, &index); err != nil {
			return err
		}
		r.told.Index = map[string]string{}
		for name, at := range index.Paths {
			r.told.Index[name] = at.URL
		}
	}
	header := mediaOf("application/json")
	if r.etag != "" {
		header.Set("If-None-Match", r.etag)
	}
	reply, err := s.fetch(ctx, r, base+"/openapi/v2", header, openAPIUser)
	if err != nil || reply.code == http.StatusNotModified {
		return err
	}
	swagger := &spec.Swagger{}
	if err := json.Unmarshal(reply.body, swagger); err != nil {
		return err
	}
	r.told.OpenAPI = aggregator.FilterSpecByPathsWithoutSideEffects(swagger, []string{"/apis/" + gv.String() + "/"})
	r.etag = reply.header.Get("Etag")
	return nil
}

// fetched is an answer of another server.
type fetched struct {
	code   int
	header http.Header
	body   []byte
}

func mediaOf(accept string) http.Header { return http.Header{"Accept": {accept}} }

// fetch asks another server for a document. Codes that are neither success nor
// "as before" are errors.
func (s *Server) fetch(ctx context.Context, r *remote, url string, header http.Header, as user.Info) (*fetched, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	introduce(req.Header, as)
	client := http.Client{Transport: r.via, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	reply, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	if (reply.StatusCode < 200 || reply.StatusCode >= 300) && reply.StatusCode != http.StatusNotModified {
		return nil, fmt.Errorf("bad status from %s: %d", url, reply.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(reply.Body, 64<<20))
	return &fetched{reply.StatusCode, reply.Header, body}, err
}
