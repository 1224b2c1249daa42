package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/coreos/go-oidc/v3/oidc"
	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/apis/apiserver"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/lazy"
)

// tokenClaims are the claims of a token that was checked.
type tokenClaims map[string]json.RawMessage

func (c tokenClaims) has(name string) bool { _, ok := c[name]; return ok }

func (c tokenClaims) read(name string, into any) error {
	raw, ok := c[name]
	if !ok {
		return errors.New("claim not present")
	}
	return json.Unmarshal(raw, into)
}

// userOf maps the claims to a user and checks both by the configuration's rules.
func (i *oidcIssuer) userOf(ctx context.Context, c tokenClaims) (*user.DefaultInfo, error) {
	if i.groups != nil {
		if err := i.groups.fetch(ctx, c); err != nil {
			return nil, fmt.Errorf("could not expand distributed claims: %w", err)
		}
	}
	values := c.values()
	who := &user.DefaultInfo{}
	var err error
	if who.Name, err = i.username(ctx, c, values); err != nil {
		return nil, err
	}
	if who.Groups, err = i.groupsOf(ctx, c, values); err != nil {
		return nil, err
	}
	if who.UID, err = i.uid(ctx, c, values); err != nil {
		return nil, err
	}
	if who.Extra, err = i.extra(ctx, c, values); err != nil {
		return nil, err
	}
	if err := i.checkClaims(ctx, c, values); err != nil {
		return nil, err
	}
	return who, i.checkUser(ctx, who)
}

func (i *oidcIssuer) username(ctx context.Context, c tokenClaims, values *lazy.MapValue) (string, error) {
	if i.rules.Username != nil {
		name, err := evalString(ctx, i.rules.Username, values, "username")
		if err == nil && name == "" {
			err = errors.New("empty username via CEL expression is not allowed")
		}
		return name, err
	}
	from := i.config.ClaimMappings.Username
	var name string
	if err := c.read(from.Claim, &name); err != nil {
		return "", fmt.Errorf("parse username claims %q: %w", from.Claim, err)
	}
	if from.Claim == "email" && c.has("email_verified") {
		var verified bool
		if err := c.read("email_verified", &verified); err != nil {
			return "", fmt.Errorf("parse 'email_verified' claim: %w", err)
		}
		if !verified {
			return "", errors.New("email not verified")
		}
	}
	return prefixed(from, name), nil
}

func prefixed(from apiserver.PrefixedClaimOrExpression, name string) string {
	if from.Prefix == nil {
		return name
	}
	return *from.Prefix + name
}

func (i *oidcIssuer) groupsOf(ctx context.Context, c tokenClaims, values *lazy.MapValue) ([]string, error) {
	from := i.config.ClaimMappings.Groups
	if from.Claim != "" && c.has(from.Claim) {
		var groups stringOrList
		if err := c.read(from.Claim, &groups); err != nil {
			return nil, fmt.Errorf("parse groups claim %q: %w", from.Claim, err)
		}
		for n, g := range groups {
			groups[n] = prefixed(from, g)
		}
		return groups, nil
	}
	if i.rules.Groups == nil {
		return nil, nil
	}
	result, err := i.rules.Groups.EvalClaimMapping(ctx, values)
	if err != nil {
		return nil, fmt.Errorf("error evaluating group claim expression: %w", err)
	}
	groups, err := stringList(result.EvalResult)
	if err != nil {
		return nil, fmt.Errorf("error evaluating group claim expression: %w", err)
	}
	return groups, nil
}

func (i *oidcIssuer) uid(ctx context.Context, c tokenClaims, values *lazy.MapValue) (string, error) {
	if claim := i.config.ClaimMappings.UID.Claim; claim != "" {
		var uid string
		if err := c.read(claim, &uid); err != nil {
			return "", fmt.Errorf("parse uid claim %q: %w", claim, err)
		}
		return uid, nil
	}
	if i.rules.UID == nil {
		return "", nil
	}
	return evalString(ctx, i.rules.UID, values, "uid")
}

func (i *oidcIssuer) extra(ctx context.Context, c tokenClaims, values *lazy.MapValue) (map[string][]string, error) {
	extra := map[string][]string{}
	var id string
	if c.read("jti", &id) == nil && id != "" {
		extra[user.CredentialIDKey] = []string{"JTI=" + id}
	}
	if i.rules.Extra != nil {
		results, err := i.rules.Extra.EvalClaimMappings(ctx, values)
		if err != nil {
			return nil, err
		}
		for _, result := range results {
			mapping, ok := result.ExpressionAccessor.(*authenticationcel.ExtraMappingExpression)
			if !ok {
				return nil, errors.New("error evaluating extra claim expression: invalid type conversion, expected ExtraMappingCondition")
			}
			list, err := stringList(result.EvalResult)
			if err != nil {
				return nil, fmt.Errorf("error evaluating extra claim expression: %s: %w", mapping.Expression, err)
			}
			if len(list) > 0 {
				extra[mapping.Key] = list
			}
		}
	}
	if len(extra) == 0 {
		return nil, nil
	}
	return extra, nil
}

