package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
)

const (
	// tokenTTL is how long a good token is believed without a new look at the
	// objects it is bound to.
	tokenTTL = 10 * time.Second
	// tokenCacheSize bounds the cache.
	tokenCacheSize = 16 << 10
)

// tokenCache remembers who good tokens belong to: checking a signature costs
// more than the rest of a small request. Refusals are not remembered.
type tokenCache struct {
	methods []authenticator.Token

	mu    sync.Mutex // protects known
	known map[[sha256.Size]byte]knownToken
}

type knownToken struct {
	response *authenticator.Response
	until    time.Time
}

func newTokenCache(methods []authenticator.Token) *tokenCache {
	return &tokenCache{methods: methods, known: map[[sha256.Size]byte]knownToken{}}
}

// AuthenticateToken asks each method in turn. A method that does not know a
// token's form says false without an error.
func (c *tokenCache) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	audiences, _ := authenticator.AudiencesFrom(ctx)
	key := sha256.Sum256([]byte(token + "\x00" + strings.Join(audiences, "\x00")))
	now := time.Now()
	c.mu.Lock()
	found, ok := c.known[key]
	c.mu.Unlock()
	if ok && now.Before(found.until) {
		return found.response, true, nil
	}
	var errs []error
	for _, m := range c.methods {
		response, ok, err := m.AuthenticateToken(ctx, token)
		if err != nil {
			errs = append(errs, err)
		}
		if ok {
			c.remember(key, response, now)
			return response, true, nil
		}
	}
	return nil, false, errors.Join(errs...)
}

func (c *tokenCache) remember(key [sha256.Size]byte, response *authenticator.Response, now time.Time) {
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
	c.known[key] = knownToken{response, now.Add(tokenTTL)}
}
