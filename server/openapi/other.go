package openapi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/common"
)

// discoveryRoute is the route of discovery of a group, or of a version of it.
func discoveryRoute(gv schema.GroupVersion, cbor bool) route {
	produces := bodiesOf(false, cbor).objects
	r := route{
		method: "GET", path: "/" + pathOf(gv) + "/", id: "get" + title(gv) + "APIResources", tag: tagOf(gv),
		description: "get available resources", produces: produces, consumes: produces,
		reply: model(metav1.APIResourceList{}.OpenAPIModelName()), codes: []int{200},
	}
	if gv.Version == "" {
		r.id, r.description = "get"+title(gv)+"APIGroup", "get information of a group"
		r.reply = model(metav1.APIGroup{}.OpenAPIModelName())
	}
	return r
}

// otherRoutes are those that are about no object.
func otherRoutes(o Options) []container {
	produces := bodiesOf(false, o.CBOR).objects
	versions := func(root, id, tag string, reply model) container {
		return container{root, []common.Route{route{
			method: "GET", path: root + "/", id: id, tag: tag, description: "get available API versions",
			produces: produces, consumes: produces, reply: reply, codes: []int{200},
		}}}
	}
	published := func(root, id, tag, says, media string) container {
		return container{root, []common.Route{route{
			method: "GET", path: root + "/", id: id, tag: tag, description: says, produces: []string{media}, reply: "string", codes: []int{200},
		}}}
	}
	all := []container{
		versions("/api", "getCoreAPIVersions", "core", model(metav1.APIVersions{}.OpenAPIModelName())),
		versions("/apis", "getAPIVersions", "apis", model(metav1.APIGroupList{}.OpenAPIModelName())),
		published("/.well-known/openid-configuration", "getServiceAccountIssuerOpenIDConfiguration", "WellKnown",
			"get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'", mediaJSON),
		published("/openid/v1/jwks", "getServiceAccountIssuerOpenIDKeyset", "openid",
			"get service account issuer OpenID JSON Web Key Set (contains public token verification keys)", "application/jwk-set+json"),
		{"/version", []common.Route{route{
			method: "GET", path: "/version/", id: "getCodeVersion", tag: "version", description: "get the version information for this server",
			consumes: []string{mediaJSON}, produces: []string{mediaJSON}, reply: model(apimachineryversion.Info{}.OpenAPIModelName()), codes: []int{200},
		}}},
	}
	if o.Logs {
		all = append(all, container{"/logs", []common.Route{
			route{method: "GET", path: "/logs/", id: "logFileListHandler", tag: "logs"},
			route{method: "GET", path: "/logs/{logpath}", id: "logFileHandler", tag: "logs", parameters: []common.Parameter{inPath("logpath", "path to the log")}},
		}})
	}
	return all
}
