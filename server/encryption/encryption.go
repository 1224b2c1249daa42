package encryption

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
)

// Config says where the configuration is.
type Config struct {
	File string
	// Reload makes Run look for changes of the file.
	Reload bool
	// ServerID tells this server's metrics from those of others.
	ServerID string
	Log      *slog.Logger // nil: slog.Default()
}

// How often the file is looked at, and how soon again after trouble with it.
const (
	lookInterval  = time.Minute
	retryInterval = 10 * time.Second
)

// Encryption is the configuration in force. It implements
// value.ResourceTransformers.
type Encryption struct {
	config  Config
	metrics *reloadMetrics
	now     atomic.Pointer[set] // changed by Run only
}

// New reads the file. Plugins that don't answer yet are no error: they may start
// after the API server.
func New(c Config) (*Encryption, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	e := &Encryption{config: c, metrics: newReloadMetrics(c.ServerID)}
	first, err := e.read()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), retryInterval)
	defer cancel()
	if err := first.check(ctx); err != nil {
		c.Log.Warn("encryption at rest is not available yet", "err", err)
	}
	e.now.Store(first)
	e.metrics.inForce(first.hash)
	return e, nil
}

// read makes a set of the file as it is now.
func (e *Encryption) read() (*set, error) {
	raw, err := os.ReadFile(e.config.File)
	if err != nil {
		return nil, fmt.Errorf("error while parsing file: error while loading file: error reading encryption provider configuration file %q: %w", e.config.File, err)
	}
	if len(raw) == 0 {
		return nil, fmt.Errorf("error while parsing file: error while loading file: encryption provider configuration file %q is empty", e.config.File)
	}
	config, err := parse(raw, e.config.Reload)
	if err != nil {
		return nil, fmt.Errorf("error while parsing file: error decoding encryption provider configuration file %q: %w", e.config.File, err)
	}
	s, err := newSet(config, e.config.ServerID)
	if err != nil {
		return nil, fmt.Errorf("error while building transformers: %w", err)
	}
	s.hash = hashOf(raw)
	return s, nil
}

// hashOf stands for a file's content, which is a secret.
func hashOf(raw []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(raw)) }

// TransformerForResource seals the values of a resource by whatever set is in
// force when it is used.
func (e *Encryption) TransformerForResource(gr schema.GroupResource) value.Transformer {
	return &resourceTransformer{encryption: e, resource: gr, info: infoOf(gr)}
}

// Watched reports whether there is anything whose health can be asked for.
func (e *Encryption) Watched() bool { return e.config.Reload || len(e.now.Load().plugins) > 0 }

// Check is the health of the plugins.
func (e *Encryption) Check(ctx context.Context) error { return e.now.Load().check(ctx) }

// Collectors are the package's own metrics.
func (e *Encryption) Collectors() []prometheus.Collector { return e.metrics.collectors() }

// Run keeps the plugins' keys fresh, and the set in step with the file, until ctx
// ends.
func (e *Encryption) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		current := e.now.Load()
		inUse, retire := context.WithCancel(ctx)
		running.Go(func() { current.keep(inUse, e.config.Log) })
		next := e.awaitChange(ctx, current)
		if next == nil {
			retire()
			return nil
		}
		e.now.Store(next)
		e.config.Log.Info("encryption at rest has a new configuration", "file", e.config.File)
		running.Go(func() {
			sleep(ctx, current.grace()) // for what is being encrypted
			retire()
		})
	}
}

// awaitChange returns the set that is to follow current, or nil when ctx ends.
func (e *Encryption) awaitChange(ctx context.Context, current *set) *set {
	if !e.config.Reload {
		<-ctx.Done()
		return nil
	}
	pause := lookInterval
	for sleep(ctx, pause) {
		pause = lookInterval
		next, err := e.changed(ctx, current)
		if ctx.Err() != nil {
			next.close()
			return nil
		}
		if err != nil {
			e.metrics.failed()
			e.config.Log.Error("encryption at rest keeps its configuration", "file", e.config.File, "err", err)
			pause = retryInterval
			continue
		}
		if next != nil {
			e.metrics.succeeded(next.hash)
			return next
		}
	}
	return nil
}

// changed returns what the file says now, nil if that is what it said before. A
// set whose plugins don't answer is an error.
func (e *Encryption) changed(ctx context.Context, current *set) (*set, error) {
	raw, err := os.ReadFile(e.config.File)
	if err != nil {
		return nil, err
	}
	if hashOf(raw) == current.hash {
		return nil, nil
	}
	next, err := e.read()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(next.grace(), retryInterval))
	defer cancel()
	for err = next.check(ctx); err != nil; err = next.check(ctx) {
		if !sleep(ctx, 100*time.Millisecond) {
			next.close()
			return nil, fmt.Errorf("health check for new transformers failed: %w", err)
		}
	}
	return next, nil
}

// sleep waits and reports true, or false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
