package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"orrery.dev/server/reload"
)

// Algorithms are those that an issuer may sign with.
func Algorithms() []string {
	return []string{"ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}
}

// JWTConfig says whose tokens are believed.
type JWTConfig struct {
	Configuration *apiserver.AuthenticationConfiguration
	// File is where the configuration is from, if it is to be followed, Loaded its
	// content.
	File   string
	Loaded []byte
	// Algorithms may be signed with; none: all.
	Algorithms []string
	// ServiceAccountIssuers cannot be configured.
	ServiceAccountIssuers []string
	ServerID              string
	Log                   *slog.Logger // nil: slog.Default()
}

// JWTs knows the tokens of OpenID Connect issuers, by a configuration that may
// change while it runs. It implements authenticator.Token.
type JWTs struct {
	config  JWTConfig
	metrics *reload.Metrics
	latency *prometheus.HistogramVec
	now     atomic.Pointer[issuers] // changed by Run only
}

// issuers are those of one configuration.
type issuers []*oidcIssuer

// NewJWTs makes the issuers. That they can be reached is seen later: they may run
// in this very cluster.
func NewJWTs(c JWTConfig) (*JWTs, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Algorithms == nil {
		c.Algorithms = Algorithms()
	}
	for _, a := range c.Algorithms {
		if !slices.Contains(Algorithms(), a) {
			return nil, fmt.Errorf("oidc: unsupported signing alg: %q", a)
		}
	}
	j := &JWTs{
		config:  c,
		metrics: reload.NewMetrics("apiserver_authentication_config_controller", c.ServerID, c.Loaded),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "apiserver_authentication_jwt_authenticator_latency_seconds", Help: "Time that it took to check tokens that were not in the cache.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"result", "jwt_issuer_hash"}),
	}
	first, err := j.issuers(c.Configuration)
	if err != nil {
		return nil, err
	}
	j.now.Store(&first)
	return j, nil
}

func (j *JWTs) issuers(config *apiserver.AuthenticationConfiguration) (issuers, error) {
	all := issuers{}
	for _, c := range config.JWT {
		i, err := newOIDCIssuer(c, j.config.Algorithms, j.config.ServiceAccountIssuers, j.config.Log)
		if err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	return all, nil
}

// AuthenticateToken implements authenticator.Token. A token that an issuer calls
// wrong is not shown to the next one.
func (j *JWTs) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	for _, i := range *j.now.Load() {
		begin := time.Now()
		response, ok, err := i.AuthenticateToken(ctx, token)
		if ok || err != nil {
			result := "success"
			if err != nil {
				result = "failure"
			}
			j.latency.WithLabelValues(result, i.hash).Observe(time.Since(begin).Seconds())
			return response, ok, err
		}
	}
	return nil, false, nil
}

// Collectors are the metrics.
func (j *JWTs) Collectors() []prometheus.Collector {
	all := []prometheus.Collector{j.latency}
	if j.config.File != "" {
		all = append(all, j.metrics.Collectors()...)
	}
	return all
}

// How often the file is looked at, and how long the issuers of a new one may take
// to be found.
const (
	lookInterval = 5 * time.Second
	findTimeout  = time.Minute
)

// Run finds the issuers, and follows the file if there is one, until ctx ends.
func (j *JWTs) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	find := func(all issuers) (stop context.CancelFunc) {
		finding, stop := context.WithCancel(ctx)
		for _, i := range all {
			running.Go(func() { i.find(finding) })
		}
		return stop
	}
	stop := find(*j.now.Load())
	defer func() { stop() }()
	if j.config.File == "" {
		<-ctx.Done()
		return nil
	}
	file := reload.File{Path: j.config.File, Interval: lookInterval, Loaded: j.config.Loaded, Metrics: j.metrics, Log: j.config.Log}
	file.Follow(ctx, func(ctx context.Context, raw []byte) (again bool, err error) {
		config, err := j.parse(raw)
		if err != nil {
			return false, err
		}
		next, err := j.issuers(config)
		if err != nil {
			return false, err
		}
		stopNext := find(next)
		if err := next.await(ctx); err != nil {
			stopNext()
			return true, err
		}
		j.now.Store(&next)
		stop()
		stop = stopNext
		return false, nil
	})
	return nil
}

// parse reads a new configuration. Who may be anonymous cannot change while the
// server runs.
func (j *JWTs) parse(raw []byte) (*apiserver.AuthenticationConfiguration, error) {
	config, err := ParseAuthentication(raw, j.config.ServiceAccountIssuers)
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(config.Anonymous, j.config.Configuration.Anonymous) {
		return nil, field.Forbidden(field.NewPath("anonymous"), "changed from initial configuration file")
	}
	return config, nil
}

// await waits until all issuers are found.
func (all issuers) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	for {
		var errs []error
		for _, i := range all {
			errs = append(errs, i.health())
		}
		err := errors.Join(errs...)
		if err == nil || !reload.Sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
}
