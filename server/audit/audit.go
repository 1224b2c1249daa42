package audit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	upstream "k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Config says what is recorded, and where. Without a policy nothing is.
type Config struct {
	PolicyFile string
	Log        Log
	Webhook    Webhook
}

// Modes of a sink.
const (
	ModeBatch          = "batch"           // in the background; the server does not wait
	ModeBlocking       = "blocking"        // the server waits for it
	ModeBlockingStrict = "blocking-strict" // and refuses requests that it cannot record
)

// Modes lists them, for help texts.
var Modes = []string{ModeBatch, ModeBlocking, ModeBlockingStrict}

// Validate says what is wrong with the settings, by upstream's rules.
func (c *Config) Validate() error {
	if c.Log.Path != "" {
		if err := c.Log.validate(); err != nil {
			return err
		}
	}
	if c.Webhook.File != "" {
		return c.Webhook.validate()
	}
	return nil
}

// Auditor records requests.
type Auditor struct {
	policy  upstream.PolicyRuleEvaluator
	sinks   []sink
	metrics *metrics
}

// sink is a place that events go to.
type sink interface {
	// put takes an event; false: it is lost, and the request must not go on.
	put(*record) bool
	// run does what is to be done in the background, until ctx ends and all that
	// was put is delivered.
	run(ctx context.Context)
}

// record is one stage of a request, encoded.
type record struct {
	event *auditv1.Event
	json  []byte // without kind and apiVersion: it begins with {"level":
}

// New makes an auditor, or nil if nothing is to be recorded.
func New(c Config) (*Auditor, error) {
	if c.PolicyFile == "" || c.Log.Path == "" && c.Webhook.File == "" {
		return nil, nil
	}
	rules, err := policy.LoadPolicyFromFile(c.PolicyFile)
	if err != nil {
		return nil, fmt.Errorf("loading audit policy file: %w", err)
	}
	a := &Auditor{policy: policy.NewPolicyRuleEvaluator(rules), metrics: newMetrics()}
	if c.Log.Path != "" {
		log, err := c.Log.open(a.metrics)
		if err != nil {
			return nil, err
		}
		a.sinks = append(a.sinks, log)
	}
	if c.Webhook.File != "" {
		hook, err := c.Webhook.open(a.metrics)
		if err != nil {
			return nil, fmt.Errorf("initializing audit webhook: %w", err)
		}
		a.sinks = append(a.sinks, hook)
	}
	return a, nil
}

// Collectors are the metrics, under upstream's names.
func (a *Auditor) Collectors() []prometheus.Collector {
	return []prometheus.Collector{a.metrics.events, a.metrics.errors, a.metrics.levels, a.metrics.rejected}
}

// Run delivers events in the background until ctx ends, and then what is left.
func (a *Auditor) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, s := range a.sinks {
		running.Go(func() { s.run(ctx) })
	}
	running.Wait()
	return nil
}

// rule is what the policy says about a request.
type rule struct {
	level             audit.Level
	omitStages        []audit.Stage
	omitManagedFields bool
}

func (a *Auditor) rule(attrs authorizer.Attributes) rule {
	r := a.policy.EvaluatePolicyRule(attrs)
	a.metrics.levels.WithLabelValues(string(r.Level)).Inc()
	return rule{r.Level, r.OmitStages, r.OmitManagedFields}
}

func (r rule) omits(stage auditv1.Stage) bool {
	return slices.Contains(r.omitStages, audit.Stage(stage))
}

// put hands an event to all sinks.
func (a *Auditor) put(r *record) bool {
	a.metrics.events.Inc()
	ok := true
	for _, s := range a.sinks {
		ok = s.put(r) && ok
	}
	return ok
}

// Rejected counts a request that was refused since it could not be recorded.
func (a *Auditor) Rejected() { a.metrics.rejected.Inc() }

type metrics struct {
	events, rejected prometheus.Counter
	errors, levels   *prometheus.CounterVec
}

func newMetrics() *metrics {
	const prefix = "apiserver_audit_"
	return &metrics{
		events:   prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "event_total", Help: "Audit events that were generated and sent."}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + "requests_rejected_total", Help: "Requests that were refused since they could not be audited."}),
		errors:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "error_total", Help: "Audit events that were lost, by where."}, []string{"plugin"}),
		levels:   prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "level_total", Help: "Requests by the level at which the policy audits them."}, []string{"level"}),
	}
}

// Truncate bounds the size of events.
type Truncate struct {
	Enabled bool
	// MaxEvent is the largest event, in bytes. A larger one loses its objects; if
	// that is not enough, it is dropped.
	MaxEvent int64
	// MaxBatch is the largest batch, in bytes.
	MaxBatch int64
}

// DefaultTruncate is upstream's.
func DefaultTruncate() Truncate { return Truncate{MaxEvent: 100 * 1024, MaxBatch: 10 * 1024 * 1024} }

func (t Truncate) validate(name string) error {
	if t.MaxEvent <= 0 {
		return fmt.Errorf("invalid audit truncate %s max event size %v, must be a positive number", name, t.MaxEvent)
	}
	if t.MaxBatch < t.MaxEvent {
		return fmt.Errorf("invalid audit truncate %s max batch size %v, must be greater than max event size (%v)", name, t.MaxBatch, t.MaxEvent)
	}
	return nil
}

// truncatedKey marks events that have lost their objects.
const truncatedKey = "audit.k8s.io/truncated"

// cut makes an event small enough. nil: it cannot be.
func (t Truncate) cut(r *record) *record {
	if !t.Enabled || r.size() <= t.MaxEvent {
		return r
	}
	e := *r.event
	if e.RequestObject == nil && e.ResponseObject == nil {
		return nil
	}
	e.RequestObject, e.ResponseObject = nil, nil
	annotations := map[string]string{truncatedKey: "true"}
	for key, value := range e.Annotations {
		annotations[key] = value
	}
	e.Annotations = annotations
	small, err := encode(&e)
	if err != nil || small.size() > t.MaxEvent {
		return nil
	}
	return small
}

// waitFor is how long after the end what is left may take.
const waitFor = 5 * time.Second
