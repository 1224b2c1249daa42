package auth

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/client-go/util/cert"

	"orrery.dev/server/reload"
)

// oidcIssuer knows the tokens of one issuer: well signed with the keys that it
// publishes, meant for one of the audiences, in their time, and with the claims
// that the configuration asks for. What user they make is in oidc_claims.go.
type oidcIssuer struct {
	config apiserver.JWTAuthenticator
	hash   string // of the issuer's URL
	client *http.Client
	verify *oidc.Config
	rules  authenticationcel.CELMapper
	// required are the claims that must have a value.
	required map[string]string
	groups   *distributed // nil: no groups by claim
	log      *slog.Logger

	verifier atomic.Pointer[oidc.IDTokenVerifier] // nil until found
	trouble  atomic.Pointer[error]                // why it is not
}

func newOIDCIssuer(config apiserver.JWTAuthenticator, algorithms, disallowed []string, log *slog.Logger) (*oidcIssuer, error) {
	rules, errs := validation.CompileAndValidateJWTAuthenticator(authenticationcel.NewDefaultCompiler(), config, disallowed)
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	client, err := issuerClient(config.Issuer)
	if err != nil {
		return nil, err
	}
	i := &oidcIssuer{
		config: config, hash: reload.Hash([]byte(config.Issuer.URL)), client: client, rules: rules, log: log,
		// Of several audiences any will do, which the library does not know of.
		verify:   &oidc.Config{SupportedSigningAlgs: algorithms, SkipClientIDCheck: true},
		required: map[string]string{},
	}
	for _, rule := range config.ClaimValidationRules {
		if rule.Claim != "" {
			i.required[rule.Claim] = rule.RequiredValue
		}
	}
	if claim := config.ClaimMappings.Groups.Claim; claim != "" {
		i.groups = &distributed{claim: claim, issuer: i, found: map[string]*oidc.IDTokenVerifier{}}
	}
	return i, nil
}

// issuerClient makes the client that asks the issuer. If its configuration is
// elsewhere than its name says, requests for that go there.
func issuerClient(issuer apiserver.Issuer) (*http.Client, error) {
	transport := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}})
	if issuer.EgressSelectorType != "" {
		return nil, fmt.Errorf("oidc: egress lookup required with egress selector type %q", issuer.EgressSelectorType)
	}
	if issuer.CertificateAuthority != "" {
		pool, err := cert.NewPoolFromBytes([]byte(issuer.CertificateAuthority))
		if err != nil {
			return nil, fmt.Errorf("Failed to read the CA contents: %w", err)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	if issuer.DiscoveryURL != "" {
		to, err := url.Parse(issuer.DiscoveryURL)
		if err != nil {
			return nil, fmt.Errorf("oidc: invalid discovery URL: %w", err)
		}
		client.Transport = &rewriter{from: strings.TrimSuffix(issuer.URL, "/") + "/.well-known/openid-configuration", to: to, next: transport}
	}
	return client, nil
}

// rewriter sends requests for one URL to another.
type rewriter struct {
	from string
	to   *url.URL
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (r *rewriter) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && req.URL.String() == r.from {
		req = req.Clone(req.Context())
		req.Host, req.URL = "", r.to
	}
	return r.next.RoundTrip(req)
}

// findInterval is the pause between attempts to find an issuer.
const findInterval = 10 * time.Second

// find asks for the issuer's configuration until it is there.
func (i *oidcIssuer) find(ctx context.Context) {
	for {
		verifier, err := i.discover(ctx, i.config.Issuer.URL)
		if err == nil {
			i.verifier.Store(verifier)
			return
		}
		if ctx.Err() != nil {
			return
		}
		i.log.Warn("OpenID Connect issuer", "issuer", i.config.Issuer.URL, "err", err)
		i.trouble.Store(&err)
		if !reload.Sleep(ctx, findInterval) {
			return
		}
	}
}

func (i *oidcIssuer) discover(ctx context.Context, issuer string) (*oidc.IDTokenVerifier, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, i.client), issuer)
	if err != nil {
		return nil, err
	}
	return provider.Verifier(i.verify), nil
}

func (i *oidcIssuer) health() error {
	if i.verifier.Load() != nil {
		return nil
	}
	err := fmt.Errorf("oidc: authenticator for issuer %q is not initialized", i.config.Issuer.URL)
	if why := i.trouble.Load(); why != nil {
		err = *why
	}
	return fmt.Errorf("oidc: authenticator for issuer %q is not healthy: %w", i.config.Issuer.URL, err)
}

// AuthenticateToken implements authenticator.Token. Tokens of other issuers are
// not ours to judge.
func (i *oidcIssuer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if issuer, err := claimedIssuer(token); err != nil || issuer != i.config.Issuer.URL {
		return nil, false, nil
	}
	verifier := i.verifier.Load()
	if verifier == nil {
		return nil, false, errors.New("oidc: authenticator not initialized")
	}
	verified, err := i.verified(ctx, verifier, token)
	if err != nil {
		return nil, false, fmt.Errorf("oidc: verify token: %w", err)
	}
	who, err := i.userOf(ctx, verified)
	if err != nil {
		return nil, false, fmt.Errorf("oidc: %w", err)
	}
	return &authenticator.Response{User: who}, true, nil
}

// verified checks a token and returns its claims.
func (i *oidcIssuer) verified(ctx context.Context, verifier *oidc.IDTokenVerifier, token string) (tokenClaims, error) {
	checked, err := verifier.Verify(oidc.ClientContext(ctx, i.client), token)
	if err != nil {
		return nil, err
	}
	wanted := i.config.Issuer.Audiences
	if len(authenticator.Audiences(checked.Audience).Intersect(wanted)) == 0 {
		return nil, fmt.Errorf("oidc: expected audience in %q got %q", wanted, checked.Audience)
	}
	var c tokenClaims
	if err := checked.Claims(&c); err != nil {
		return nil, fmt.Errorf("parse claims: %w", err)
	}
	return c, nil
}

// claimedIssuer is who a token says has signed it.
func claimedIssuer(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("malformed token")
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", fmt.Errorf("error decoding token: %w", err)
	}
	var c struct {
		Issuer string `json:"iss"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return "", fmt.Errorf("while unmarshaling token: %w", err)
	}
	if c.Issuer == "accounts.google.com" { // as Google writes it at times
		return "https://accounts.google.com", nil
	}
	return c.Issuer, nil
}
