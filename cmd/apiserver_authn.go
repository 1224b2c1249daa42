package cmd

import (
	"bytes"
	"crypto/tls"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"orrery.dev/cluster"
	"orrery.dev/server/auth"
	"orrery.dev/server/storage"
	"orrery.dev/web"
)

// authnFlags say by what callers are known, beside certificates and the tokens of
// service accounts.
type authnFlags struct {
	set             *pflag.FlagSet // to know which were given
	anonymous       bool
	bootstrapTokens bool
	config          string
	oidc            oidcFlags
	tokenFile       string
	webhookFile     string
	webhookVersion  string
	webhookTTL      time.Duration
	audiences       []string
	headers         auth.ProxyHeaders
}

type oidcFlags struct {
	auth.OIDC
	caFile     string
	secretFile string
	algorithms []string
}

func (a *authnFlags) flags(f *pflag.FlagSet) {
	a.set, a.headers = f, auth.DefaultProxyHeaders()
	f.BoolVar(&a.anonymous, "anonymous-auth", true, "let requests without credentials in as system:anonymous")
	f.BoolVar(&a.bootstrapTokens, "enable-bootstrap-token-auth", true, "let machines that join in by tokens in kube-system")
	f.StringVar(&a.config, "authentication-config", "", "file (AuthenticationConfiguration) with issuers of tokens, and with where callers may be anonymous; it is followed")
	f.StringVar(&a.tokenFile, "token-auth-file", "", `file of fixed tokens: token,user,uid,"group1,group2"`)
	f.StringVar(&a.webhookFile, "authentication-token-webhook-config-file", "", "ask the service that this file (kubeconfig) points to whose tokens are")
	f.StringVar(&a.webhookVersion, "authentication-token-webhook-version", "v1beta1", "version of the TokenReviews that it is asked by")
	f.DurationVar(&a.webhookTTL, "authentication-token-webhook-cache-ttl", 2*time.Minute, "how long its answers are remembered")
	f.StringSliceVar(&a.audiences, "api-audiences", nil, "what tokens for this API are meant for (default: the issuers of service account tokens)")
	f.StringSliceVar(&a.headers.User, "requestheader-username-headers", a.headers.User, "headers in which front proxies name users")
	f.StringSliceVar(&a.headers.UID, "requestheader-uid-headers", a.headers.UID, "headers with users' UIDs")
	f.StringSliceVar(&a.headers.Group, "requestheader-group-headers", a.headers.Group, "headers with groups")
	f.StringSliceVar(&a.headers.ExtraPrefix, "requestheader-extra-headers-prefix", a.headers.ExtraPrefix, "how the names of headers with extra fields begin")
	a.oidc.flags(f)
}

func (o *oidcFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&o.Issuer, "oidc-issuer-url", "", "OpenID Connect issuer whose tokens are good")
	f.StringVar(&o.ClientID, "oidc-client-id", "", "what its tokens must be meant for")
	f.StringVar(&o.caFile, "oidc-ca-file", "", "authority of its certificate (default: those of the host)")
	f.StringVar(&o.secretFile, "oidc-client-secret-file", "", "file with what the dashboard shows the issuer when users sign in (default: nothing, the client is a public one)")
	f.StringVar(&o.UsernameClaim, "oidc-username-claim", "sub", "claim that names the user")
	f.StringVar(&o.UsernamePrefix, "oidc-username-prefix", "", "put in front of it (default: the issuer's URL and #, but for emails; -: nothing)")
	f.StringVar(&o.GroupsClaim, "oidc-groups-claim", "", "claim that lists the groups")
	f.StringVar(&o.GroupsPrefix, "oidc-groups-prefix", "", "put in front of each group")
	f.StringSliceVar(&o.algorithms, "oidc-signing-algs", []string{"RS256"}, "algorithms that it may sign with: "+strings.Join(auth.Algorithms(), ", "))
	f.StringToStringVar(&o.RequiredClaims, "oidc-required-claim", nil, "claim=value that a token must have")
}

// given reports whether any of the flags with a prefix was.
func (a *authnFlags) given(prefix string) bool {
	given := false
	a.set.Visit(func(f *pflag.Flag) { given = given || strings.HasPrefix(f.Name, prefix) })
	return given
}

