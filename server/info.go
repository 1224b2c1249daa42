package server

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// requestInfo is what a URL and a method say, as upstream reads them: it decides
// which handler runs and what is asked of the authoriser.
type requestInfo struct {
	// Resource requests are about objects; all others are paths.
	Resource    bool
	Path        string
	Verb        string // get list watch create update patch delete deletecollection; the method in lower case for paths
	GVR         schema.GroupVersionResource
	Namespace   string
	Name        string
	Subresource string
	// Rest is what follows the subresource in the path, or nothing: what a
	// proxy passes on. It starts with a slash unless it is empty.
	Rest string
	// named: the path names an object.
	named bool
}

// parseRequest reads the URL of a request. The forms are listed in routes.go.
func parseRequest(r *http.Request) *requestInfo {
	info := &requestInfo{Path: r.URL.Path, Verb: strings.ToLower(r.Method)}
	parts := splitPath(r.URL.Path)
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		info.GVR.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		info.GVR.Group, info.GVR.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return info
	}
	info.Resource = true
	info.Verb = verbOf(r.Method)
	if parts[0] == "watch" && len(parts) > 1 {
		info.Verb, parts = "watch", parts[1:]
	}
	parts = info.takeNamespace(parts)
	info.GVR.Resource = parts[0]
	if len(parts) > 1 {
		info.Name, info.named = parts[1], true
	}
	if len(parts) > 2 {
		info.Subresource = parts[2]
		info.Rest = restOf(r.URL.Path, parts)
	}
	if info.Name == "" {
		info.refineCollectionVerb(r)
	}
	return info
}

// takeNamespace reads namespaces/{name}. The namespace itself and its own
// subresources are about the object of that name, anything else below it is
// about what is in it.
func (i *requestInfo) takeNamespace(parts []string) []string {
	if parts[0] != "namespaces" || len(parts) < 2 {
		return parts
	}
	i.Namespace = parts[1]
	if len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		return parts[2:]
	}
	return parts
}

// refineCollectionVerb tells a list from a watch and a delete of many from a
// delete of one. A field selector for one name counts as naming it: that is how
// a node may watch its own objects only.
func (i *requestInfo) refineCollectionVerb(r *http.Request) {
	switch i.Verb {
	case "get":
		i.Verb = "list"
		if isTrue(r.URL.Query()["watch"]) {
			i.Verb = "watch"
		}
	case "delete":
		i.Verb = "deletecollection"
	}
	if i.Verb != "list" && i.Verb != "watch" {
		return
	}
	if selector, err := fields.ParseSelector(r.URL.Query().Get("fieldSelector")); err == nil {
		if name, ok := selector.RequiresExactMatch(metav1.ObjectNameField); ok && validPathSegment(name) {
			i.Name = name
		}
	}
}

func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet, http.MethodHead:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

func splitPath(path string) []string {
	path = strings.Trim(path, "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// restOf is the part of path behind the subresource, its trailing slash kept.
func restOf(path string, parts []string) string {
	skip := len(splitPath(path)) - len(parts) + 3
	path = strings.TrimLeft(path, "/")
	for ; skip > 0; skip-- {
		at := strings.IndexByte(path, '/')
		if at < 0 {
			return ""
		}
		path = path[at+1:]
	}
	return "/" + path
}

func validPathSegment(name string) bool {
	return name != "." && name != ".." && !strings.ContainsAny(name, "/%")
}

// isTrue reads a boolean query parameter as upstream does: one that is present
// without a value is true.
func isTrue(values []string) bool {
	if len(values) == 0 {
		return false
	}
	v := strings.ToLower(values[0])
	return v != "0" && v != "false"
}

// longRunning requests have no deadline and do not count as in flight.
func (i *requestInfo) longRunning() bool {
	if i.Verb == "watch" || i.Verb == "proxy" {
		return true
	}
	switch i.Subresource {
	case "attach", "exec", "proxy", "log", "portforward":
		return true
	}
	return false
}
