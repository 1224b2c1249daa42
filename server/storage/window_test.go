package storage

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWindowBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWindow(4*minWindow, time.Minute)
		rev := int64(0)
		add := func(n int) {
			for range n {
				rev++
				w.append(&change{rev: rev, item: &Item{Revision: rev}})
			}
		}
		held := func(want int) {
			t.Helper()
			if got := int(w.next - w.first); got != want {
				t.Errorf("%d changes held, want %d", got, want)
			}
			for n := w.first; n < w.next; n++ {
				if want := rev - (w.next - 1 - n); w.at(n).rev != want {
					t.Fatalf("number %d is revision %d, want %d", n, w.at(n).rev, want)
				}
			}
			if pos, ok := w.seek(w.start); !ok || pos != w.first {
				t.Errorf("the start is at %d %v, want %d", pos, ok, w.first)
			}
			if _, ok := w.seek(w.start - 1); ok {
				t.Error("there is something before the start")
			}
		}
		add(3 * minWindow)
		held(3 * minWindow) // it grows for young changes
		add(3 * minWindow)
		held(4 * minWindow) // up to its limit
		time.Sleep(2 * time.Minute)
		add(1)
		held(minWindow) // and shrinks when they are old
		add(minWindow)
		held(minWindow + 1) // the last old one goes when the first new one is still young
	})
}