// forPages is the issuer as the dashboard needs it; nil if there is none.
func (o *oidcFlags) forPages() (*web.OIDC, error) {
	if o.Issuer == "" {
		return nil, nil
	}
	issuer := &web.OIDC{Issuer: o.Issuer, ClientID: o.ClientID, SecretFile: o.secretFile}
	if o.secretFile != "" {
		if _, err := os.ReadFile(o.secretFile); err != nil {
			return nil, fmt.Errorf("--oidc-client-secret-file: %w", err)
		}
	}
	if o.caFile != "" {
		pool, err := cluster.ReadPool(o.caFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		issuer.Client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}, Timeout: 30 * time.Second}
	}
	return issuer, nil
}

// open makes what the flags ask for, and adds it to the methods that are tried. jwts
// is nil if there are no issuers.
func (a *authnFlags) open(config *auth.Config, accountIssuers []string, store *storage.Store, log *slog.Logger) (jwts *auth.JWTs, err error) {
	jwtConfig, err := a.jwtConfig(accountIssuers)
	if err != nil {
		return nil, err
	}
	config.ProxyHeaders = a.headers
	if err := a.setAnonymous(config, jwtConfig.Configuration); err != nil {
		return nil, err
	}
	agnostic := func(t authenticator.Token) {
		config.Tokens = append(config.Tokens, authenticator.WrapAudienceAgnosticToken(config.Audiences, t))
	}
	if a.tokenFile != "" {
		fixed, err := readTokens(a.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-auth-file: %w", err)
		}
		config.Tokens = append([]authenticator.Token{authenticator.WrapAudienceAgnosticToken(config.Audiences, fixed)}, config.Tokens...)
	}
	if a.bootstrapTokens {
		agnostic(auth.BootstrapTokens{Reader: store})
	}
	if jwtConfig.Configuration != nil {
		jwtConfig.Log = log
		if jwtConfig.ServerID, err = serverID(); err != nil {
			return nil, err
		}
		if jwts, err = auth.NewJWTs(jwtConfig); err != nil {
			return nil, fmt.Errorf("authentication configuration: %w", err)
		}
		agnostic(jwts)
	}
	if a.webhookFile != "" {
		hook, err := auth.NewTokenWebhook(a.webhookFile, a.webhookVersion, config.Audiences, a.webhookTTL)
		if err != nil {
			return nil, fmt.Errorf("--authentication-token-webhook-config-file: %w", err)
		}
		config.Tokens = append(config.Tokens, hook)
	}
	return jwts, nil
}

// jwtConfig is the configuration of issuers, from the file or from flags; there
// may be none.
func (a *authnFlags) jwtConfig(accountIssuers []string) (auth.JWTConfig, error) {
	c := auth.JWTConfig{ServiceAccountIssuers: accountIssuers}
	switch {
	case a.config != "" && a.given("oidc-"):
		return c, errors.New("authentication-config file and oidc-* flags are mutually exclusive")
	case a.config != "":
		raw, err := os.ReadFile(a.config)
		if err != nil {
			return c, fmt.Errorf("--authentication-config: %w", err)
		}
		c.File, c.Loaded = a.config, raw
		if c.Configuration, err = auth.ParseAuthentication(raw, accountIssuers); err != nil {
			return c, fmt.Errorf("--authentication-config: failed to load authentication configuration from file %q: %w", a.config, err)
		}
	case a.given("oidc-"):
		if a.oidc.Issuer == "" || a.oidc.ClientID == "" {
			return c, errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
		}
		var err error
		if a.oidc.caFile != "" {
			if a.oidc.CA, err = os.ReadFile(a.oidc.caFile); err != nil {
				return c, fmt.Errorf("--oidc-ca-file: %w", err)
			}
		}
		c.Algorithms = a.oidc.algorithms
		if c.Configuration, err = a.oidc.Configuration(accountIssuers); err != nil {
			return c, fmt.Errorf("invalid authentication configuration: %w", err)
		}
	}
	return c, nil
}

