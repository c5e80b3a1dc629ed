package policy

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/times"
)

// settingWindows pauses a check inside a maintenance window. due is the next
// instant at which one of its windows begins or ends.
func (c *Check) settingWindows(now time.Time) setting {
	st := setting{state: StateActive}
	if now.IsZero() {
		return st // evaluated independent of the time
	}
	now = now.UTC()
	for i := range c.Windows {
		w := &c.Windows[i]
		began, change := w.bounds(now)
		st.due = times.Sooner(st.due, change)
		if !began.IsZero() && st.state == StateActive {
			st.state = StatePaused
			st.message = fmt.Sprintf("in the maintenance window %q of %s that began at %s", w.Text, w.Duration, stamp(began))
		}
	}
	return st
}

// bounds returns when the window that contains now began, zero if there is none,
// and the next instant at which that changes, zero if it never does.
func (w *Window) bounds(now time.Time) (began, change time.Time) {
	// The first start whose window is still open. If windows overlap, it is the one
	// that closes first.
	start := w.Starts.Next(now.Add(-w.Duration))
	switch {
	case start.IsZero(): // no start within the years that the schedule looks ahead
		return began, change
	case start.After(now):
		return began, start
	}
	return start, start.Add(w.Duration)
}
