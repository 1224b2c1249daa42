package nodeagent

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crilogs "k8s.io/cri-client/pkg/logs"
)

// rotateLogs keeps containers' logs to their size and number.
func (a *Agent) rotateLogs(ctx context.Context) error {
	limit := int64(10 << 20)
	if q, err := resource.ParseQuantity(a.cfg.Kubelet.ContainerLogMaxSize); err == nil {
		limit = q.Value()
	}
	for {
		sleep(ctx, a.cfg.Kubelet.ContainerLogMonitorInterval.Duration)
		if ctx.Err() != nil {
			return nil
		}
		a.rotateAll(ctx, limit)
	}
}

func (a *Agent) rotateAll(ctx context.Context, limit int64) {
	running := &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	containers, err := a.cfg.Runtime.ListContainers(ctx, running)
	if err != nil {
		return
	}
	for _, c := range containers {
		path := a.logPathOf(c)
		info, err := os.Stat(path)
		if err != nil || info.Size() < limit {
			continue
		}
		if err := a.rotate(ctx, c.Id, path); err != nil {
			a.log.Warn("log not rotated", "path", path, "err", err)
		}
	}
}

// logPathOf derives a container's log file from its labels, which spares a call
// for its status.
func (a *Agent) logPathOf(c *runtimeapi.Container) string {
	l := c.Labels
	dir := l["io.kubernetes.pod.namespace"] + "_" + l["io.kubernetes.pod.name"] + "_" + l["io.kubernetes.pod.uid"]
	return filepath.Join(a.cfg.PodLogsDir, dir, l["io.kubernetes.container.name"], fmt.Sprintf("%d.log", c.GetMetadata().GetAttempt()))
}

// rotate renames a log, has the runtime open a new one, compresses the one
// before, and drops the oldest.
func (a *Agent) rotate(ctx context.Context, id, path string) error {
	old, err := filepath.Glob(path + ".*")
	if err != nil {
		return err
	}
	slices.Sort(old)
	for len(old) > max(int(*a.cfg.Kubelet.ContainerLogMaxFiles)-2, 0) {
		if err := os.Remove(old[0]); err != nil {
			return err
		}
		old = old[1:]
	}
	for _, f := range old {
		if !strings.HasSuffix(f, ".gz") {
			if err := compress(f); err != nil {
				return err
			}
		}
	}
	rotated := path + "." + time.Now().Format("20060102-150405")
	if err := os.Rename(path, rotated); err != nil {
		return err
	}
	if err := a.cfg.Runtime.ReopenContainerLog(ctx, id); err != nil {
		// The runtime still writes to the renamed file: give it its name back.
		return fmt.Errorf("reopen: %w", cmp.Or(os.Rename(rotated, path), err))
	}
	return nil
}

func compress(path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer out.Close()
	z := gzip.NewWriter(out)
	if _, err := io.Copy(z, in); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path+".gz"); err != nil {
		return err
	}
	return os.Remove(path)
}

func removeLogs(path string) {
	files, _ := filepath.Glob(path + "*")
	for _, f := range files {
		os.Remove(f)
	}
}

// readTail reads the last n bytes of a file.
func readTail(path string, n int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if info.Size() > n {
		if _, err := f.Seek(-n, io.SeekEnd); err != nil {
			return "", err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, n))
	return string(data), err
}

// lastLogLines are the last lines of a container's log, without time stamps.
func lastLogLines(path string, lines int64, size int) (string, error) {
	var b bytes.Buffer
	opts := &crilogs.LogOptions{TailLines: &lines}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := crilogs.ReadLogs(ctx, path, "", opts, nil, &b, &b); err != nil {
		return "", err
	}
	text := b.Bytes()
	if len(text) > size {
		text = text[len(text)-size:]
	}
	return string(text), nil
}
