package nodeagent

import (
	"log/slog"
	"maps"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// setDefaults gives every field of cfg that upstream gives a default the same
// one, so that the rest of the package reads fields without asking.
func setDefaults(cfg *Config) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Version == "" {
		cfg.Version = "v1.37.2"
	}
	if cfg.NodeIP == "" {
		cfg.NodeIP = defaultAddress()
	}
	k := &cfg.Kubelet
	or(&k.PodLogsDir, "/var/log/pods")
	or(&cfg.PodLogsDir, k.PodLogsDir)
	or(&cfg.RootDir, "/var/lib/kubelet")
	orPtr(&k.EnableServer, true)
	orPtr(&k.RegisterNode, true)
	orPtr(&k.CgroupsPerQOS, true)
	orPtr(&k.CPUCFSQuota, true)
	orPtr(&k.SerializeImagePulls, true)
	orPtr(&k.EnableDebuggingHandlers, true)
	orPtr(&k.HealthzPort, 10248)
	orPtr(&k.ImageGCHighThresholdPercent, 85)
	orPtr(&k.ImageGCLowThresholdPercent, 80)
	orPtr(&k.NodeStatusMaxImages, 50)
	orPtr(&k.ContainerLogMaxFiles, 5)
	orPtr(&k.PodPidsLimit, -1)
	orPtr(&k.ResolverConfig, "/etc/resolv.conf")
	orPtr(&k.Authentication.Webhook.Enabled, true)
	orPtr(&k.Authentication.Anonymous.Enabled, false)
	or(&k.Authorization.Mode, "Webhook")
	or(&k.Address, "0.0.0.0")
	or(&k.Port, 10250)
	or(&k.HealthzBindAddress, "127.0.0.1")
	or(&k.MaxPods, 110)
	or(&k.CgroupDriver, "cgroupfs")
	or(&k.CgroupRoot, "/")
	or(&k.NodeLeaseDurationSeconds, 40)
	or(&k.ContainerLogMaxSize, "10Mi")
	or(&k.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	duration(&k.SyncFrequency, time.Minute)
	duration(&k.FileCheckFrequency, 20*time.Second)
	duration(&k.NodeStatusUpdateFrequency, 10*time.Second)
	duration(&k.NodeStatusReportFrequency, 5*time.Minute)
	duration(&k.ImageMinimumGCAge, 2*time.Minute)
	duration(&k.EvictionPressureTransitionPeriod, 5*time.Minute)
	duration(&k.StreamingConnectionIdleTimeout, 4*time.Hour)
	orPtr(&k.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
	orPtr(&k.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	orPtr(&k.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 5 * time.Minute})
	if len(k.EvictionHard) == 0 {
		k.EvictionHard = map[string]string{
			"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
			"imagefs.available": "15%", "imagefs.inodesFree": "5%",
		}
	}
	cfg.Labels = maps.Clone(cfg.Labels)
	if cfg.Labels == nil {
		cfg.Labels = map[string]string{}
	}
	cfg.Taints = append(cfg.Taints, k.RegisterWithTaints...)
}

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func orPtr[T any](field **T, value T) {
	if *field == nil {
		*field = ptr.To(value)
	}
}

func duration(field *metav1.Duration, value time.Duration) {
	if field.Duration == 0 {
		field.Duration = value
	}
}

func (a *Agent) crashMax() time.Duration {
	return a.cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
}

// defaultAddress is the address that the machine would use to reach others; no
// packet is sent to find out.
func defaultAddress() string {
	if conn, err := net.Dial("udp4", "192.0.2.1:9"); err == nil {
		defer conn.Close()
		if addr, ok := conn.LocalAddr().(*net.UDPAddr); ok {
			return addr.IP.String()
		}
	}
	addrs, _ := net.InterfaceAddrs()
	for _, addr := range addrs {
		if n, ok := addr.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// hostFacts are what never changes while the agent runs.
type hostFacts struct {
	cores             int64
	memory            int64 // bytes
	oomScore          int64 // our own
	mayLowerOOM       bool  // CAP_SYS_RESOURCE
	machineID, bootID string
	systemUUID        string
	kernel, osImage   string
}

func readHost(cfg Config) hostFacts {
	h := hostFacts{mayLowerOOM: true}
	if !cfg.Simulated {
		h.readLinux()
	}
	return h
}
