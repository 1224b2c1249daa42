package auth

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"orrery.dev/server/audit"
)

const (
	// tokenTTL is how long a good token is believed without a new look at the
	// objects it is bound to.
	tokenTTL = 10 * time.Second
	// tokenCacheSize bounds the cache.
	tokenCacheSize = 16 << 10
	// tokenTimeout bounds a check that several requests may be waiting for.
	tokenTimeout = 30 * time.Second
)

// tokenCache remembers who tokens belong to: checking a signature costs more than
// the rest of a small request, and asking a service much more. Requests that come
// with the same token at the same time share one check. Errors are not remembered.
type tokenCache struct {
	methods   []authenticator.Token
	good, bad time.Duration // how long they are remembered; 0: not
	checks    singleflight.Group

	mu    sync.Mutex // protects known
	known map[tokenKey]knownToken
}

type tokenKey [sha256.Size]byte

// knownToken is the outcome of a check.
type knownToken struct {
	response *authenticator.Response
	ok       bool
	notes    map[string]string // audit annotations that the check has made
	until    time.Time
}

func newTokenCache(methods []authenticator.Token, good, bad time.Duration) *tokenCache {
	return &tokenCache{methods: methods, good: good, bad: bad, known: map[tokenKey]knownToken{}}
}

// AuthenticateToken asks each method in turn. A method that does not know a
// token's form says false without an error.
func (c *tokenCache) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	audiences, limited := authenticator.AudiencesFrom(ctx)
	key := keyOf(token, audiences)
	found, ok := c.lookup(key)
	if !ok {
		// The check is not this request's alone, and must not end with it.
		checks := c.checks.DoChan(string(key[:]), func() (any, error) {
			ctx, cancel := context.WithTimeout(context.Background(), tokenTimeout)
			defer cancel()
			if limited {
				ctx = authenticator.WithAudiences(ctx, audiences)
			}
			return c.check(ctx, key, token)
		})
		select {
		case outcome := <-checks:
			if outcome.Err != nil {
				return nil, false, outcome.Err
			}
			found = outcome.Val.(knownToken)
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
	for name, value := range found.notes {
		audit.Annotate(ctx, name, value)
	}
	return found.response, found.ok, nil
}

// keyOf stands for a token and what it is to be good for.
func keyOf(token string, audiences []string) tokenKey {
	h := sha256.New()
	for _, text := range append([]string{token}, audiences...) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(text))))
		h.Write([]byte(text))
	}
	return tokenKey(h.Sum(nil))
}

func (c *tokenCache) lookup(key tokenKey) (knownToken, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.known[key]
	return found, ok && time.Now().Before(found.until)
}

func (c *tokenCache) check(ctx context.Context, key tokenKey, token string) (result knownToken, err error) {
	defer func() { // in a goroutine of its own a panic would end the server
		if cause := recover(); cause != nil {
			err = fmt.Errorf("authentication failed unexpectedly: %v", cause)
		}
	}()
	ctx, notes := audit.WithNotes(ctx)
	now := time.Now()
	var errs []error
	for _, m := range c.methods {
		response, ok, err := m.AuthenticateToken(ctx, token)
		if err != nil {
			errs = append(errs, err)
		}
		if ok {
			result := knownToken{response: response, ok: true, notes: notes.All(), until: now.Add(c.good)}
			c.remember(key, result, now)
			return result, nil
		}
	}
	result = knownToken{until: now.Add(c.bad)}
	if err := errors.Join(errs...); err != nil {
		return result, err
	}
	c.remember(key, result, now)
	return result, nil
}

func (c *tokenCache) remember(key tokenKey, result knownToken, now time.Time) {
	if !now.Before(result.until) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= tokenCacheSize {
		for k, t := range c.known {
			if now.After(t.until) {
				delete(c.known, k)
			}
		}
		if len(c.known) >= tokenCacheSize {
			clear(c.known)
		}
	}
	c.known[key] = result
}