// checkClaims applies the claim validation rules, of both kinds.
func (i *oidcIssuer) checkClaims(ctx context.Context, c tokenClaims, values *lazy.MapValue) error {
	for claim, want := range i.required {
		if !c.has(claim) {
			return fmt.Errorf("required claim %s not present in ID token", claim)
		}
		var got string
		if err := c.read(claim, &got); err != nil {
			return fmt.Errorf("parse claim %s: %w", claim, err)
		}
		if got != want {
			return fmt.Errorf("required claim %s value does not match. Got = %s, want = %s", claim, got, want)
		}
	}
	if i.rules.ClaimValidationRules == nil {
		return nil
	}
	results, err := i.rules.ClaimValidationRules.EvalClaimMappings(ctx, values)
	if err == nil {
		err = allTrue(results)
	}
	if err != nil {
		return fmt.Errorf("error evaluating claim validation expression: %w", err)
	}
	return nil
}

func (i *oidcIssuer) checkUser(ctx context.Context, who *user.DefaultInfo) error {
	if i.rules.UserValidationRules == nil {
		return nil
	}
	values := lazy.NewMapValue(types.NewObjectType("kubernetes.UserInfo"))
	for name, value := range map[string]any{"username": who.Name, "uid": who.UID, "groups": who.Groups, "extra": who.Extra} {
		values.Append(name, func(*lazy.MapValue) ref.Val { return celValue(value) })
	}
	results, err := i.rules.UserValidationRules.EvalUser(ctx, values)
	if err == nil {
		err = allTrue(results)
	}
	if err != nil {
		return fmt.Errorf("error evaluating user info validation rule: %w", err)
	}
	return nil
}

// allTrue is the error of the first rule that does not hold.
func allTrue(results []authenticationcel.EvaluationResult) error {
	for _, result := range results {
		holds, ok := result.EvalResult.Value().(bool)
		if !ok {
			return errors.New("validation expression must return a boolean")
		}
		if holds {
			continue
		}
		message := ""
		switch rule := result.ExpressionAccessor.(type) {
		case *authenticationcel.ClaimValidationCondition:
			message = rule.Message
		case *authenticationcel.UserValidationCondition:
			message = rule.Message
		}
		return fmt.Errorf("validation expression '%s' failed: %s", result.ExpressionAccessor.GetExpression(), message)
	}
	return nil
}

func evalString(ctx context.Context, rule authenticationcel.ClaimsMapper, values *lazy.MapValue, what string) (string, error) {
	result, err := rule.EvalClaimMapping(ctx, values)
	if err != nil {
		return "", fmt.Errorf("error evaluating %s claim expression: %w", what, err)
	}
	text, ok := result.EvalResult.Value().(string)
	if !ok || result.EvalResult.Type() != celgo.StringType {
		return "", fmt.Errorf("error evaluating %s claim expression: %s claim expression must return a string", what, what)
	}
	return text, nil
}

// values are the claims as expressions see them, decoded when they are looked at.
func (c tokenClaims) values() *lazy.MapValue {
	values := lazy.NewMapValue(types.NewObjectType("kubernetes.claims"))
	for name, raw := range c {
		values.Append(name, func(*lazy.MapValue) ref.Val {
			var value any
			if err := json.Unmarshal(raw, &value); err != nil {
				return types.NewErr("claim %q failed to unmarshal: %v", name, err)
			}
			return celValue(value)
		})
	}
	return values
}

// celValue is a value of JSON as expressions see it. In the names of fields they
// write characters that are not part of identifiers as __dot__ and the like.
func celValue(value any) ref.Val { return escapable(types.DefaultTypeAdapter.NativeToValue(value)) }

func escapable(v ref.Val) ref.Val {
	switch v := v.(type) {
	case traits.Mapper:
		return escapableMap{v}
	case traits.Lister:
		return escapableList{v}
	}
	return v
}

type escapableMap struct{ traits.Mapper }

// Find implements traits.Mapper.
func (m escapableMap) Find(key ref.Val) (ref.Val, bool) {
	if name, ok := key.(types.String); ok {
		if plain, ok := cel.Unescape(string(name)); ok {
			key = types.String(plain)
		}
	}
	value, ok := m.Mapper.Find(key)
	return escapable(value), ok
}

