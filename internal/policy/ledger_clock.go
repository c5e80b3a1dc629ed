package policy

import (
	"container/heap"
	"time"

	"github.com/fenced/fenced/internal/times"
)

// clockHeap orders the targets of a check with a running timeout by their next
// change.
type clockHeap []*targetEntry

func (h clockHeap) Len() int { return len(h) }

func (h clockHeap) Less(i, j int) bool {
	return h[i].report.nextChange().Before(h[j].report.nextChange())
}

func (h clockHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].clock, h[j].clock = int32(i), int32(j)
}

// Push implements heap.Interface.
func (h *clockHeap) Push(x any) {
	e := x.(*targetEntry)
	e.clock = int32(len(*h))
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *clockHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.clock = noClock
	return e
}

// due returns the earliest Due in the subtree at an index, or found if that is
// earlier. It visits only entries whose next change is before the result.
func (h clockHeap) due(at int, found time.Time) time.Time {
	if at >= len(h) || !found.IsZero() && !h[at].report.nextChange().Before(found) {
		return found
	}
	found = times.Sooner(found, h[at].report.Due)
	return h.due(2*at+2, h.due(2*at+1, found))
}

// setClock inserts a target into the heap, moves it, or removes it.
func (c *checkEntry) setClock(e *targetEntry) {
	runs := e.report != nil && !e.report.nextChange().IsZero()
	switch {
	case runs && e.clock == noClock:
		heap.Push(&c.clocks, e)
	case runs:
		heap.Fix(&c.clocks, int(e.clock))
	case e.clock != noClock:
		heap.Remove(&c.clocks, int(e.clock))
	}
}

// wait counts a target that waits without a timeout, or removes it: by is 1 or
// -1.
func (c *checkEntry) wait(t *TargetReport, by int) {
	if t == nil || t.RecheckAfterSeconds == 0 || !t.Due.IsZero() {
		return
	}
	if c.waits == nil {
		c.waits = map[int]int{}
	}
	if c.waits[t.RecheckAfterSeconds] += by; c.waits[t.RecheckAfterSeconds] == 0 {
		delete(c.waits, t.RecheckAfterSeconds)
	}
}

// count returns the counters of the check's targets at an instant.
func (c *checkEntry) count(now time.Time) count {
	n := c.n
	if due := c.clocks.due(0, time.Time{}); !due.IsZero() {
		n.wait(recheck(due, now))
	}
	for seconds := range c.waits {
		n.wait(seconds)
	}
	return n
}

// nextDue is when the passage of time alone changes the check or its targets;
// zero means never.
func (c *checkEntry) nextDue(now time.Time) time.Time {
	if c.recount {
		r := c.report(nil, nil, now)
		c.due, c.recount = r.Due, false
	}
	if len(c.clocks) == 0 {
		return c.due
	}
	return times.Sooner(c.due, c.clocks[0].report.nextChange())
}
