package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/oauth2"
)

// renewalCookie carries a session's refresh token: beside the ID token there may be no
// room for it.
const renewalCookie = "__Host-orrery-renewal"

const (
	renewalTime  = 10 * time.Second // that the issuer may take
	renewalPause = 30 * time.Second // until one that failed is asked again
	// renewalKept is how long a renewal serves those who come with the cookie of before:
	// they came with others, or have missed the answer.
	renewalKept = 15 * time.Minute
)

// renewal is what the cookie carries, sealed, and of which session.
type renewal struct {
	ID    string `json:"i"`
	Token string `json:"t"`
}

// renewals are those of late, by their refresh tokens: most issuers take one only once,
// and a page asks for several things at a time.
type renewals struct {
	mu  sync.Mutex // protects all
	all map[string]func() (session, error)
}

// once renews, unless that has been done, or is being done.
func (r *renewals) once(token string, renew func() (session, error)) (session, error) {
	r.mu.Lock()
	one := r.all[token]
	if one == nil {
		one = sync.OnceValues(func() (session, error) {
			s, err := renew()
			kept := renewalKept
			if err != nil {
				kept = renewalPause
			}
			time.AfterFunc(kept, func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				delete(r.all, token)
			})
			return s, err
		})
		if r.all == nil {
			r.all = map[string]func() (session, error){}
		}
		r.all[token] = one
	}
	r.mu.Unlock()
	return one()
}

// byIssuer is the session of the owner of an issuer's tokens. Its token is renewed when
// a quarter of its life is left, if it can be; else it ends with it.
func (d *Dashboard) byIssuer(ctx context.Context, tokens *oauth2.Token) (session, error) {
	_, s, err := d.byToken(ctx, idToken(tokens))
	s.OIDC = true
	if refresh := tokens.RefreshToken; refresh != "" && len(refresh) <= maxToken && !s.Ends.IsZero() {
		now := d.now()
		s.refresh, s.Renew, s.Ends = refresh, now.Add(s.Ends.Sub(now)*3/4), time.Time{}
	}
	return s, err
}

// current is the request's session, with a token that is good for a while yet. One that
// the issuer does not renew has ended.
func (d *Dashboard) current(w http.ResponseWriter, r *http.Request) (session, error) {
	s, err := d.session(r)
	if err != nil || s.Renew.IsZero() || d.now().Before(s.Renew) {
		return s, err
	}
	next, err := d.renewed(r, s)
	if err == nil {
		return d.give(w, next)
	}
	var refused *oauth2.RetrieveError
	if d.now().Before(s.until()) && !(errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError) {
		return s, nil // the issuer may be back in time
	}
	d.live.end(s)
	return s, fmt.Errorf("the session has ended: the issuer does not renew it: %w", err)
}

// renewed is a session with a fresh token. What is open in its name goes on.
func (d *Dashboard) renewed(r *http.Request, s session) (session, error) {
	var with renewal
	c, err := r.Cookie(renewalCookie)
	if err != nil || d.seal.open(forRenewal, c.Value, &with) != nil || with.ID != s.ID {
		return s, errNoSession
	}
	return d.renewals.once(with.Token, func() (session, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), renewalTime)
		defer cancel()
		config, err := d.config.OIDC.config(ctx, r)
		if err != nil {
			return s, err
		}
		tokens, err := config.TokenSource(d.config.OIDC.context(ctx), &oauth2.Token{RefreshToken: with.Token}).Token()
		if err != nil {
			return s, err
		}
		next, err := d.byIssuer(ctx, tokens)
		if err != nil {
			return s, err
		}
		was, is := claimsOf(s.Token), claimsOf(next.Token)
		if was.Issuer != is.Issuer || was.Subject != is.Subject {
			return s, errors.New("its token is somebody else's")
		}
		next.ID, next.Ends = s.ID, s.Ends
		d.live.goOn(next.ID, next.until())
		return next, nil
	})
}

// giveRenewal sends the cookie beside that of a session which can be renewed.
func (d *Dashboard) giveRenewal(w http.ResponseWriter, s session) error {
	if s.refresh == "" {
		return nil
	}
	value, err := d.seal.close(forRenewal, renewal{s.ID, s.refresh})
	if err == nil {
		http.SetCookie(w, d.cookie(renewalCookie, value, s.Ends.Sub(d.now())))
	}
	return err
}
