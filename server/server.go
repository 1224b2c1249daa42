package server

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"orrery.dev/server/admission"
	"orrery.dev/server/audit"
	"orrery.dev/server/flowcontrol"
	"orrery.dev/server/openapi"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
	"orrery.dev/trace"
)

// Config is all that an API server is made of. Store, Kinds, Authenticator and
// Authorizer are needed; every other field may be left out, and what depends on
// it then answers 404 or is skipped.
type Config struct {
	Store     *storage.Store
	Kinds     *registry.Table
	Admission admission.Chain
	// FieldTypes tells how the fields of the kinds are merged; nil: New makes
	// its own.
	FieldTypes *FieldTypes

	// Authenticator says who is asking, anonymous callers included. A request that it
	// does not know is refused with 401.
	Authenticator authenticator.Request
	// Authorizer says what they may do; Rules answers "what may I do?".
	Authorizer authorizer.UnconditionalAuthorizer
	Rules      authorizer.RuleResolver

	// Documents serves discovery and OpenAPI: /api, /apis, /openapi and what
	// is directly below them.
	Documents *openapi.Documents
	// Tokens issues service account tokens and publishes their keys.
	Tokens TokenIssuer

	// ProxyCertificate is the front proxy's client certificate, by which other
	// API servers know that this one vouches for the user; nil: there is none,
	// and they refuse what needs one.
	ProxyCertificate func() (*tls.Certificate, error)

	// Kubelet is how node agents are reached for exec, logs and proxying.
	Kubelet KubeletConfig

	// Version is what /version says.
	Version version.Info
	// AdvertiseAddress is the address of this server that the Endpoints of the
	// kubernetes Service name; empty: there is no such Service. Port is 6443 if
	// zero.
	AdvertiseAddress string
	AdvertisePort    int32
	// ServiceAddress is the kubernetes Service's address; empty: 10.96.0.1.
	ServiceAddress string
	// Bootstrap makes the objects that must always exist (namespaces, roles).
	Bootstrap []Step

	// AuthenticationInfo is the content of the ConfigMap by which extension API
	// servers learn how this one authenticates itself and its users
	// (client-ca-file, requestheader-...). Empty: there is none.
	AuthenticationInfo map[string]string

	// Audit records requests; nil: nothing is recorded.
	Audit *audit.Auditor
	// MaxReads and MaxWrites bound the requests in flight; 0: 400 and 200,
	// negative: no bound. Priority and fairness divide the sum of both; with
	// PlainLimits there is no more than the two numbers.
	MaxReads, MaxWrites int
	PlainLimits         bool
	// RequestTimeout bounds requests that are not long-running; 0: 60 s.
	RequestTimeout time.Duration
	// LeastWatch is how long a watch lasts at least, when its client does not say
	// how long; 0: 30 min.
	LeastWatch time.Duration
	// Health are further checks of /livez and /readyz, by name; Hooks tell how
	// far the parts are that start beside the server. Synced tells whether what
	// authorisation reads has been read; nil: it reads nothing.
	Health, Hooks []HealthCheck
	Synced        func(context.Context) error
	// Metrics are shown at /metrics beside the server's own.
	Metrics []prometheus.Collector
	// Components are what componentstatuses shows; nil: the scheduler and the
	// controller manager of this machine, and etcd.
	Components []Check

	// CBOR lets clients send and ask for CBOR, which upstream does not by default.
	CBOR bool

	// Extra are handlers behind authentication, by path (a trailing slash takes
	// in what is below): the row stream. Public ones are in front of it: the
	// dashboard.
	Extra, Public map[string]http.Handler
	// Own are paths of Extra whose handlers ask themselves what the user may do:
	// anybody who is known may call them.
	Own []string

	// Trace tells what requests do to objects; nil: nobody is told.
	Trace *trace.Tracer

	Log *slog.Logger
}

