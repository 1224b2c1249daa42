package cmd

import (
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/api"
	"orrery.dev/cluster"
	"orrery.dev/edit"
	"orrery.dev/server"
	"orrery.dev/server/admission"
	"orrery.dev/server/auth"
	"orrery.dev/server/openapi"
	"orrery.dev/server/registry"
	"orrery.dev/server/storage"
	"orrery.dev/trace"
	"orrery.dev/web"
)

// apiParts are the pieces of a running API server.
type apiParts struct {
	store      *storage.Store
	authorizer *auth.Authorizer
	server     *server.Server
	addresses  *admission.Addresses
	// others are run beside the pieces above.
	others []func(context.Context) error
}

// run keeps the pieces going until ctx ends.
func (p *apiParts) run(ctx context.Context) error {
	return together(ctx, append([]func(context.Context) error{p.store.Run, p.authorizer.Run, p.addresses.Run, p.server.Run}, p.others...)...)
}

// newAPI puts an API server together over an etcd client.
func newAPI(o apiOptions, etcd *clientv3.Client, log *slog.Logger) (*apiParts, error) {
	sealing, err := o.encryption.open(log)
	if err != nil {
		return nil, err
	}
	store := storage.New(storage.NewEtcd(etcd), storage.Options{Transformers: sealing.transformers(), Log: log})
	kinds := registry.NewBuiltinTable()
	issuer, err := o.tokenIssuer(store)
	if err != nil {
		return nil, err
	}
	who, err := o.authz.authorizerConfig(server.AuthSource{Store: store}, log)
	if err != nil {
		return nil, err
	}
	if allowsAll(who) {
		o.authn.anonymous = false
	}
	authn, jwts, err := o.authenticator(store, issuer, log)
	if err != nil {
		return nil, err
	}
	authz, err := auth.NewAuthorizer(who)
	if err != nil {
		return nil, err
	}
	types := server.NewFieldTypes(kinds)
	own := server.NewOwnStore(store, kinds, types)
	addresses, chain, err := o.admission(own, kinds, types, authz)
	if err != nil {
		return nil, err
	}
	kubeletTLS, err := o.kubeletTLS()
	if err != nil {
		return nil, err
	}
	service, err := nthAddress(o.serviceCIDR, 1)
	if err != nil {
		return nil, fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	hub := server.NewStream(kinds, store, authz, log)
	agents := server.KubeletConfig{TLS: kubeletTLS, Dial: o.dialAgents}
	usage, why := server.NewUsage(store, authz, agents), server.NewWhy(store, kinds, authz, authz)
	glass := &server.Glass{Version: kubernetesVersion, Etcd: etcd, Checks: server.LocalComponents(store)}
	spans, err := o.tracing.receiver()
	if err != nil {
		return nil, err
	}
	tracer := trace.New("kube-apiserver", spans, spans.Sampler())
	journeys := &server.Journeys{Spans: spans, Authorizer: authz}
	parts := &apiParts{store: store, authorizer: authz, addresses: addresses, others: []func(context.Context) error{sealing.run, spans.Run}}
	metrics := slices.Concat(sealing.metrics(), authz.Collectors(), addresses.Collectors(), issuer.Collectors(), []prometheus.Collector{tracer.Metrics()})
	if jwts != nil {
		parts.others = append(parts.others, jwts.Run)
		metrics = append(metrics, jwts.Collectors()...)
	}
	dashboard, err := o.dashboard(authn, parts)
	if err != nil {
		return nil, err
	}
	proxyCertificate, err := o.proxyCertificate()
	if err != nil {
		return nil, err
	}
	info, err := o.authenticationInfo()
	if err != nil {
		return nil, err
	}
	auditor, err := openAudit(o.audit, log)
	if err != nil {
		return nil, err
	}
	config := server.Config{
		Store: store, Kinds: kinds, Admission: chain, FieldTypes: types,
		Authenticator: authn, Authorizer: authz, Rules: authz,
		Documents: openapi.New(kinds, openapi.Options{Version: release(), Address: net.JoinHostPort(o.advertise, fmt.Sprint(o.port)), Logs: o.logs, CBOR: o.cbor}), Tokens: issuer,
		Kubelet:          agents,
		Version:          versionInfo(),
		AdvertiseAddress: o.advertise, AdvertisePort: int32(o.port), ServiceAddress: service,
		Bootstrap:          server.StepsOf(auth.BootstrapSteps(own)),
		ProxyCertificate:   proxyCertificate,
		AuthenticationInfo: info,
		Health:             sealing.health(),
		Hooks:              hooks(addresses, proxyCertificate),
		Synced:             synced(authz),
		Metrics:            metrics,
		Audit:              auditor,
		CBOR:               o.cbor,
		Components:         o.components,
		Extra: o.extra(parts, map[string]http.Handler{
			api.StreamPath: parts.settled(hub), api.MapPath: glass, api.WhyPath: why, api.BlastPath: why, api.MergePath: edit.Handler(), api.RightsPath: why, api.JourneyPath: journeys, api.SpansPath: journeys,
			api.UsagePath: usage, api.SignInPath: signInLinks(dashboard),
			api.NamespacesPath: &server.Mine{Source: &server.StreamSource{Table: kinds, Store: store}, Rules: authz},
		}),
		Own:    []string{api.StreamPath, api.WhyPath, api.BlastPath, api.MergePath, api.RightsPath, api.JourneyPath, api.SpansPath, api.UsagePath, api.SignInPath, api.NamespacesPath},
		Trace:  tracer,
		Public: map[string]http.Handler{web.Prefix: dashboard},
		Log:    log,
	}
	if err := o.flow.apply(&config); err != nil {
		return nil, err
	}
	if parts.server, err = server.New(config); err != nil {
		return nil, err
	}
	glass.Checks = parts.server.ComponentChecks()
	return parts, nil
}

// synced is ready once the authoriser has read all roles: before, it refuses
// everybody but administrators.
func synced(authz *auth.Authorizer) func(context.Context) error {
	return func(context.Context) error {
		select {
		case <-authz.Synced():
			return nil
		default:
			return errors.New("roles and bindings have not been read yet")
		}
	}
}

// settled serves streams of rows once the server knows its kinds and roles: it is
// final for a view that it is refused.
func (p *apiParts) settled(hub http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.server.Settled(r.Context()) == nil { // else the client has gone
			hub.ServeHTTP(w, r)
		}
	})
}

