package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"orrery.dev/server"
)

// flowFlags say how many requests are served at a time, and how they are chosen.
type flowFlags struct {
	fair          bool
	reads, writes int
}

func (o *flowFlags) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.fair, "enable-priority-and-fairness", true, "share the server out among its clients, by the cluster's FlowSchemas")
	f.IntVar(&o.reads, "max-requests-inflight", 400, "requests that are served at a time, together with the next flag; without priority and fairness those that only read (0: no limit)")
	f.IntVar(&o.writes, "max-mutating-requests-inflight", 200, "see the flag before; without priority and fairness, requests that do not only read (0: no limit)")
}

// apply checks the flags and puts them into the server's configuration.
func (o *flowFlags) apply(c *server.Config) error {
	switch {
	case o.reads < 0:
		return errors.New("--max-requests-inflight can not be negative value")
	case o.writes < 0:
		return errors.New("--max-mutating-requests-inflight can not be negative value")
	case o.fair && o.reads+o.writes == 0:
		return fmt.Errorf("invalid configuration: MaxRequestsInFlight=%d and MaxMutatingRequestsInFlight=%d; they must add up to something positive", o.reads, o.writes)
	}
	unlimited := func(n int) int {
		if n == 0 {
			return -1
		}
		return n
	}
	c.PlainLimits, c.MaxReads, c.MaxWrites = !o.fair, unlimited(o.reads), unlimited(o.writes)
	return nil
}
