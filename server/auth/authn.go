package auth

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// Config says by what callers are known. Nil parts are not tried.
type Config struct {
	// ClientCAs signs client certificates. It is a function since the file may
	// be renewed.
	ClientCAs func() *x509.CertPool
	// ProxyCAs and ProxyNames (common names; empty: any) say which client
	// certificates may name a user in X-Remote-* headers.
	ProxyCAs   func() *x509.CertPool
	ProxyNames []string
	// Tokens are tried in order.
	Tokens []authenticator.Token
	// Audiences are those of the API server: what a token must be meant for.
	Audiences []string
	// NoAnonymous refuses callers who show nothing.
	NoAnonymous bool
}

// Authenticator tells who sent a request. It implements authenticator.Request
// and, for token reviews, authenticator.Token.
type Authenticator struct {
	config Config
	tokens *tokenCache
}

var (
	_ authenticator.Request = (*Authenticator)(nil)
	_ authenticator.Token   = (*Authenticator)(nil)
)

// NewAuthenticator makes one.
func NewAuthenticator(c Config) *Authenticator {
	return &Authenticator{config: c, tokens: newTokenCache(c.Tokens)}
}

// AuthenticateRequest returns the user, or an error when what the caller showed
// is wrong, or false when it showed nothing and anonymous callers are refused.
// Credentials are taken out of the request, so that nothing behind can leak them.
func (a *Authenticator) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	req = req.WithContext(authenticator.WithAudiences(req.Context(), a.config.Audiences))
	var errs []error
	for _, method := range []func(*http.Request) (*user.DefaultInfo, bool, error){a.byProxy, a.byCertificate, a.byToken} {
		who, ok, err := method(req)
		if err != nil {
			errs = append(errs, err)
		}
		if ok {
			return &authenticator.Response{User: authenticated(who), Audiences: a.config.Audiences}, true, nil
		}
	}
	if len(errs) > 0 {
		return nil, false, errors.Join(errs...)
	}
	if a.config.NoAnonymous {
		return nil, false, nil
	}
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	return &authenticator.Response{User: anonymous, Audiences: a.config.Audiences}, true, nil
}

// AuthenticateToken checks a bearer token against the audiences of ctx, or the
// API server's own if it has none.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if _, ok := authenticator.AudiencesFrom(ctx); !ok {
		ctx = authenticator.WithAudiences(ctx, a.config.Audiences)
	}
	response, ok, err := a.tokens.AuthenticateToken(ctx, token)
	if !ok || err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: authenticated(response.User), Audiences: response.Audiences}, true, nil
}

// authenticated adds the group of all who are known.
func authenticated(who user.Info) user.Info {
	groups := who.GetGroups()
	if who.GetName() == user.Anonymous || slices.Contains(groups, user.AllAuthenticated) || slices.Contains(groups, user.AllUnauthenticated) {
		return who
	}
	return &user.DefaultInfo{
		Name: who.GetName(), UID: who.GetUID(), Extra: who.GetExtra(),
		Groups: append(slices.Clone(groups), user.AllAuthenticated),
	}
}

// byProxy believes the X-Remote-* headers of a proxy that shows the right
// certificate. Headers without one are ignored, not refused.
func (a *Authenticator) byProxy(req *http.Request) (*user.DefaultInfo, bool, error) {
	name := strings.TrimSpace(req.Header.Get("X-Remote-User"))
	if a.config.ProxyCAs == nil || name == "" || req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	cert := req.TLS.PeerCertificates[0]
	if err := verify(req, a.config.ProxyCAs()); err != nil {
		return nil, false, nil
	}
	if len(a.config.ProxyNames) > 0 && !slices.Contains(a.config.ProxyNames, cert.Subject.CommonName) {
		return nil, false, fmt.Errorf("x509: subject with cn=%s is not in the allowed list", cert.Subject.CommonName)
	}
	who := &user.DefaultInfo{Name: name, UID: req.Header.Get("X-Remote-Uid"), Groups: req.Header.Values("X-Remote-Group")}
	for header, values := range req.Header {
		key, ok := strings.CutPrefix(strings.ToLower(header), "x-remote-extra-")
		if !ok {
			continue
		}
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		if who.Extra == nil {
			who.Extra = map[string][]string{}
		}
		who.Extra[key] = append(who.Extra[key], values...)
	}
	for header := range req.Header {
		if strings.HasPrefix(header, "X-Remote-") {
			req.Header.Del(header)
		}
	}
	return who, true, nil
}

