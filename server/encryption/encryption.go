package encryption

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"orrery.dev/server/reload"
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

// lookInterval is how often the file is looked at; startTimeout is how long the
// plugins of a set may take to answer before it is in use.
const (
	lookInterval = time.Minute
	startTimeout = 10 * time.Second
)

// Encryption is the configuration in force. It implements
// value.ResourceTransformers.
type Encryption struct {
	config  Config
	loaded  []byte // what the file said at the start
	metrics *reload.Metrics
	now     atomic.Pointer[set] // changed by Run only
}

// New reads the file. Plugins that don't answer yet are no error: they may start
// after the API server.
func New(c Config) (*Encryption, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	raw, err := os.ReadFile(c.File)
	if err != nil {
		return nil, fmt.Errorf("error reading encryption provider configuration file %q: %w", c.File, err)
	}
	e := &Encryption{config: c, loaded: raw}
	first, err := e.makeSet(raw)
	if err != nil {
		return nil, err
	}
	e.metrics = reload.NewMetrics("apiserver_encryption_config_controller", c.ServerID, raw)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := first.check(ctx); err != nil {
		c.Log.Warn("encryption at rest is not available yet", "err", err)
	}
	e.now.Store(first)
	return e, nil
}

// makeSet makes a set of the file's content.
func (e *Encryption) makeSet(raw []byte) (*set, error) {
	if len(raw) == 0 {
		return nil, fmt.Errorf("encryption provider configuration file %q is empty", e.config.File)
	}
	config, err := parse(raw, e.config.Reload)
	if err != nil {
		return nil, fmt.Errorf("error decoding encryption provider configuration file %q: %w", e.config.File, err)
	}
	s, err := newSet(config, e.config.ServerID)
	if err != nil {
		return nil, fmt.Errorf("error while building transformers: %w", err)
	}
	return s, nil
}

// TransformerForResource seals the values of a resource by whatever set is in
// force when it is used.
func (e *Encryption) TransformerForResource(gr schema.GroupResource) value.Transformer {
	return &resourceTransformer{encryption: e, resource: gr}
}

// Watched reports whether there is anything whose health can be asked for.
func (e *Encryption) Watched() bool { return e.config.Reload || len(e.now.Load().plugins) > 0 }

// Check is the health of the plugins.
func (e *Encryption) Check(ctx context.Context) error { return e.now.Load().check(ctx) }

// Collectors are the package's own metrics.
func (e *Encryption) Collectors() []prometheus.Collector { return e.metrics.Collectors() }

// Run keeps the plugins' keys fresh, and the set in step with the file, until ctx
// ends.
func (e *Encryption) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	keep := func(s *set) (retire context.CancelFunc) {
		inUse, retire := context.WithCancel(ctx)
		running.Go(func() { s.keep(inUse, e.config.Log) })
		return retire
	}
	retire := keep(e.now.Load())
	defer func() { retire() }()
	if !e.config.Reload {
		<-ctx.Done()
		return nil
	}
	file := reload.File{Path: e.config.File, Interval: lookInterval, Loaded: e.loaded, Metrics: e.metrics, Log: e.config.Log}
	file.Follow(ctx, func(ctx context.Context, raw []byte) (again bool, err error) {
		next, err := e.ready(ctx, raw)
		if err != nil {
			return true, err
		}
		old, retireOld := e.now.Swap(next), retire
		retire = keep(next)
		running.Go(func() {
			reload.Sleep(ctx, old.grace()) // for what is being encrypted
			retireOld()
		})
		return false, nil
	})
	return nil
}

// ready makes a set whose plugins answer.
func (e *Encryption) ready(ctx context.Context, raw []byte) (*set, error) {
	next, err := e.makeSet(raw)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(next.grace(), startTimeout))
	defer cancel()
	for err = next.check(ctx); err != nil; err = next.check(ctx) {
		if !reload.Sleep(ctx, 100*time.Millisecond) {
			next.stop()
			return nil, fmt.Errorf("health check for new transformers failed: %w", err)
		}
	}
	return next, nil
}
