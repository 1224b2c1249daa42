//go:build !linux

package nodeagent

import corev1 "k8s.io/api/core/v1"

// disk is a filesystem's size and room, in bytes and inodes.
type disk struct{ size, free, inodes, inodesFree int64 }

func diskOf(string) (disk, bool) { return disk{}, false }

func hugePages() corev1.ResourceList { return nil }