// extra adds what the server tells those who debug it.
func (o *apiOptions) extra(parts *apiParts, to map[string]http.Handler) map[string]http.Handler {
	pages := zpages{component: "apiserver", cbor: o.cbor, flags: o.given, paths: func() []string { return parts.server.Paths() }}
	maps.Copy(to, pages.handlers())
	if o.logs {
		to["/logs/"] = http.StripPrefix("/logs/", http.FileServer(http.Dir("/var/log")))
	}
	return to
}

// hooks are the parts that start beside the server, and tell how far they are.
func hooks(addresses *admission.Addresses, proxy func() (*tls.Certificate, error)) []server.HealthCheck {
	all := []server.HealthCheck{
		{Name: "start-service-ip-repair-controllers", Run: addresses.Repaired},
		{Name: "start-kubernetes-service-cidr-controller", Run: addresses.Repaired},
	}
	if proxy != nil {
		all = append(all, server.HealthCheck{Name: "aggregator-reload-proxy-client-cert", Run: func(context.Context) error {
			_, err := proxy()
			return err
		}})
	}
	return all
}

// proxyCertificate is what aggregated API servers know us by; nil: none.
func (o *apiOptions) proxyCertificate() (func() (*tls.Certificate, error), error) {
	if o.proxyCert == "" {
		return nil, nil
	}
	certificate, err := cluster.NewReloadingCertificate(o.proxyCert, o.proxyKey)
	if err != nil {
		return nil, fmt.Errorf("--proxy-client-cert-file: %w", err)
	}
	return func() (*tls.Certificate, error) { return certificate.GetClientCertificate(nil) }, nil
}

// authenticationInfo is how aggregated API servers learn whom to believe.
func (o *apiOptions) authenticationInfo() (map[string]string, error) {
	info := map[string]string{}
	for key, file := range map[string]string{"client-ca-file": o.clientCA, "requestheader-client-ca-file": o.proxyCA} {
		if file == "" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		info[key] = string(data)
	}
	if o.proxyCA == "" {
		return info, nil
	}
	for key, names := range o.proxyInfo() {
		text, err := json.Marshal(names)
		if err != nil {
			return nil, err
		}
		info[key] = string(text)
	}
	return info, nil
}

// nodePorts is upstream's default.
var nodePorts = admission.PortRange{First: 30000, Last: 32767}

func (o *apiOptions) admission(store *server.OwnStore, kinds *registry.Table, types *server.FieldTypes, authz *auth.Authorizer) (*admission.Addresses, admission.Chain, error) {
	var ranges []netip.Prefix
	for text := range strings.SplitSeq(o.serviceCIDR, ",") {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, nil, fmt.Errorf("--service-cluster-ip-range: %w", err)
		}
		ranges = append(ranges, prefix)
	}
	addresses, err := admission.NewAddresses(store, store, ranges, nodePorts)
	if err != nil {
		return nil, nil, fmt.Errorf("--service-cluster-ip-range: %w", err)
	}
	choice, err := o.admit.choice()
	if err != nil {
		return nil, nil, err
	}
	chain, err := admission.All(admission.Config{
		Reader: store, Writer: store.Store, Kinds: kinds, Types: types.Of, Addresses: addresses, Authorizer: authz, CheckGrant: authz.CheckGrant,
		TolerationSeconds: o.admit.tolerations(), Choice: choice,
	})
	return addresses, chain, err
}

