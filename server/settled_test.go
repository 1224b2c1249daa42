package server

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSettledOnceRolesAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known atomic.Bool
		s := &Server{Config: Config{Synced: func(context.Context) error {
			if !known.Load() {
				return errors.New("not read yet")
			}
			return nil
		}}}
		s.health = newHealth(s)
		settled := make(chan error, 1)
		go func() { settled <- s.Settled(t.Context()) }()
		for _, next := range []func(){
			func() { s.health.finished(nil, definitionHooks...) },
			func() { s.health.finished(nil, serviceHooks...) },
			func() { known.Store(true) },
		} {
			time.Sleep(time.Second) // of the bubble's clock
			select {
			case <-settled:
				t.Fatal("settled too early")
			default:
			}
			next()
		}
		if err := <-settled; err != nil {
			t.Error(err)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		known.Store(false)
		if s.Settled(gone) == nil {
			t.Error("settled for a client that has gone")
		}
	})
}
