package nodeagent

import (
	"context"
	"sync"
)

// background runs what turns out to be needed only while the agent is at work,
// and for as long as the agent runs: watches of objects that pods refer to.
type background struct {
	mu    sync.Mutex // protects queue
	queue []func(context.Context)
	awake chan struct{} // one slot
}

func newBackground() *background { return &background{awake: make(chan struct{}, 1)} }

// start has f run soon; it returns at once.
func (b *background) start(f func(context.Context)) {
	b.mu.Lock()
	b.queue = append(b.queue, f)
	b.mu.Unlock()
	select {
	case b.awake <- struct{}{}:
	default:
	}
}

// run starts what comes until ctx ends, and waits for all of it.
func (b *background) run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.awake:
		}
		b.mu.Lock()
		queue := b.queue
		b.queue = nil
		b.mu.Unlock()
		for _, f := range queue {
			wg.Go(func() { f(ctx) })
		}
	}
}
