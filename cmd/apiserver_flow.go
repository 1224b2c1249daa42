package cmd

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"orrery.dev/server"
)

// flowFlags say how many requests are served at a time, how they are chosen, and
// how long they may take.
type flowFlags struct {
	fair          bool
	reads, writes int
	timeout       time.Duration
	leastWatch    int // seconds
}

func (o *flowFlags) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.fair, "enable-priority-and-fairness", true, "share the server out among its clients, by the cluster's FlowSchemas")
	f.IntVar(&o.reads, "max-requests-inflight", 400, "requests that are served at a time, together with the next flag; without priority and fairness those that only read (0: no limit)")
	f.IntVar(&o.writes, "max-mutating-requests-inflight", 200, "see the flag before; without priority and fairness, requests that do not only read (0: no limit)")
	f.DurationVar(&o.timeout, "request-timeout", time.Minute, "how long a request may take that is not long-running, unless it says so itself")
	f.IntVar(&o.leastWatch, "min-request-timeout", 1800, "seconds that a watch lasts at least, unless it says so itself; up to twice as long by chance")
}

// apply checks the flags and puts them into the server's configuration.
func (o *flowFlags) apply(c *server.Config) error {
	switch {
	case o.reads < 0:
		return errors.New("--max-requests-inflight can not be negative value")
	case o.writes < 0:
		return errors.New("--max-mutating-requests-inflight can not be negative value")
	case o.timeout < 0:
		return errors.New("--request-timeout can not be negative value")
	case o.leastWatch < 0:
		return errors.New("--min-request-timeout can not be negative value")
	case o.fair && o.reads+o.writes == 0:
		return fmt.Errorf("invalid configuration: MaxRequestsInFlight=%d and MaxMutatingRequestsInFlight=%d; they must add up to something positive", o.reads, o.writes)
	}
	unlimited := func(n int) int {
		if n == 0 {
			return -1
		}
		return n
	}
	c.RequestTimeout, c.LeastWatch = o.timeout, time.Duration(o.leastWatch)*time.Second
	c.PlainLimits, c.MaxReads, c.MaxWrites = !o.fair, unlimited(o.reads), unlimited(o.writes)
	return nil
}
