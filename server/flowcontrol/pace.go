package flowcontrol

import "sync"

// pace says after how many seconds those who were refused should come back: the
// longer, the more are refused.
type pace struct {
	mu      sync.Mutex // protects the fields below
	refused [longestPace]struct{ second, n int64 }
	last    int64 // second in which somebody was refused
	after   int64 // seconds; 0: one
	raised  int64 // when
}

const longestPace = 32

// refuse counts a refusal, and looks, once a second, at those of the seconds
// before: many of them double the time, few make it shorter.
func (p *pace) refuse(second int64) (after int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = max(p.after, 1)
	if second != p.last {
		p.last = second
		p.adjust(second)
	}
	slot := &p.refused[second%longestPace]
	if slot.second != second {
		slot.second, slot.n = second, 0
	}
	slot.n++
	return p.after
}

func (p *pace) adjust(second int64) {
	n := int64(0)
	for _, r := range p.refused {
		if r.second < second && second-r.second <= p.after {
			n += r.n
		}
	}
	switch {
	case second-p.raised >= p.after && n >= 3*p.after:
		p.after, p.raised = min(2*p.after, longestPace), second
	case n < p.after && p.after > 1:
		p.after--
	}
}
