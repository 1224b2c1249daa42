package server

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"
)

// What the server says about itself: its version, its paths, and how its tokens
// are verified.

func (s *Server) version(c *gin.Context) {
	s.writeDocument(c, s.Version)
}

// listPaths is the index at /.
func (s *Server) listPaths(c *gin.Context) {
	s.writeDocument(c, map[string][]string{"paths": s.Paths()})
}

// Paths are those that there are, in order.
func (s *Server) Paths() []string {
	paths := []string{"/.well-known/openid-configuration", "/api", "/api/v1", "/apis", "/apis/", "/healthz", "/livez", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/openid/v1/jwks", "/readyz", "/version"}
	for _, gv := range s.Kinds.Versions() {
		if gv.Group != "" {
			paths = append(paths, "/apis/"+gv.Group, "/apis/"+gv.String())
		}
	}
	for _, group := range []string{"healthz", "livez", "readyz"} {
		for _, check := range s.health.checks(group) {
			paths = append(paths, "/"+group+"/"+check.Name)
		}
	}
	for path := range s.Extra {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

func (s *Server) writeDocument(c *gin.Context, doc any) {
	body, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		s.writeError(c.Writer, c.Request, err)
		return
	}
	c.Data(http.StatusOK, "application/json", body)
}

func (s *Server) openIDConfiguration(c *gin.Context) {
	s.publish(c, "application/json", func() ([]byte, error) { return s.Tokens.Discovery() })
}

func (s *Server) openIDKeys(c *gin.Context) {
	s.publish(c, "application/jwk-set+json", func() ([]byte, error) { return s.Tokens.KeySet() })
}

func (s *Server) publish(c *gin.Context, contentType string, read func() ([]byte, error)) {
	if s.Tokens == nil {
		notFoundText(c.Writer)
		return
	}
	body, err := read()
	if err != nil {
		s.writeError(c.Writer, c.Request, err)
		return
	}
	c.Header("Cache-Control", "public, max-age=3600")
	c.Data(http.StatusOK, contentType, body)
}
