// Package cluster makes a machine part of a cluster: certificates and
// kubeconfigs, static pod manifests of the control plane, embedded etcd.
package cluster
