package nodeagent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"golang.org/x/sys/unix"
)

// disk is a filesystem's size and room, in bytes and inodes.
type disk struct{ size, free, inodes, inodesFree int64 }

func diskOf(path string) (disk, bool) {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return disk{}, false
	}
	block := int64(st.Bsize)
	return disk{size: int64(st.Blocks) * block, free: int64(st.Bavail) * block, inodes: int64(st.Files), inodesFree: int64(st.Ffree)}, true
}

// hugePages are the huge pages of each size.
func hugePages() corev1.ResourceList {
	out := corev1.ResourceList{}
	entries, _ := os.ReadDir("/sys/kernel/mm/hugepages")
	for _, e := range entries {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		n, _ := strconv.ParseInt(line(filepath.Join("/sys/kernel/mm/hugepages", e.Name(), "nr_hugepages")), 10, 64)
		size := resource.NewQuantity(kb<<10, resource.BinarySI)
		out[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(n*kb<<10, resource.BinarySI)
	}
	return out
}
