package auth

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const nodeUserPrefix = "system:node:"

// nodeName is the node that a user is the kubelet of.
func nodeName(who user.Info) (string, bool) {
	if who == nil || !slices.Contains(who.GetGroups(), user.NodesGroup) {
		return "", false
	}
	return strings.CutPrefix(who.GetName(), nodeUserPrefix)
}

// nodeAuthorizer lets kubelets read what their own pods need, and write what is
// theirs. What they may write in an object is admission's matter (NodeRestriction).
type nodeAuthorizer struct {
	graph *graph
	rules []rbacv1.PolicyRule // of the role system:node, for all the rest
}

// Authorize has no opinion on users who are not kubelets.
func (n *nodeAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	node, ok := nodeName(a.GetUser())
	if !ok {
		return authorizer.DecisionNoOpinion, "", nil
	}
	if node == "" {
		return authorizer.DecisionNoOpinion, fmt.Sprintf("unknown node for user %q", a.GetUser().GetName()), nil
	}
	if reason := n.refuse(ctx, node, a); reason != "" {
		return authorizer.DecisionNoOpinion, reason, nil
	}
	return authorizer.DecisionAllow, "", nil
}

// refuse returns why a kubelet may not do something, or "".
func (n *nodeAuthorizer) refuse(ctx context.Context, node string, a authorizer.Attributes) string {
	if a.IsResourceRequest() {
		switch a.GetAPIGroup() + "/" + a.GetResource() {
		case "/secrets", "/configmaps":
			return n.refuseRead(ctx, node, a, true, "get", "list", "watch")
		case "/persistentvolumeclaims":
			if a.GetSubresource() == "status" {
				return n.refuseRelated(ctx, node, a, "get", "update", "patch")
			}
			return n.refuseRead(ctx, node, a, true, "get")
		case "/persistentvolumes":
			return n.refuseRead(ctx, node, a, false, "get")
		case "/serviceaccounts":
			if a.GetSubresource() == "token" {
				return n.refuseRelated(ctx, node, a, "create")
			}
			return n.refuseRead(ctx, node, a, true, "get")
		case "storage.k8s.io/volumeattachments":
			return n.refuseRead(ctx, node, a, false, "get")
		case "resource.k8s.io/resourceclaims":
			return n.refuseRead(ctx, node, a, true, "get")
		case "resource.k8s.io/resourceslices":
			return n.refuseSlice(ctx, node, a)
		case "certificates.k8s.io/podcertificaterequests":
			return n.refuseCertificateRequest(ctx, node, a)
		case "coordination.k8s.io/leases":
			return refuseLease(node, a)
		case "storage.k8s.io/csinodes":
			return refuseOwnNamed(node, a, "CSINode")
		case "/nodes":
			return refuseNode(node, a)
		case "/pods":
			return n.refusePod(ctx, node, a)
		}
	}
	if allows(n.rules, a) {
		return ""
	}
	if a.IsResourceRequest() {
		return fmt.Sprintf("node %q cannot %s resource %q in API group %q", node, a.GetVerb(), a.GetResource(), a.GetAPIGroup())
	}
	return fmt.Sprintf("node %q cannot %s path %q", node, a.GetVerb(), a.GetPath())
}

func (n *nodeAuthorizer) refuseRead(ctx context.Context, node string, a authorizer.Attributes, namespaced bool, verbs ...string) string {
	switch {
	case !slices.Contains(verbs, a.GetVerb()):
		if len(verbs) == 1 {
			return "can only get individual resources of this type"
		}
		return "can only read resources of this type"
	case a.GetSubresource() != "":
		return "cannot read subresource"
	case a.GetName() == "":
		return "No Object name found"
	case namespaced && a.GetNamespace() == "":
		return "can only read namespaced object of this type"
	}
	return n.refuseUnrelated(ctx, node, a)
}

func (n *nodeAuthorizer) refuseRelated(ctx context.Context, node string, a authorizer.Attributes, verbs ...string) string {
	switch {
	case !slices.Contains(verbs, a.GetVerb()):
		return fmt.Sprintf("can only %s resources of this type", strings.Join(verbs, "/"))
	case a.GetName() == "":
		return "No Object name found"
	}
	return n.refuseUnrelated(ctx, node, a)
}

func (n *nodeAuthorizer) refuseUnrelated(ctx context.Context, node string, a authorizer.Attributes) string {
	if n.graph.neededSoon(ctx, node, thing{a.GetResource(), a.GetNamespace(), a.GetName()}) {
		return ""
	}
	return fmt.Sprintf("no relationship found between node '%s' and this object", node)
}

