package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Backup describes a snapshot file.
type Backup struct {
	Path     string
	Bytes    int64
	Revision int64
	Keys     int
}

// SaveBackup writes what etcd holds to a file, in etcdctl's snapshot format. The
// file is there only when it is complete and has been checked.
func SaveBackup(ctx context.Context, client *clientv3.Client, path string) (Backup, error) {
	part := path + ".part"
	defer os.Remove(part)
	if err := copySnapshot(ctx, client, part); err != nil {
		return Backup{}, fmt.Errorf("save backup: %w", err)
	}
	b, err := ReadBackup(part)
	if err != nil {
		return Backup{}, err
	}
	if err := os.Rename(part, path); err != nil {
		return Backup{}, fmt.Errorf("save backup: %w", err)
	}
	b.Path = path
	return b, syncDir(filepath.Dir(path))
}

func copySnapshot(ctx context.Context, client *clientv3.Client, path string) error {
	from, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) // it holds every Secret
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Sync(), to.Close())
}

// ReadBackup checks a snapshot file and says what is in it.
func ReadBackup(path string) (Backup, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Backup{}, fmt.Errorf("read backup: %w", err)
	}
	status, err := snapshot.NewV3(zap.NewNop()).Status(path)
	if err != nil {
		return Backup{}, fmt.Errorf("%s is not a snapshot of etcd: %w", path, err)
	}
	return Backup{Path: path, Bytes: info.Size(), Revision: status.Revision, Keys: status.TotalKey}, nil
}

// revisionBump is how far a restored etcd is ahead of its snapshot. Caches and
// clients that saw the revisions that are lost would otherwise take new ones
// for old; this way, and with the past marked compacted, they list anew.
const revisionBump = 1_000_000

// RestoreBackup replaces the data directory of a member that does not run by a
// snapshot. c is the configuration that the member will run with. The old
// directory stays, under the name that is returned ("": there was none).
func RestoreBackup(path string, c EtcdConfig) (old string, err error) {
	cfg, err := c.embed()
	if err != nil {
		return "", err
	}
	if _, err := ReadBackup(path); err != nil {
		return "", err
	}
	fresh := filepath.Clean(c.DataDir) + ".restored"
	if err := os.RemoveAll(fresh); err != nil {
		return "", fmt.Errorf("restore backup: %w", err)
	}
	peers := make([]string, len(cfg.AdvertisePeerUrls))
	for i, u := range cfg.AdvertisePeerUrls {
		peers[i] = u.String()
	}
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: path, OutputDataDir: fresh,
		Name: cfg.Name, PeerURLs: peers,
		InitialCluster: cfg.InitialCluster, InitialClusterToken: cfg.InitialClusterToken,
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return "", errors.Join(fmt.Errorf("restore backup: %w", err), os.RemoveAll(fresh))
	}
	return swapDir(fresh, filepath.Clean(c.DataDir))
}

// swapDir puts a directory in another's place and keeps that.
func swapDir(fresh, dir string) (old string, err error) {
	if _, err := os.Stat(dir); err == nil {
		old = dir + ".before-" + time.Now().UTC().Format("20060102-150405")
		if err := os.Rename(dir, old); err != nil {
			return "", fmt.Errorf("restore backup: %w", err)
		}
	}
	if err := os.Rename(fresh, dir); err != nil {
		return old, fmt.Errorf("restore backup: %w", err)
	}
	return old, syncDir(filepath.Dir(dir))
}

// syncDir makes a rename survive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
