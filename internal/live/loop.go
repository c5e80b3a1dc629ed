package live

import (
	"context"
	"time"
)

// Signal wakes whoever receives from a channel with a buffer of one. It never waits: one signal that is pending is enough.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Every calls do after each d, and at each signal of wake, until ctx ends. A nil wake gives none.
func Every(ctx context.Context, d time.Duration, wake <-chan struct{}, do func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-tick.C:
		}
		do()
	}
}

// Repeat calls do at once, at each signal of wake, and when do has said that it is due again, until ctx ends. A zero time
// is only at the next signal.
func Repeat(ctx context.Context, wake <-chan struct{}, do func() (due time.Time)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
		if due := do(); !due.IsZero() {
			timer.Reset(max(time.Millisecond, time.Until(due)))
		}
	}
}
