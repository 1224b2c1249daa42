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
	ClientCAs Pool
	// ProxyCAs and ProxyNames (common names; empty: any) say which client
	// certificates may name a user in headers.
	ProxyCAs     Pool
	ProxyNames   []string
	ProxyHeaders ProxyHeaders
	// Tokens are tried in order.
	Tokens []authenticator.Token
	// Audiences are those of the API server: what a token must be meant for.
	Audiences []string
	// NoAnonymous refuses callers who show nothing; AnonymousPaths, if there are
	// any, are the only ones where they are not refused.
	NoAnonymous    bool
	AnonymousPaths []string
}

// Pool returns the authorities of a file as it is now.
type Pool func() *x509.CertPool

// ProxyHeaders are the headers by which front proxies name users: the first one
// with a name counts, and all with groups and extra fields.
type ProxyHeaders struct{ User, UID, Group, ExtraPrefix []string }

// DefaultProxyHeaders are those that everybody uses. UIDs are told by some only.
func DefaultProxyHeaders() ProxyHeaders {
	return ProxyHeaders{
		User: []string{"X-Remote-User"}, Group: []string{"X-Remote-Group"}, ExtraPrefix: []string{"X-Remote-Extra-"},
	}
}

// Authenticator tells who sent a request. It implements authenticator.Request
// and, for token reviews, authenticator.Token.
type Authenticator struct {
	config       Config
	tokens       *tokenCache
	certificates certificates
}

var (
	_ authenticator.Request = (*Authenticator)(nil)
	_ authenticator.Token   = (*Authenticator)(nil)
)

// NewAuthenticator makes one.
func NewAuthenticator(c Config) *Authenticator {
	if len(c.ProxyHeaders.User) == 0 {
		c.ProxyHeaders = DefaultProxyHeaders()
	}
	return &Authenticator{config: c, tokens: newTokenCache(c.Tokens, tokenTTL, 0)}
}

type asKey struct{}

// As makes requests with that context the user's, whatever they show: for what is in
// the server's process and knows its users by itself, the dashboard.
func As(ctx context.Context, who user.Info) context.Context {
	return context.WithValue(ctx, asKey{}, who)
}

func (a *Authenticator) byContext(req *http.Request) (*authenticator.Response, bool, error) {
	who, ok := req.Context().Value(asKey{}).(user.Info)
	return &authenticator.Response{User: who}, ok, nil
}

// AuthenticateRequest returns the user, or an error when what the caller showed
// is wrong, or false when it showed nothing and anonymous callers are refused.
// Credentials are taken out of the request, so that nothing behind can leak them.
func (a *Authenticator) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	audiences, limited := authenticator.AudiencesFrom(req.Context())
	if !limited {
		audiences = a.config.Audiences
		req = req.WithContext(authenticator.WithAudiences(req.Context(), audiences))
	}
	var errs []error
	for _, method := range []func(*http.Request) (*authenticator.Response, bool, error){a.byContext, a.byProxy, a.byCertificate, a.byToken} {
		found, ok, err := method(req)
		if err != nil {
			errs = append(errs, err)
		}
		if !ok {
			continue
		}
		if found.Audiences != nil {
			audiences = found.Audiences
		}
		return &authenticator.Response{User: authenticated(found.User), Audiences: audiences}, true, nil
	}
	if len(errs) > 0 {
		return nil, false, errors.Join(errs...)
	}
	if a.config.NoAnonymous || len(a.config.AnonymousPaths) > 0 && !slices.Contains(a.config.AnonymousPaths, req.URL.Path) {
		return nil, false, nil
	}
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	return &authenticator.Response{User: anonymous, Audiences: audiences}, true, nil
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

// byProxy believes the headers of a proxy that shows the right certificate.
// Headers without one are ignored, not refused.
func (a *Authenticator) byProxy(req *http.Request) (*authenticator.Response, bool, error) {
	headers := a.config.ProxyHeaders
	name := first(req.Header, headers.User)
	if a.config.ProxyCAs == nil || name == "" || req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	cert := req.TLS.PeerCertificates[0]
	if err := a.certificates.verify(req.TLS.PeerCertificates, a.config.ProxyCAs()); err != nil {
		return nil, false, nil
	}
	if len(a.config.ProxyNames) > 0 && !slices.Contains(a.config.ProxyNames, cert.Subject.CommonName) {
		return nil, false, fmt.Errorf("x509: subject with cn=%s is not in the allowed list", cert.Subject.CommonName)
	}
	who := &user.DefaultInfo{Name: name, UID: first(req.Header, headers.UID)}
	for _, h := range headers.Group {
		for _, group := range req.Header.Values(h) {
			if group != "" {
				who.Groups = append(who.Groups, group)
			}
		}
	}
	for _, prefix := range headers.ExtraPrefix {
		for header, values := range req.Header {
			key, ok := cutPrefixFold(header, prefix)
			if !ok {
				continue
			}
			if who.Extra == nil {
				who.Extra = map[string][]string{}
			}
			key = extraKey(key)
			who.Extra[key] = append(who.Extra[key], values...)
		}
	}
	headers.remove(req.Header)
	return &authenticator.Response{User: who}, true, nil
}

// extraKey is the key of an extra field as the end of a header's name says it.
func extraKey(text string) string {
	text = strings.ToLower(text)
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

func first(h http.Header, names []string) string {
	for _, name := range names {
		if value := strings.TrimSpace(h.Get(name)); value != "" {
			return value
		}
	}
	return ""
}

func cutPrefixFold(text, prefix string) (string, bool) {
	if len(text) < len(prefix) || !strings.EqualFold(text[:len(prefix)], prefix) {
		return "", false
	}
	return text[len(prefix):], true
}

// remove takes the headers out of a request, so that nobody behind takes them for
// somebody else's word.
func (p ProxyHeaders) remove(h http.Header) {
	for _, names := range [][]string{p.User, p.UID, p.Group} {
		for _, name := range names {
			h.Del(name)
		}
	}
	for _, prefix := range p.ExtraPrefix {
		for header := range h {
			if _, ok := cutPrefixFold(header, prefix); ok {
				delete(h, header)
			}
		}
	}
}

// byCertificate takes the common name as user and the organizations as groups.
func (a *Authenticator) byCertificate(req *http.Request) (*authenticator.Response, bool, error) {
	if a.config.ClientCAs == nil || req.TLS == nil || len(req.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	cert := req.TLS.PeerCertificates[0]
	if err := a.certificates.verify(req.TLS.PeerCertificates, a.config.ClientCAs()); err != nil {
		return nil, false, fmt.Errorf("verifying certificate SN=%d, SKID=%X, AKID=%X failed: %w", cert.SerialNumber, cert.SubjectKeyId, cert.AuthorityKeyId, err)
	}
	if cert.Subject.CommonName == "" {
		return nil, false, nil
	}
	sum := sha256.Sum256(cert.Raw)
	return &authenticator.Response{User: &user.DefaultInfo{
		Name:   cert.Subject.CommonName,
		Groups: cert.Subject.Organization,
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}}, true, nil
}

var errInvalidToken = errors.New("invalid bearer token")

// byToken takes a token from the Authorization header, or, for browsers'
// WebSockets, which cannot set it, from the list of protocols.
func (a *Authenticator) byToken(req *http.Request) (*authenticator.Response, bool, error) {
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
	return response, true, nil
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