// setAnonymous says where callers who show nothing are let in.
func (a *authnFlags) setAnonymous(config *auth.Config, from *apiserver.AuthenticationConfiguration) error {
	config.NoAnonymous = !a.anonymous
	if from == nil || from.Anonymous == nil {
		return nil
	}
	if a.given("anonymous-auth") {
		return errors.New("--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file")
	}
	config.NoAnonymous = !from.Anonymous.Enabled
	for _, c := range from.Anonymous.Conditions {
		config.AnonymousPaths = append(config.AnonymousPaths, c.Path)
	}
	return nil
}

// readTokens reads a file of fixed tokens.
func readTokens(file string) (authenticator.Token, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	users := map[string]*user.DefaultInfo{}
	rows := csv.NewReader(bytes.NewReader(raw))
	rows.FieldsPerRecord = -1
	for {
		row, err := rows.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(row) < 3 {
			return nil, fmt.Errorf("token file '%s' must have at least 3 columns (token, user name, user uid), found %d", file, len(row))
		}
		if row[0] == "" {
			continue // nobody can show it
		}
		who := &user.DefaultInfo{Name: row[1], UID: row[2]}
		if len(row) >= 4 && row[3] != "" {
			who.Groups = strings.Split(row[3], ",")
		}
		users[row[0]] = who
	}
	return auth.FixedTokens(users), nil
}

// proxyInfo is what extension API servers learn about front proxies.
func (o *apiOptions) proxyInfo() map[string]any {
	h := o.authn.headers
	info := map[string]any{
		"requestheader-allowed-names":        o.proxyNames,
		"requestheader-username-headers":     h.User,
		"requestheader-group-headers":        h.Group,
		"requestheader-extra-headers-prefix": h.ExtraPrefix,
	}
	if len(h.UID) > 0 {
		info["requestheader-uid-headers"] = h.UID
	}
	return info
}

// accountFlags say how tokens of service accounts are made and checked.
type accountFlags struct {
	issuers    []string
	signingKey string
	verifyKeys []string
	jwksURI    string
	maxLife    time.Duration
	extend     bool
}

func (a *accountFlags) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&a.issuers, "service-account-issuer", []string{"https://kubernetes.default.svc.cluster.local"}, "issuer of service account tokens; further ones are good, but not issued")
	f.StringVar(&a.signingKey, "service-account-signing-key-file", "", "key that signs service account tokens")
	f.StringSliceVar(&a.verifyKeys, "service-account-key-file", nil, "keys that service account tokens are checked with")
	f.StringVar(&a.jwksURI, "service-account-jwks-uri", "", "where others find these keys (default: at this server)")
	f.DurationVar(&a.maxLife, "service-account-max-token-expiration", 0, "longest life of a token (default: as long as one asks for)")
	f.BoolVar(&a.extend, "service-account-extend-token-expiration", true, "let the tokens that pods are given live a year, for clients that do not read them again")
	f.Bool("service-account-lookup", true, "always true")
}

// apiAudiences are what tokens for the API must be meant for.
func (o *apiOptions) apiAudiences() []string {
	if len(o.authn.audiences) > 0 {
		return o.authn.audiences
	}
	return o.accounts.issuers
}

func (o *apiOptions) authenticator(store *storage.Store, issuer *auth.Issuer, log *slog.Logger) (*auth.Authenticator, *auth.JWTs, error) {
	config := auth.Config{ProxyNames: o.proxyNames, Tokens: []authenticator.Token{issuer}, Audiences: o.apiAudiences()}
	pools := []struct {
		flag, file string
		into       *auth.Pool
	}{{"--client-ca-file", o.clientCA, &config.ClientCAs}, {"--requestheader-client-ca-file", o.proxyCA, &config.ProxyCAs}}
	for _, p := range pools {
		if p.file == "" {
			continue
		}
		certificates, err := cluster.NewReloadingPool(p.file)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.flag, err)
		}
		*p.into = certificates.Pool
	}
	jwts, err := o.authn.open(&config, o.accounts.issuers, store, log)
	if err != nil {
		return nil, nil, err
	}
	return auth.NewAuthenticator(config), jwts, nil
}