// byCertificate takes the common name as user and the organizations as groups.
func (a *Authenticator) byCertificate(req *http.Request) (*user.DefaultInfo, bool, error) {
	if a.config.ClientCAs == nil || req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	cert := req.TLS.PeerCertificates[0]
	if err := verify(req, a.config.ClientCAs()); err != nil {
		return nil, false, fmt.Errorf("verifying certificate SN=%d, SKID=%X, AKID=%X failed: %w", cert.SerialNumber, cert.SubjectKeyId, cert.AuthorityKeyId, err)
	}
	if cert.Subject.CommonName == "" {
		return nil, false, nil
	}
	sum := sha256.Sum256(cert.Raw)
	return &user.DefaultInfo{
		Name:   cert.Subject.CommonName,
		Groups: cert.Subject.Organization,
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}, true, nil
}

func verify(req *http.Request, roots *x509.CertPool) error {
	chain := req.TLS.PeerCertificates
	intermediates := x509.NewCertPool()
	for _, cert := range chain[1:] {
		intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

var errInvalidToken = errors.New("invalid bearer token")

// byToken takes a token from the Authorization header, or, for browsers'
// WebSockets, which cannot set it, from the list of protocols.
func (a *Authenticator) byToken(req *http.Request) (*user.DefaultInfo, bool, error) {
	token, forget := headerToken(req)
	if token == "" {
		var err error
		if token, forget, err = protocolToken(req); err != nil {
			return nil, false, err
		}
	}
	if token == "" {
		return nil, false, nil
	}
	response, ok, err := a.tokens.AuthenticateToken(req.Context(), token)
	if err != nil {
		return nil, false, err
	}
	if !ok {
		return nil, false, errInvalidToken
	}
	forget()
	who := response.User
	return &user.DefaultInfo{Name: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: who.GetExtra()}, true, nil
}

func headerToken(req *http.Request) (token string, forget func()) {
	scheme, token, ok := strings.Cut(strings.TrimSpace(req.Header.Get("Authorization")), " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return "", nil
	}
	return strings.TrimSpace(token), func() { req.Header.Del("Authorization") }
}

const (
	protocolHeader      = "Sec-Websocket-Protocol"
	bearerProtocolStart = "base64url.bearer.authorization.k8s.io."
)

func protocolToken(req *http.Request) (token string, forget func(), err error) {
	if !strings.EqualFold(req.Header.Get("Upgrade"), "websocket") {
		return "", nil, nil
	}
	var rest []string
	for _, line := range req.Header.Values(protocolHeader) {
		for _, protocol := range strings.Split(line, ",") {
			protocol = strings.TrimSpace(protocol)
			encoded, ok := strings.CutPrefix(protocol, bearerProtocolStart)
			if !ok {
				rest = append(rest, protocol)
				continue
			}
			if token != "" {
				return "", nil, errors.New("multiple base64.bearer.authorization tokens specified")
			}
			raw, err := base64.RawURLEncoding.DecodeString(encoded)
			if err != nil || !utf8.Valid(raw) {
				return "", nil, errors.New("invalid base64.bearer.authorization token encoding")
			}
			token = string(raw)
		}
	}
	if token != "" && len(rest) == 0 {
		return "", nil, errors.New("missing additional subprotocol")
	}
	return token, func() { req.Header.Set(protocolHeader, strings.Join(rest, ",")) }, nil
}