// KubeletConfig is how the server reaches node agents.
type KubeletConfig struct {
	// TLS holds the client certificate that node agents know, and the
	// authority that theirs is checked against. Nil: no certificate, no check.
	TLS *tls.Config
	// Address tells where a node's agent listens. Nil: the node's InternalIP,
	// ExternalIP or Hostname and its kubeletEndpoint port, or 10250.
	Address func(*corev1.Node) (host string, port int32, err error)
	// Dial connects to an agent, for agents that do not listen at their nodes'
	// addresses. Nil: over the network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// TokenIssuer makes service account tokens.
type TokenIssuer interface {
	// Issue answers a TokenRequest for a service account, with a new object.
	Issue(ctx context.Context, account *corev1.ServiceAccount, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
	// KeySet is the JSON web key set that verifies the tokens, Discovery the
	// OpenID configuration that points to it.
	KeySet() ([]byte, error)
	Discovery() ([]byte, error)
}

// Step is a part of what every cluster starts with: objects that Run makes, and
// makes again when they are missing. It must be idempotent.
type Step struct {
	Name string // as a check of /readyz, behind "poststarthook/": "rbac/bootstrap-roles"
	Run  func(context.Context) error
}

// HealthCheck is one named check of /livez and /readyz.
type HealthCheck struct {
	Name string
	// Ready checks are part of /readyz only.
	Ready bool
	// NotLive checks are not part of /livez: what they watch is not mended by a
	// restart of the server.
	NotLive bool
	Run     func(context.Context) error
}

// Server is an API server. Make one with New, serve its Handler, and run Run
// beside it.
type Server struct {
	Config
	handler http.Handler
	fields  *fieldManagers
	// webhooks calls those that convert custom resources.
	webhooks *admission.Caller
	remotes  remotes
	kubelet  *kubelet
	metrics  *metrics
	health   *health
	modes    modeMemory
	flow     *flowcontrol.Controller // nil: plain limits
	// reads and writes hold a token for each request in flight; nil: no limit.
	reads, writes chan struct{}

	commits    *commits      // nil: there is no Trace
	deliveries chan delivery // of commits, to components

	drainMu    sync.Mutex // protects the fields below
	drained    bool
	onDraining map[int]context.CancelFunc // ends the watches in progress
	lastDrain  int
}

// New makes a server.
func New(cfg Config) (*Server, error) {
	if cfg.Store == nil || cfg.Kinds == nil || cfg.Authenticator == nil || cfg.Authorizer == nil {
		return nil, fmt.Errorf("server: Store, Kinds, Authenticator and Authorizer are needed")
	}
	if cfg.MaxReads == 0 {
		cfg.MaxReads = 400
	}
	if cfg.MaxWrites == 0 {
		cfg.MaxWrites = 200
	}
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = 60 * time.Second
	}
	if cfg.LeastWatch == 0 {
		cfg.LeastWatch = 30 * time.Minute
	}
	if cfg.AdvertisePort == 0 {
		cfg.AdvertisePort = 6443
	}
	if cfg.ServiceAddress == "" {
		cfg.ServiceAddress = "10.96.0.1"
	}
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.FieldTypes == nil {
		cfg.FieldTypes = NewFieldTypes(cfg.Kinds)
	}
	s := &Server{Config: cfg, onDraining: map[int]context.CancelFunc{}}
	if s.flow = s.newFlow(); s.flow == nil {
		s.reads, s.writes = slots(cfg.MaxReads), slots(cfg.MaxWrites)
	}
	if cfg.Trace != nil {
		s.commits, s.deliveries = &commits{}, make(chan delivery, 256)
	}
	s.fields = newFieldManagers(cfg.Kinds, cfg.FieldTypes)
	s.webhooks = admission.NewCaller(cfg.Store)
	if cfg.Documents != nil {
		s.remotes.publish = cfg.Documents.SetRemote
	}
	s.kubelet = newKubelet(cfg.Kubelet)
	s.metrics = newMetrics(s)
	s.Admission = cfg.Admission.Observed(s.metrics.observePlugin)
	s.health = newHealth(s)
	// The chain is whole when it is given, and flow control when it is made.
	s.health.finished(nil, slices.Concat(flowHooks, []string{"start-apiserver-admission-initializer"})...)
	s.storeKinds(nil)
	s.handler = s.routes()
	return s, nil
}

func slots(n int) chan struct{} {
	if n < 0 {
		return nil
	}
	return make(chan struct{}, n)
}

// Handler serves the API.
func (s *Server) Handler() http.Handler { return s.handler }

// Run does the server's own chores until ctx ends: it writes the audit log,
// keeps storage in step with the table of kinds and the table in step with
// CustomResourceDefinitions, keeps the bootstrap objects, and flow control in step
// with its configuration. Watches in progress end with it.
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	if s.Audit != nil {
		wg.Go(func() { s.Audit.Run(ctx) })
	}
	wg.Go(func() { s.health.finished(s.Store.WaitLoaded(ctx), storageHooks...) })
	wg.Go(func() { s.followKinds(ctx) })
	wg.Go(func() { s.followDefinitions(ctx) })
	wg.Go(func() { s.followAPIServices(ctx) })
	wg.Go(func() { s.keepBootstrapped(ctx) })
	if s.flow != nil {
		wg.Go(func() { s.followFlows(ctx) })
	}
	if s.Trace != nil {
		wg.Go(func() { _ = s.Trace.Run(ctx) }) // ends with ctx only
		wg.Go(func() { s.followDeliveries(ctx) })
	}
	<-ctx.Done()
	s.Drain()
	wg.Wait()
	return nil
}

// Drain ends the watches in progress and fails /readyz, so that clients turn to
// another server before this one closes.
func (s *Server) Drain() {
	s.drainMu.Lock()
	defer s.drainMu.Unlock()
	s.drained = true
	for _, cancel := range s.onDraining {
		cancel()
	}
}

func (s *Server) draining() bool {
	s.drainMu.Lock()
	defer s.drainMu.Unlock()
	return s.drained
}
