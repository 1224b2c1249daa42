// Package auth says who is asking (authn: certificates, service account tokens,
// bootstrap tokens) and what they may do (RBAC, node authoriser), and issues
// service account tokens.
package auth
