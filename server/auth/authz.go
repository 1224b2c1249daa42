package auth

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/reload"
)

// AuthorizerConfig says who decides.
type AuthorizerConfig struct {
	Source Source
	// Configuration is the chain; nil: the node authoriser, then RBAC.
	Configuration *apiserver.AuthorizationConfiguration
	// File is where the configuration is from, if it is to be followed, Loaded its
	// content.
	File     string
	Loaded   []byte
	ServerID string
	// PolicyFile has what ABAC, if it is in the chain, decides by.
	PolicyFile string
	Log        *slog.Logger // nil: slog.Default()
}

// Authorizer decides what users may do: system:masters everything, then whatever
// the chain (authz_chain.go) says. As a rule that is nodes what their pods need,
// and everyone what RBAC grants.
type Authorizer struct {
	config  AuthorizerConfig
	rbac    *RBAC
	nodes   *nodeAuthorizer
	links   atomic.Pointer[[]link]
	synced  chan struct{} // closed when everything was read once
	metrics *authzMetrics
	reloads *reload.Metrics
}

var (
	_ authorizer.Authorizer   = (*Authorizer)(nil)
	_ authorizer.RuleResolver = (*Authorizer)(nil)
)

// NewAuthorizer makes an authoriser; Run fills it and keeps it up to date.
func NewAuthorizer(c AuthorizerConfig) (*Authorizer, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Configuration == nil {
		c.Configuration = &apiserver.AuthorizationConfiguration{Authorizers: []apiserver.AuthorizerConfiguration{
			{Type: ModeNode, Name: "node"}, {Type: ModeRBAC, Name: "rbac"},
		}}
	}
	roles, err := BootstrapRoles()
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(roles.ClusterRoles, func(r *rbacv1.ClusterRole) bool { return r.Name == "system:node" })
	if at < 0 {
		return nil, fmt.Errorf("bootstrap roles: no system:node")
	}
	a := &Authorizer{
		config:  c,
		rbac:    NewRBAC(),
		nodes:   &nodeAuthorizer{graph: newGraph(), rules: roles.ClusterRoles[at].Rules},
		synced:  make(chan struct{}),
		metrics: newAuthzMetrics(),
		reloads: reload.NewMetrics("apiserver_authorization_config_controller", c.ServerID, c.Loaded),
	}
	chain, err := a.chain(c.Configuration)
	if err != nil {
		return nil, err
	}
	a.links.Store(&chain)
	return a, nil
}

// follows is all that is followed, and by whom.
func (a *Authorizer) follows() map[schema.GroupResource]func([]Change, bool) {
	all := map[schema.GroupResource]func([]Change, bool){
		core("pods"):              a.nodes.graph.applyPods,
		core("persistentvolumes"): a.nodes.graph.applyVolumes,
		{Group: "storage.k8s.io", Resource: "volumeattachments"}:           a.nodes.graph.applyAttachments,
		{Group: "resource.k8s.io", Resource: "resourceslices"}:             a.nodes.graph.applySlices,
		{Group: "certificates.k8s.io", Resource: "podcertificaterequests"}: a.nodes.graph.applyRequests,
	}
	for _, kind := range []string{"clusterroles", "clusterrolebindings", "roles", "rolebindings"} {
		all[rbac(kind)] = func(changes []Change, reset bool) { a.rbac.apply(kind, changes, reset) }
	}
	return all
}

// Run follows what decisions are made by, until ctx ends.
func (a *Authorizer) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follows := a.follows()
	var first, running sync.WaitGroup
	failed := make(chan error, len(follows))
	first.Add(len(follows))
	for resource, apply := range follows {
		running.Go(func() {
			var once sync.Once
			failed <- a.config.Source.Follow(ctx, resource, func(changes []Change, reset bool) {
				apply(changes, reset)
				once.Do(first.Done)
			})
			once.Do(first.Done)
		})
	}
	running.Go(func() {
		first.Wait()
		if ctx.Err() == nil {
			close(a.synced)
		}
	})
	if a.config.File != "" {
		file := reload.File{Path: a.config.File, Interval: lookInterval, Loaded: a.config.Loaded, Metrics: a.reloads, Log: a.config.Log}
		running.Go(func() { file.Follow(ctx, a.reload) })
	}
	err := <-failed
	cancel()
	running.Wait()
	return err
}

