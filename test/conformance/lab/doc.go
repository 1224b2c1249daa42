// Package lab starts the programs of a control plane on loopback for a test:
// keys and certificates, etcd, upstream's API server or ours. Everything lives in
// directories of the test.
package lab
