// Package volume makes a pod's volumes appear as directories, one file per type
// of volume; kinds.go lists the types.
//
// SetUp is called before a pod's sandbox is made and again now and then: it is
// idempotent, and the second time brings contents that changed (ConfigMaps,
// Secrets, labels, tokens) into running pods. TearDown undoes it all. Neither
// remembers anything but tokens: what is mounted is read from the kernel.
//
// It leaves to others: attaching disks (a controller's work), and mounting into
// containers (the runtime's).
package volume
