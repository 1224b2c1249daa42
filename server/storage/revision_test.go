package storage

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A slow etcd is waited for as long as a reader has time, and no longer.
func TestRevisionIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRevisionReader(func(ctx context.Context) (int64, error) {
			select {
			case <-time.After(30 * time.Second):
				return 7, nil
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		})
		short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		given := make(chan error)
		go func() { // who asks first, and goes before there is an answer
			_, err := r.read(short)
			given <- err
		}()
		synctest.Wait()
		long, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		rev, err := r.read(long)
		if rev != 7 || err != nil {
			t.Errorf("the patient reader got %d, %v", rev, err)
		}
		if err := <-given; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the other got %v", err)
		}
	})
}

// A question that is never answered ends with those who wait for it, and does not hold
// up those that come after.
func TestRevisionOfLostQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		lost := make(chan struct{})
		r := newRevisionReader(func(ctx context.Context) (int64, error) {
			if asked++; asked > 1 {
				return 8, nil
			}
			<-ctx.Done()
			close(lost)
			return 0, ctx.Err()
		})
		ctx, leave := context.WithCancel(t.Context())
		first := make(chan error)
		go func() {
			_, err := r.read(ctx)
			first <- err
		}()
		synctest.Wait()
		began := time.Now()
		rev, err := r.read(t.Context())
		if rev != 8 || err != nil || time.Since(began) > askPatience {
			t.Errorf("the second question: %d, %v after %v", rev, err, time.Since(began))
		}
		leave()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("the first got %v", err)
		}
		<-lost
	})
}