// refuseSlice lets a kubelet manage the device inventory of its own node.
func (n *nodeAuthorizer) refuseSlice(ctx context.Context, node string, a authorizer.Attributes) string {
	if a.GetSubresource() != "" {
		return "cannot authorize ResourceSlice subresources"
	}
	switch a.GetVerb() {
	case "create":
		return "" // admission checks whose it is
	case "get", "update", "patch", "delete":
		return n.refuseUnrelated(ctx, node, a)
	case "watch", "list", "deletecollection":
		if selects(a, "spec.nodeName", node) {
			return ""
		}
		return "can only list/watch/deletecollection resourceslices with nodeName field selector"
	}
	return "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection"
}

// refuseCertificateRequest lets a kubelet ask for certificates for its pods, and
// see what becomes of it.
func (n *nodeAuthorizer) refuseCertificateRequest(ctx context.Context, node string, a authorizer.Attributes) string {
	if a.GetSubresource() != "" {
		return "nodes may not access the status subresource of PodCertificateRequests"
	}
	switch a.GetVerb() {
	case "create":
		return "" // admission checks whose it is
	case "get":
		return n.refuseUnrelated(ctx, node, a)
	case "list", "watch":
		if selects(a, "spec.nodeName", node) {
			return ""
		}
		return "can only list/watch podcertificaterequests with nodeName field selector"
	}
	return fmt.Sprintf("nodes may not %s podcertificaterequests", a.GetVerb())
}

func refuseLease(node string, a authorizer.Attributes) string {
	if a.GetNamespace() != "kube-node-lease" {
		return `can only access leases in the "kube-node-lease" system namespace`
	}
	return refuseOwnNamed(node, a, "lease")
}

// refuseOwnNamed lets a kubelet manage the one object that has its node's name.
func refuseOwnNamed(node string, a authorizer.Attributes, kind string) string {
	if !slices.Contains([]string{"get", "create", "update", "patch", "delete"}, a.GetVerb()) {
		return fmt.Sprintf("can only get, create, update, patch, or delete a %s", kind)
	}
	if a.GetSubresource() != "" {
		return fmt.Sprintf("cannot authorize %s subresources", kind)
	}
	if a.GetVerb() != "create" && a.GetName() != node {
		return fmt.Sprintf("can only access %s with the same name as the requesting node", kind)
	}
	return ""
}

func refuseNode(node string, a authorizer.Attributes) string {
	switch {
	case a.GetSubresource() == "" && slices.Contains([]string{"create", "update", "patch"}, a.GetVerb()):
		return "" // admission checks whose it is
	case a.GetSubresource() == "status" && slices.Contains([]string{"update", "patch"}, a.GetVerb()):
		return ""
	case a.GetSubresource() == "" && slices.Contains([]string{"get", "list", "watch"}, a.GetVerb()):
		if a.GetName() == node || a.GetName() == "" && selects(a, "metadata.name", node) {
			return ""
		}
		if a.GetName() != "" {
			return fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, a.GetName())
		}
		return fmt.Sprintf("node '%s' cannot read all nodes, only its own Node object", node)
	}
	return fmt.Sprintf("node %q cannot %s resource %q in API group %q", node, a.GetVerb(), "nodes", "")
}

func (n *nodeAuthorizer) refusePod(ctx context.Context, node string, a authorizer.Attributes) string {
	verb := a.GetVerb()
	switch a.GetSubresource() {
	case "":
		switch verb {
		case "get":
			return n.refuseUnrelated(ctx, node, a)
		case "list", "watch":
			if selects(a, "spec.nodeName", node) {
				return ""
			}
			if a.GetName() != "" {
				return n.refuseUnrelated(ctx, node, a)
			}
			return "can only list/watch pods with spec.nodeName field selector"
		case "create", "delete":
			return ""
		}
	case "status":
		if verb == "update" || verb == "patch" {
			return ""
		}
	case "eviction":
		if verb == "create" {
			return ""
		}
	}
	return fmt.Sprintf("node %q cannot %s resource %q in API group %q", node, verb, "pods", "")
}

// selects reports whether a list asks only for objects whose field has a value.
func selects(a authorizer.Attributes, name, value string) bool {
	requirements, err := a.GetFieldSelector()
	if err != nil {
		return false
	}
	for _, r := range requirements {
		if r.Field == name && (r.Operator == "=" || r.Operator == "==") && r.Value == value {
			return true
		}
	}
	return false
}
