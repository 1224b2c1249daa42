package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"orrery.dev/client"
	"orrery.dev/trace"
)

// Config says where and how the controllers run. The zero value of a field is
// documented with it.
type Config struct {
	// REST reaches the API server. Clients and Metadata are made from it unless
	// they are given.
	REST     *rest.Config
	Clients  kubernetes.Interface
	Metadata metadata.Interface
	// LeaderElect waits for the lease kube-system/kube-controller-manager.
	LeaderElect bool
	// Only lists controllers as upstream's --controllers does: "*" are those
	// that are on by default, "foo" is on, "-foo" is off. Empty means "*".
	Only []string

	// AllocateNodeCIDRs gives each node a part of ClusterCIDR of
	// NodeCIDRMask bits (24, or 64 for IPv6), outside ServiceCIDR. ClusterCIDR
	// may name one range per IP family, separated by a comma.
	AllocateNodeCIDRs        bool
	ClusterCIDR, ServiceCIDR string
	NodeCIDRMask             int

	// NodeMonitorGracePeriod is how long a node may be silent: 40 s.
	NodeMonitorGracePeriod time.Duration
	// TerminatedPodGCThreshold is how many finished pods may stay: 12500.
	TerminatedPodGCThreshold int

	// SigningCert and SigningKey are the PEM files of the authority that signs
	// certificate requests; without them requests are approved but not signed.
	SigningCert, SigningKey string
	// SigningDuration bounds how long signed certificates are valid: one year.
	SigningDuration time.Duration
	// RootCA is the PEM bundle that goes into every namespace's
	// kube-root-ca.crt; without it that is not published.
	RootCA []byte

	// AccountToken signs the token of a service account that a Secret holds;
	// without it such Secrets stay empty.
	AccountToken func(account *corev1.ServiceAccount, secret string) (string, error)

	// LocalPath is the directory on nodes below which the provisioner
	// orrery.dev/local-path puts volumes: /var/lib/orrery/volumes.
	LocalPath string

	// Trace tells of each sync; nil means nobody is told.
	Trace *trace.Tracer
	// Board shows what the controllers are doing; nil means nobody looks.
	Board *Board
}

// entry is a row of the list of controllers.
type entry struct {
	name string
	// account is the service account in kube-system that the controller acts
	// as; upstream's, since the bootstrap roles are bound to those. Empty is the
	// controller manager itself.
	account string
	make    func(*env) Controller
	// enabled, if set, says whether the configuration has what it needs.
	enabled func(Config) bool
}

// list is every controller, in the order in which a new cluster needs them.
func list() []entry {
	return []entry{
		{name: "serviceaccount-controller", account: "service-account-controller", make: newServiceAccount},
		{name: "serviceaccount-token-controller", make: newServiceAccountToken, enabled: func(c Config) bool { return c.AccountToken != nil }},
		{name: "legacy-serviceaccount-token-cleaner-controller", account: "legacy-service-account-token-cleaner", make: newLegacyTokens},
		{name: "root-ca-certificate-publisher-controller", account: "root-ca-cert-publisher", make: newRootCA, enabled: func(c Config) bool { return len(c.RootCA) > 0 }},
		{name: "node-ipam-controller", account: "node-controller", make: newNodeIPAM, enabled: func(c Config) bool { return c.AllocateNodeCIDRs }},
		{name: "node-lifecycle-controller", account: "node-controller", make: newNodeLifecycle},
		{name: "ttl-controller", account: "ttl-controller", make: newNodeTTL},
		{name: "taint-eviction-controller", account: "node-controller", make: newTaintEviction},
		{name: "deployment-controller", account: "deployment-controller", make: newDeployment},
		{name: "replicaset-controller", account: "replicaset-controller", make: newReplicaSet},
		{name: "replicationcontroller-controller", account: "replication-controller", make: newReplicationController},
		{name: "daemonset-controller", account: "daemon-set-controller", make: newDaemonSet},
		{name: "statefulset-controller", account: "statefulset-controller", make: newStatefulSet},
		{name: "job-controller", account: "job-controller", make: newJob},
		{name: "cronjob-controller", account: "cronjob-controller", make: newCronJob},
		{name: "ttl-after-finished-controller", account: "ttl-after-finished-controller", make: newTTLAfterFinished},
		{name: "endpoints-controller", account: "endpoint-controller", make: newEndpoints},
		{name: "endpointslice-controller", account: "endpointslice-controller", make: newEndpointSlice},
		{name: "endpointslice-mirroring-controller", account: "endpointslicemirroring-controller", make: newEndpointSliceMirroring},
		{name: "namespace-controller", account: "namespace-controller", make: newNamespace},
		{name: "garbage-collector-controller", account: "generic-garbage-collector", make: newGarbageCollector},
		{name: "pod-garbage-collector-controller", account: "pod-garbage-collector", make: newPodGC},
		{name: "clusterrole-aggregation-controller", account: "clusterrole-aggregation-controller", make: newClusterRoleAggregation},
		{name: "certificatesigningrequest-approving-controller", account: "certificate-controller", make: newCSRApproving},
		{name: "certificatesigningrequest-signing-controller", account: "certificate-controller", make: newCSRSigning, enabled: func(c Config) bool { return c.SigningCert != "" && c.SigningKey != "" }},
		{name: "certificatesigningrequest-cleaner-controller", account: "certificate-controller", make: newCSRCleaner},
		{name: "podcertificaterequest-cleaner-controller", account: "podcertificaterequestcleaner", make: newPodCertificateCleaner},
		{name: "kube-apiserver-serving-clustertrustbundle-publisher-controller", account: "kube-apiserver-serving-clustertrustbundle-publisher", make: newServingTrust, enabled: func(c Config) bool { return len(c.RootCA) > 0 }},
		{name: "bootstrap-signer-controller", account: "bootstrap-signer", make: newBootstrapSigner},
		{name: "token-cleaner-controller", account: "token-cleaner", make: newTokenCleaner},
		{name: "validatingadmissionpolicy-status-controller", account: "validatingadmissionpolicy-status-controller", make: newPolicyStatus},
		{name: "disruption-controller", account: "disruption-controller", make: newDisruption},
		{name: "resourcequota-controller", account: "resourcequota-controller", make: newResourceQuota},
		{name: "persistentvolume-binder-controller", account: "persistent-volume-binder", make: newVolumeBinder},
		{name: "persistentvolumeclaim-protection-controller", account: "pvc-protection-controller", make: newClaimProtection},
		{name: "persistentvolume-protection-controller", account: "pv-protection-controller", make: newVolumeProtection},
		{name: "volumeattributesclass-protection-controller", account: "volumeattributesclass-protection-controller", make: newAttributesClassProtection},
		{name: "ephemeral-volume-controller", account: "ephemeral-volume-controller", make: newEphemeralVolume},
		{name: "resourceclaim-controller", account: "resource-claim-controller", make: newResourceClaims},
		{name: "local-path-provisioner", account: "persistent-volume-binder", make: newLocalPath},
		{name: "service-cidr-controller", account: "service-cidrs-controller", make: newServiceCIDR},
		{name: "service-lb-controller", account: "service-controller", make: newServiceLB},
		{name: "storage-version-migrator-controller", account: "storage-version-migrator-controller", make: newStorageMigration},
		{name: "horizontal-pod-autoscaler-controller", account: "horizontal-pod-autoscaler", make: newHPA},
	}
}

