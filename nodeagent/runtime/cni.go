package runtime

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
)

// CNIPlugin is the name of our CNI plugin, one of the helper's.
const CNIPlugin = "orrery-cni"

// cniReservations lies on a tmpfs: after a reboot no pod is left, and so must
// no reservation.
const cniReservations = "/run/orrery/cni"

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
			"dataDir":      cniReservations,
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
