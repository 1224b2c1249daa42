package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// CNIPlugin is the name of our CNI plugin, one of the helper's.
const CNIPlugin = "orrery-cni"

// cniReservations lies on a tmpfs: after a reboot no pod is left, and so must
// no reservation. Each pod range has a directory of its own below it.
const cniReservations = "/run/orrery/cni"

// podTable is the nftables table that the CNI plugin makes.
const podTable = "orrery-pods"

func reservationsDir(podCIDR string) string {
	return filepath.Join(cniReservations, strings.ReplaceAll(podCIDR, "/", "-"))
}

// WriteCNIConfig writes the pod network's configuration into dir. Writing it is
// what makes the runtime report its network as ready. podCIDR is this node's
// share of clusterCIDR; an mtu of 0 leaves the kernel's default.
func WriteCNIConfig(dir, podCIDR, clusterCIDR string, mtu int) error {
	for _, cidr := range []string{podCIDR, clusterCIDR} {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return fmt.Errorf("pod network: %w", err)
		}
	}
	conf := map[string]any{
		"cniVersion": "1.1.0",
		"name":       "orrery",
		"plugins": []any{map[string]any{
			"type":         CNIPlugin,
			"podCIDR":      podCIDR,
			"clusterCIDR":  clusterCIDR,
			"mtu":          mtu,
			"dataDir":      reservationsDir(podCIDR),
			"capabilities": map[string]bool{"portMappings": true},
		}},
	}
	text, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return err
	}
	if err := writeIfChanged(filepath.Join(dir, "10-orrery.conflist"), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("pod network: %w", err)
	}
	return nil
}

// RemoveCNI takes back what the CNI plugin leaves on the node once all pods are
// gone: its nftables table and the reservations for podCIDR.
func RemoveCNI(podCIDR string) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("remove pod network: %w", err)
	}
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: podTable})
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove pod network: %w", err)
	}
	if err := os.RemoveAll(reservationsDir(podCIDR)); err != nil {
		return fmt.Errorf("remove pod network: %w", err)
	}
	return nil
}
