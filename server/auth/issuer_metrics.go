package auth

import "github.com/prometheus/client_golang/prometheus"

// tokenUses counts the uses of tokens of service accounts, under upstream's names.
type tokenUses struct {
	valid, stale                    prometheus.Counter // bound to a time
	legacy, auto, manual, autoEnded prometheus.Counter // that live in Secrets
}

func newTokenUses() tokenUses {
	uses := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "serviceaccount_" + name, Help: help})
	}
	return tokenUses{
		valid:     uses("valid_tokens_total", "Uses of tokens in their time."),
		stale:     uses("stale_tokens_total", "Uses of tokens that should have been renewed."),
		legacy:    uses("legacy_tokens_total", "Uses of tokens that live in Secrets."),
		auto:      uses("legacy_auto_token_uses_total", "Uses of tokens in Secrets that a controller made."),
		manual:    uses("legacy_manual_token_uses_total", "Uses of tokens in Secrets that somebody made."),
		autoEnded: uses("invalid_legacy_auto_token_uses_total", "Uses of tokens in Secrets that were marked as invalid."),
	}
}

// Collectors tell how tokens are used.
func (i *Issuer) Collectors() []prometheus.Collector {
	u := i.uses
	return []prometheus.Collector{u.valid, u.stale, u.legacy, u.auto, u.manual, u.autoEnded}
}
