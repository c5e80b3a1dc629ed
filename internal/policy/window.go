package policy

import (
	"fmt"
	"time"
)

// settingWindows: inside a maintenance window a check is paused. Its due is the
// next instant at which any of its windows begins or ends.
func (c *Check) settingWindows(now time.Time) setting {
	st := setting{state: StateActive}
	if now.IsZero() {
		return st // asked about what the check says, at no particular time
	}
	now = now.UTC()
	for i := range c.Windows {
		w := &c.Windows[i]
		began, edge := w.around(now)
		st.due = sooner(st.due, edge)
		if !began.IsZero() && st.state == StateActive {
			st.state = StatePaused
			st.message = fmt.Sprintf("in the maintenance window %q of %s that began at %s", w.Text, w.Duration, stamp(began))
		}
	}
	return st
}

// around says when the window began that now is in, zero if it is in none, and
// the next instant at which that changes, zero if it never does.
func (w *Window) around(now time.Time) (began, edge time.Time) {
	// The first start that is late enough for its window to be still open: with
	// windows that overlap, the one that closes first.
	start := w.Starts.Next(now.Add(-w.Duration))
	switch {
	case start.IsZero(): // no start within the years that the schedule looks ahead
		return began, edge
	case start.After(now):
		return began, start
	}
	return start, start.Add(w.Duration)
}