type escapableList struct{ traits.Lister }

// Get implements traits.Indexer.
func (l escapableList) Get(index ref.Val) ref.Val { return escapable(l.Lister.Get(index)) }

var errNoStrings = errors.New("expression must return a string or a list of strings")

// stringList takes a string or a list of strings; empty ones do not count.
func stringList(v ref.Val) ([]string, error) {
	switch value := v.Value().(type) {
	case string:
		if value == "" {
			return nil, nil
		}
		return []string{value}, nil
	case []any:
		return nonEmpty(len(value), func(n int) any { return value[n] })
	case []string:
		return nonEmpty(len(value), func(n int) any { return value[n] })
	case []ref.Val:
		return nonEmpty(len(value), func(n int) any { return value[n].Value() })
	}
	if v.Type() == types.NullType {
		return nil, nil
	}
	return nil, errNoStrings
}

func nonEmpty(n int, at func(int) any) (list []string, err error) {
	for i := range n {
		text, ok := at(i).(string)
		if !ok {
			return nil, errNoStrings
		}
		if text != "" {
			list = append(list, text)
		}
	}
	return list, nil
}

// stringOrList is a claim that some issuers write as a list, some as a string.
type stringOrList []string

// UnmarshalJSON implements json.Unmarshaler.
func (s *stringOrList) UnmarshalJSON(raw []byte) error {
	var list []string
	if json.Unmarshal(raw, &list) == nil {
		*s = list
		return nil
	}
	var text string
	err := json.Unmarshal(raw, &text)
	*s = []string{text}
	return err
}

// distributed fetches a claim that the token does not hold itself but says where
// it can be had, as a token of its own (OpenID Connect Core 1.0, 5.6.2).
type distributed struct {
	claim  string
	issuer *oidcIssuer

	mu    sync.Mutex                       // protects found
	found map[string]*oidc.IDTokenVerifier // by issuer
}

func (d *distributed) fetch(ctx context.Context, c tokenClaims) error {
	if c.has(d.claim) || !c.has("_claim_names") {
		return nil
	}
	names := map[string]string{}
	if err := c.read("_claim_names", &names); err != nil {
		return fmt.Errorf("oidc: error parsing distributed claim names: %w", err)
	}
	source, ok := names[d.claim]
	if !ok {
		return nil
	}
	var sources map[string]struct {
		URL   string `json:"endpoint"`
		Token string `json:"access_token"`
	}
	if !c.has("_claim_sources") {
		return errors.New("oidc: no claim sources")
	}
	if err := c.read("_claim_sources", &sources); err != nil {
		return fmt.Errorf("oidc: could not parse claim sources: %w", err)
	}
	from, ok := sources[source]
	if !ok {
		return fmt.Errorf("id token _claim_names contained a source %s missing in _claims_sources", source)
	}
	if from.URL == "" {
		return nil // it is there in another form, which nobody supports
	}
	token, err := d.get(ctx, from.URL, from.Token)
	if err != nil {
		return fmt.Errorf("while getting distributed claim %q: %w", d.claim, err)
	}
	value, err := d.verified(ctx, token)
	if err != nil {
		return err
	}
	if !value.has(d.claim) {
		return fmt.Errorf("jwt returned by distributed claim endpoint %q did not contain claim: %v", from.URL, d.claim)
	}
	c[d.claim] = value[d.claim]
	return nil
}

// largestClaim bounds what an endpoint may answer.
const largestClaim = 1 << 20

func (d *distributed) get(ctx context.Context, url, token string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := d.issuer.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode < http.StatusOK || res.StatusCode > http.StatusIMUsed {
		return "", fmt.Errorf("error while getting distributed claim JWT: %v", res.Status)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, largestClaim))
	return string(raw), err
}

// verified checks the token that holds the claim, which may be another issuer's.
func (d *distributed) verified(ctx context.Context, token string) (tokenClaims, error) {
	issuer, err := claimedIssuer(token)
	if err != nil {
		return nil, fmt.Errorf("getting untrusted issuer failed for claim %q: %w", d.claim, err)
	}
	d.mu.Lock()
	verifier := d.found[issuer]
	d.mu.Unlock()
	if verifier == nil {
		if verifier, err = d.issuer.discover(ctx, issuer); err != nil {
			return nil, fmt.Errorf("verifying untrusted issuer %v failed: %w", issuer, err)
		}
		d.mu.Lock()
		d.found[issuer] = verifier
		d.mu.Unlock()
	}
	claims, err := d.issuer.verified(ctx, verifier, token)
	if err != nil {
		return nil, fmt.Errorf("verify distributed claim token: %w", err)
	}
	return claims, nil
}
