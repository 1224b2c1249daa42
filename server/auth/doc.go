// Package auth says who is asking and what they may do, and issues service
// account tokens.
//
// A request passes through twice. Authenticator (authn.go) tries, in order, the
// headers of a trusted front proxy, a client certificate, and a bearer token:
// service account tokens (service_account.go), whose pod, node or secret must
// still exist, and bootstrap tokens (bootstrap_token.go). Whoever shows nothing
// is system:anonymous; whoever shows something wrong is refused. Authorizer
// (authz.go) then asks, in order, system:masters, the node authoriser (node.go
// over the graph of what each node's pods use) and RBAC (rbac.go over an index
// of the bindings by subject). Both authorisers follow the objects they decide
// by through a Source and answer from memory.
//
// Issuer signs tokens and publishes its keys; Bootstrap (bootstrap.go) creates
// the roles, bindings, flow schemas and priority classes that every cluster has.
// Escalation checks for writes of roles and bindings are in escalation.go.
//
// The HTTP side (401, 403, impersonation, the review kinds) is the server's.
package auth