// ServeHTTP hands a request to the server, for those that have to be made before
// it and call it later.
func (p *apiParts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.server.Handler().ServeHTTP(w, r)
}

func (o *apiOptions) tokenIssuer(store *storage.Store) (*auth.Issuer, error) {
	raw, err := os.ReadFile(o.accounts.signingKey)
	if err != nil {
		return nil, fmt.Errorf("--service-account-signing-key-file: %w", err)
	}
	key, err := auth.ParsePrivateKey(raw)
	if err != nil {
		return nil, fmt.Errorf("--service-account-signing-key-file %s: %w", o.accounts.signingKey, err)
	}
	var others []crypto.PublicKey
	for _, file := range o.accounts.verifyKeys {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file: %w", err)
		}
		keys, err := auth.ParsePublicKeys(raw)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file %s: %w", file, err)
		}
		others = append(others, keys...)
	}
	if o.accounts.maxLife != 0 && o.accounts.maxLife < time.Hour {
		return nil, fmt.Errorf("--service-account-max-token-expiration: the service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
	}
	return auth.NewIssuer(auth.IssuerConfig{
		URL: o.accounts.issuers[0], Also: o.accounts.issuers[1:], Key: key, Others: others, Audiences: o.apiAudiences(), JWKSURL: o.keysURL(),
		MaxLife: o.accounts.maxLife, NotExtended: !o.accounts.extend, Reader: store, Writer: store,
	})
}

// keysURL is where others find the keys of tokens; empty: at the issuer.
func (o *apiOptions) keysURL() string {
	if ip := net.ParseIP(o.advertise); o.accounts.jwksURI != "" || ip == nil || ip.IsUnspecified() {
		return o.accounts.jwksURI
	}
	return "https://" + net.JoinHostPort(o.advertise, strconv.Itoa(o.port)) + "/openid/v1/jwks"
}

func (o *apiOptions) kubeletTLS() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.kubeletCA == "", ServerName: o.agentName}
	if o.kubeletCert != "" {
		certificate, err := cluster.NewReloadingCertificate(o.kubeletCert, o.kubeletKey)
		if err != nil {
			return nil, fmt.Errorf("--kubelet-client-certificate: %w", err)
		}
		config.GetClientCertificate = certificate.GetClientCertificate
	}
	if o.kubeletCA != "" {
		pool, err := cluster.ReadPool(o.kubeletCA)
		if err != nil {
			return nil, fmt.Errorf("--kubelet-certificate-authority: %w", err)
		}
		config.RootCAs = pool
	}
	return config, nil
}

// dashboard makes the page's handler. It forwards to the API server that it is
// part of.
func (o *apiOptions) dashboard(authn *auth.Authenticator, api http.Handler) (*web.Dashboard, error) {
	raw, err := os.ReadFile(o.accounts.signingKey)
	if err != nil {
		return nil, err
	}
	// All API servers of a cluster share the signing key, so they agree on what
	// is derived from it.
	key := sha256.Sum256(append([]byte("orrery dashboard sessions\x00"), raw...))
	issuer, err := o.authn.oidc.forPages()
	if err != nil {
		return nil, err
	}
	return web.New(web.Config{
		API: api,
		Key: key[:],
		Verify: func(ctx context.Context, token string) (web.User, error) {
			response, ok, err := authn.AuthenticateToken(ctx, token)
			if err != nil {
				return web.User{}, err
			}
			if !ok {
				return web.User{}, fmt.Errorf("this is not a token of this cluster")
			}
			return webUser(response.User), nil
		},
		As: func(ctx context.Context, u web.User) context.Context {
			return auth.As(ctx, &user.DefaultInfo{Name: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra})
		},
		OIDC: issuer,
	})
}

func webUser(u user.Info) web.User {
	return web.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
}

// linkedFor is how long a session lasts whose user showed no certificate, so that
// nothing else says how long they are to be believed.
const linkedFor = time.Hour

// signInLinks lets whoever the API server knows sign in with a browser, too.
func signInLinks(dashboard *web.Dashboard) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := registry.UserFrom(r.Context())
		if r.Method != http.MethodPost || who == nil || who.GetName() == user.Anonymous {
			http.Error(w, "a link is for whoever asks by POST and is known", http.StatusForbidden)
			return
		}
		ends := time.Now().Add(linkedFor)
		if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
			ends = r.TLS.PeerCertificates[0].NotAfter
		}
		link, err := dashboard.Link(webUser(who), ends)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = json.NewEncoder(w).Encode(api.SignIn{Link: link})
	})
}
