// Package encryption encrypts what is stored in etcd, by upstream's configuration
// file (EncryptionConfiguration, apiserver.config.k8s.io/v1) and in upstream's
// format, so that its API server reads what ours wrote and the other way round.
//
// New reads the file and makes a set (set.go) of it: for each resource that it
// names the providers in order (providers.go). The first one writes; a read takes
// the one whose name the value begins with, and tells storage that the value is
// outdated if that was not the first. Providers of kind KMS (kms.go) get their
// keys from a plugin behind a unix socket, whose health the package watches over.
//
// Run keeps that up and, if asked to, reads the file again when it changes. What
// is written is storage's business: it asks TransformerForResource once for each
// collection, and a set may take the place of another behind its back.
package encryption
