package cmd

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"orrery.dev/cluster"
)

const (
	// maxLog is how long a daemon's log may get before its beginning goes: what was
	// written so far is kept once, beside it.
	maxLog = 32 << 20
	// logsEvery and renewEvery are how often to look.
	logsEvery  = time.Minute
	renewEvery = 6 * time.Hour
)

// upkeep looks after the files of a node for as long as its node agent runs:
// daemons' logs stay short, and certificates are renewed long before they expire.
type upkeep struct {
	layout cluster.Layout
	log    *slog.Logger
}

func (u upkeep) run(ctx context.Context) {
	logs, renew := time.NewTicker(logsEvery), time.NewTicker(renewEvery)
	defer logs.Stop()
	defer renew.Stop()
	u.renew()
	for {
		select {
		case <-ctx.Done():
			return
		case <-logs.C:
			u.shortenLogs()
		case <-renew.C:
			u.renew()
		}
	}
}

// renew does it where the authority's key is: on a control plane node, which
// renews for the machines within it as well.
func (u upkeep) renew() {
	authorities := u.layout.PKI("")
	if !exists(u.layout.PKI("ca.key")) {
		return
	}
	nodes, _ := filepath.Glob(filepath.Join(u.layout.Dir, "nodes", "*", "data"))
	for _, dir := range append([]string{u.layout.Dir}, nodes...) {
		l := cluster.Layout{Dir: dir}
		written, err := cluster.Renew(l.PKI(""), authorities, time.Now())
		kubeconfigs, kubeconfigErr := cluster.RenewKubeconfigs(l.PKI(""), l.Kubeconfig)
		if err := errors.Join(err, kubeconfigErr); err != nil {
			u.log.Error("certificates cannot be renewed", "dir", dir, "err", err)
		}
		if len(written)+len(kubeconfigs) > 0 {
			u.log.Info("certificates renewed", "dir", dir, "certificates", written, "kubeconfigs", kubeconfigs)
		}
	}
}

func (u upkeep) shortenLogs() {
	logs, _ := filepath.Glob(filepath.Join(filepath.Dir(u.layout.Log("kubelet")), "*.log"))
	for _, path := range logs {
		if info, err := os.Stat(path); err != nil || info.Size() < maxLog {
			continue
		}
		if err := shorten(path); err != nil {
			u.log.Warn("log not shortened", "path", path, "err", err)
		}
	}
}

// shorten moves what a log holds to path.1. Its writer has it open for appending
// and goes on at the new end; a line written in between is lost.
func shorten(path string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(path + ".1")
	if err != nil {
		return err
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		return err
	}
	return os.Truncate(path, 0)
}
