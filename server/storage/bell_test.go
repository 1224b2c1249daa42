package storage

import (
	"testing"
	"testing/synctest"
	"time"
)

// A few listeners are woken by each ring, many once for those in quick succession.
func TestCrowdBell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for listeners, late := range map[int]time.Duration{0: 0, fewest - 1: 0, 500: 10 * time.Millisecond, 1_000_000: most} {
			var b crowdBell
			woken := func() bool {
				select {
				case <-b.listen():
					return true
				default:
					return false
				}
			}
			for range 3 { // each after a quiet time
				rung := b.listen()
				b.ring(listeners)
				select {
				case <-rung:
				default:
					t.Errorf("%d listeners wait for the first ring", listeners)
				}
				rung = b.listen()
				begin := time.Now()
				b.ring(listeners)
				b.ring(listeners)
				<-rung
				if waited := time.Since(begin); waited != late {
					t.Errorf("%d listeners waited %s for the second ring, want %s", listeners, waited, late)
				}
				if woken() {
					t.Errorf("%d listeners were woken twice", listeners)
				}
				time.Sleep(most)
			}
		}
	})
}
