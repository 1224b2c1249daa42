package tui

import (
	"context"
	"time"

	"github.com/gdamore/tcell/v2"
)

// frameSlot is the shortest time between two frames that no key asked for.
const frameSlot = 66 * time.Millisecond

// keyFrame is the key event by which the painter asks for a frame. tview draws
// after each key event, and, unlike its QueueUpdate, an event can be left
// behind when the application ends.
const keyFrame = tcell.Key(20000)

// dirty says that something on screen may have changed. It never blocks and may
// be called from anywhere.
func (a *app) dirty() {
	select {
	case a.stale <- struct{}{}:
	default:
	}
}

// post runs f soon on the goroutine that owns the panes.
func (a *app) post(f func()) {
	a.mu.Lock()
	a.posts = append(a.posts, f)
	a.mu.Unlock()
	a.dirty()
}

// paint is the one goroutine that asks for frames: when something is dirty, at
// most once per slot, and every second for the ages.
func (a *app) paint(ctx context.Context) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	slot := time.NewTimer(0)
	defer slot.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.stale:
		case <-second.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-slot.C:
		}
		slot.Reset(a.slot)
		if a.suspended.Load() {
			continue // the second's tick, or resuming, will draw
		}
		a.tv.QueueEvent(tcell.NewEventKey(keyFrame, 0, tcell.ModNone))
		select {
		case <-ctx.Done():
			return
		case <-a.painted:
		case <-time.After(time.Second): // a paste swallowed the event
		}
	}
}

// frame is what happens before each draw that the painter asked for.
func (a *app) frame() {
	a.mu.Lock()
	posts := a.posts
	a.posts = nil
	a.mu.Unlock()
	for _, f := range posts {
		f()
	}
	a.refresh(a.now())
	select {
	case a.painted <- struct{}{}:
	default:
	}
}
