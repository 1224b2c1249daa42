package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// EtcdConfig is one member of an etcd cluster. Field by field it is etcd's own
// flags, so that a static pod's arguments can be bound to it.
type EtcdConfig struct {
	Name    string // --name
	DataDir string // --data-dir

	ListenClientURLs    []string // --listen-client-urls
	AdvertiseClientURLs []string // --advertise-client-urls; nil: as they are listened on
	ListenPeerURLs      []string // --listen-peer-urls
	AdvertisePeerURLs   []string // --initial-advertise-peer-urls; nil: as they are listened on
	ListenMetricsURLs   []string // --listen-metrics-urls: plain HTTP for probes and scrapers

	Client, Peer EtcdTLS

	InitialCluster string // --initial-cluster; "": this member alone
	ClusterToken   string // --initial-cluster-token
	Existing       bool   // --initial-cluster-state=existing

	SnapshotCount uint64 // --snapshot-count; 0: etcd's default
	QuotaBytes    int64  // --quota-backend-bytes; 0: 8 GiB
	LogLevel      string // --log-level; "": error, because etcd tells a lot
	// UnsafeNoFsync loses data in a power failure. It is for tests and for
	// clusters that are thrown away.
	UnsafeNoFsync bool

	// Ready is called once the member serves, with a client that talks to it
	// inside this process and works as long as the member runs. It may be nil,
	// and must not block.
	Ready func(*clientv3.Client)
}

// EtcdTLS names the files of one side's certificates. Etcd reads them again at
// each handshake, so renewed ones need no restart. The zero value is no TLS.
type EtcdTLS struct {
	CertFile, KeyFile, TrustedCAFile string
	ClientCertAuth                   bool
}

func (t EtcdTLS) info() transport.TLSInfo {
	return transport.TLSInfo{
		CertFile: t.CertFile, KeyFile: t.KeyFile,
		TrustedCAFile: t.TrustedCAFile, ClientCertAuth: t.ClientCertAuth,
	}
}

const (
	etcdQuota = 8 << 30
	// etcdLogFile is what etcd sets aside for a file of its log. When it cannot,
	// it does not fail but ends the process.
	etcdLogFile = 64 << 20
)

// RunEtcd runs a member until ctx ends or the member fails.
func RunEtcd(ctx context.Context, c EtcdConfig) error {
	cfg, err := c.embed()
	if err != nil {
		return err
	}
	if err := errors.Join(c.Client.check(), c.Peer.check()); err != nil {
		return err
	}
	if err := checkEtcdDir(c.DataDir); err != nil {
		return err
	}
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return etcdStartError(err)
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
	case <-e.Server.StopNotify():
		return errors.New("etcd stopped before it was ready: see its log")
	case err := <-e.Err():
		return etcdStartError(err)
	case <-ctx.Done():
		return nil
	}
	if c.Ready != nil {
		client := v3client.New(e.Server)
		defer client.Close()
		c.Ready(client)
	}
	select {
	case err := <-e.Err():
		return fmt.Errorf("etcd: %w", err)
	case <-e.Server.StopNotify():
		return errors.New("etcd stopped: it was removed from its cluster, or its data is broken; see its log")
	case <-ctx.Done():
		return nil
	}
}

// embed makes etcd's own configuration.
func (c EtcdConfig) embed() (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir = c.Name, c.DataDir
	if cfg.Name == "" {
		cfg.Name = embed.DefaultName
	}
	for _, u := range []struct {
		to   *[]url.URL
		flag string
		urls []string
		or   []string
	}{
		{&cfg.ListenClientUrls, "listen-client-urls", c.ListenClientURLs, nil},
		{&cfg.AdvertiseClientUrls, "advertise-client-urls", c.AdvertiseClientURLs, c.ListenClientURLs},
		{&cfg.ListenPeerUrls, "listen-peer-urls", c.ListenPeerURLs, nil},
		{&cfg.AdvertisePeerUrls, "initial-advertise-peer-urls", c.AdvertisePeerURLs, c.ListenPeerURLs},
		{&cfg.ListenMetricsUrls, "listen-metrics-urls", c.ListenMetricsURLs, nil},
	} {
		if len(u.urls) == 0 {
			u.urls = u.or
		}
		parsed, err := parseURLs(u.urls)
		if err != nil {
			return nil, fmt.Errorf("--%s: %w", u.flag, err)
		}
		*u.to = parsed
	}
	if len(cfg.ListenClientUrls) == 0 || len(cfg.ListenPeerUrls) == 0 {
		return nil, errors.New("etcd needs --listen-client-urls and --listen-peer-urls")
	}
	cfg.ClientTLSInfo, cfg.PeerTLSInfo = c.Client.info(), c.Peer.info()
	if cfg.InitialCluster = c.InitialCluster; cfg.InitialCluster == "" {
		cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	}
	if c.ClusterToken != "" {
		cfg.InitialClusterToken = c.ClusterToken
	}
	if c.Existing {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	if c.SnapshotCount != 0 {
		cfg.SnapshotCount = c.SnapshotCount
	}
	if cfg.QuotaBackendBytes = c.QuotaBytes; cfg.QuotaBackendBytes == 0 {
		cfg.QuotaBackendBytes = etcdQuota
	}
	if cfg.LogLevel = c.LogLevel; cfg.LogLevel == "" {
		cfg.LogLevel = "error"
	}
	cfg.LogOutputs = []string{embed.StdErrLogOutput}
	cfg.UnsafeNoFsync = c.UnsafeNoFsync
	// API servers compact; see server/storage/compaction.go.
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, "0"
	return cfg, nil
}

func parseURLs(all []string) ([]url.URL, error) {
	var urls []url.URL
	for _, s := range all {
		u, err := url.Parse(s)
		if err != nil {
			return nil, err
		}
		web := (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
		socket := (u.Scheme == "unix" || u.Scheme == "unixs") && u.Host+u.Path != ""
		if !web && !socket {
			return nil, fmt.Errorf("%q is not a URL like https://127.0.0.1:2379", s)
		}
		urls = append(urls, *u)
	}
	return urls, nil
}

// checkEtcdDir finds out whether etcd can write. Etcd itself would not return an
// error but end the process.
func checkEtcdDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("etcd's data directory: %w", err)
	}
	err := setAside(filepath.Join(dir, ".probe"))
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("no space left for etcd in %s: free some, or choose another --data-dir", dir)
	case err != nil:
		return fmt.Errorf("etcd's data directory: %w", err)
	}
	return nil
}

func setAside(probe string) error {
	f, err := os.OpenFile(probe, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(probe)
	return errors.Join(fileutil.Preallocate(f, etcdLogFile, true), f.Close())
}

// check finds files that are missing, which etcd would notice late.
func (t EtcdTLS) check() error {
	for _, file := range []string{t.CertFile, t.KeyFile, t.TrustedCAFile} {
		if file == "" {
			continue
		}
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("etcd's certificates: %w", err)
		}
		f.Close()
	}
	return nil
}

// etcdStartError says in our words what commonly goes wrong.
func etcdStartError(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && errors.As(err, &op) && op.Addr != nil:
		return fmt.Errorf("etcd's address %s is taken: stop what listens there (another etcd?)", op.Addr)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("no space left for etcd: %w", err)
	}
	return fmt.Errorf("start etcd: %w", err)
}