// Synced is closed when all roles and bindings have been read once: before,
// only system:masters is allowed anything.
func (a *Authorizer) Synced() <-chan struct{} { return a.synced }

// Authorize asks the links in turn until one allows or denies. If none does, which
// is a refusal, the reasons of all are given.
func (a *Authorizer) Authorize(ctx context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
	var reasons []string
	var errs []error
	for _, l := range *a.links.Load() {
		decision, reason, err := l.authorize(ctx, attrs)
		switch decision {
		case authorizer.DecisionAllow:
			a.metrics.decided(l, "allowed")
			return decision, reason, err
		case authorizer.DecisionDeny:
			a.metrics.decided(l, "denied")
			return decision, reason, err
		}
		if err != nil {
			errs = append(errs, err)
		}
		if reason != "" {
			reasons = append(reasons, l.name+": "+reason)
		}
	}
	return authorizer.DecisionNoOpinion, strings.Join(reasons, "\n"), errors.Join(errs...)
}

// ConditionsAwareAuthorize is Authorize: no decision here has conditions.
func (a *Authorizer) ConditionsAwareAuthorize(ctx context.Context, attrs authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return authorizer.ConditionsAwareDecisionFromParts(a.Authorize(ctx, attrs))
}

// EvaluateConditions refuses: no decision here has conditions.
func (a *Authorizer) EvaluateConditions(context.Context, authorizer.ConditionsAwareDecision, authorizer.ConditionsData) (authorizer.Decision, string, error) {
	return authorizer.DecisionDeny, "", authorizer.ErrorConditionEvaluationNotSupported
}

// RulesFor lists what a user may do in a namespace.
func (a *Authorizer) RulesFor(ctx context.Context, who user.Info, namespace string) (resources []authorizer.ResourceRuleInfo, urls []authorizer.NonResourceRuleInfo, incomplete bool, err error) {
	var errs []error
	for _, l := range *a.links.Load() {
		r, u, partly, err := l.rules(ctx, who, namespace)
		resources, urls = append(resources, r...), append(urls, u...)
		incomplete = incomplete || partly
		errs = append(errs, err)
	}
	return resources, urls, incomplete, errors.Join(errs...)
}

// Collectors are the metrics, under upstream's names.
func (a *Authorizer) Collectors() []prometheus.Collector {
	all := []prometheus.Collector{a.metrics.decisions, a.metrics.asked, a.metrics.took, a.metrics.open}
	if a.config.File != "" {
		all = append(all, a.reloads.Collectors()...)
	}
	return all
}

type authzMetrics struct {
	decisions, asked, open *prometheus.CounterVec
	took                   *prometheus.HistogramVec
}

func newAuthzMetrics() *authzMetrics {
	const prefix = "apiserver_authorization_"
	return &authzMetrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "decisions_total", Help: "What authorisers have allowed and denied."}, []string{"type", "name", "decision"}),
		asked:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "webhook_evaluations_total", Help: "Questions to webhooks, by outcome."}, []string{"name", "result"}),
		open:      prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "webhook_evaluations_fail_open_total", Help: "Questions that a webhook did not answer and that were left to others."}, []string{"name", "result"}),
		took:      prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + "webhook_duration_seconds", Help: "Time that webhooks took."}, []string{"name", "result"}),
	}
}

func (m *authzMetrics) decided(l link, decision string) {
	if l.kind != "" {
		m.decisions.WithLabelValues(l.kind, l.name, decision).Inc()
	}
}
