package cmd

import (
	"fmt"
	"io"
	"time"
)

// progress tells what is being done and how long it took, a line per step.
type progress struct {
	out   io.Writer
	begin time.Time
}

func newProgress(out io.Writer) *progress { return &progress{out: out, begin: time.Now()} }

// step runs do. A step that takes longer says so every ten seconds.
func (p *progress) step(what string, do func() error) error {
	began := time.Now()
	done := make(chan error, 1)
	go func() { done <- do() }()
	for tick := time.NewTicker(10 * time.Second); ; {
		select {
		case err := <-done:
			tick.Stop()
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "%6.1fs  %-26s %4.1fs\n", time.Since(p.begin).Seconds(), what, time.Since(began).Seconds())
			return nil
		case <-tick.C:
			fmt.Fprintf(p.out, "%6.1fs  waiting for %s\n", time.Since(p.begin).Seconds(), what)
		}
	}
}