// Names returns the names of all controllers, in order.
func Names() []string {
	var out []string
	for _, e := range list() {
		out = append(out, e.name)
	}
	return out
}

// Run runs the controllers until ctx ends. With LeaderElect it first waits to
// become the leader, and ends with client.ErrLostLead when it is no more.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	if !cfg.LeaderElect {
		return run(ctx, cfg)
	}
	return client.Lead(ctx, cfg.Clients, "kube-controller-manager", func(ctx context.Context) error { return run(ctx, cfg) })
}

func (cfg *Config) complete() error {
	if cfg.REST == nil && (cfg.Clients == nil || cfg.Metadata == nil) {
		return errors.New("controllers need a client configuration, or clients")
	}
	var err error
	if cfg.Clients == nil {
		if cfg.Clients, err = kubernetes.NewForConfig(cfg.REST); err != nil {
			return fmt.Errorf("client: %w", err)
		}
	}
	if cfg.Metadata == nil {
		if cfg.Metadata, err = metadata.NewForConfig(cfg.REST); err != nil {
			return fmt.Errorf("metadata client: %w", err)
		}
	}
	if cfg.Board == nil {
		cfg.Board = &Board{}
	}
	cfg.NodeMonitorGracePeriod = orDefault(cfg.NodeMonitorGracePeriod, 40*time.Second)
	cfg.TerminatedPodGCThreshold = orDefault(cfg.TerminatedPodGCThreshold, 12500)
	cfg.SigningDuration = orDefault(cfg.SigningDuration, 365*24*time.Hour)
	cfg.LocalPath = orDefault(cfg.LocalPath, "/var/lib/orrery/volumes")
	return cfg.checkNames()
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func (cfg *Config) checkNames() error {
	names := Names()
	for _, word := range cfg.Only {
		if name := strings.TrimPrefix(word, "-"); name != "*" && !slices.Contains(names, name) {
			return fmt.Errorf("controllers: no controller is called %q; there are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// wanted says whether a controller is on; an explicit word outdoes "*".
func (cfg *Config) wanted(name string) bool {
	switch {
	case slices.Contains(cfg.Only, "-"+name):
		return false
	case slices.Contains(cfg.Only, name):
		return true
	}
	return len(cfg.Only) == 0 || slices.Contains(cfg.Only, "*")
}

func run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e, err := newEnv(ctx, cfg)
	if err != nil {
		return err
	}
	cfg.Board.reset()
	defer cfg.Board.reset()
	var loops []*loop
	for _, row := range list() {
		if !cfg.wanted(row.name) || row.enabled != nil && !row.enabled(cfg) {
			continue
		}
		own, err := e.actingAs(row.account)
		if err != nil {
			return err
		}
		l, err := newLoop(row.make(own), cfg)
		if err != nil {
			return err
		}
		loops = append(loops, l)
	}
	e.factory.StartWithContext(ctx)
	defer e.factory.Shutdown()
	defer cancel() // before Shutdown, which waits
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range loops {
		group.Go(func() error { return l.run(ctx) })
	}
	return group.Wait()
}
