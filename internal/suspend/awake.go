package suspend

import (
	"context"
	"time"
)

const (
	// nap is the longest suspend that is none: claims and proofs leave that much.
	nap   = time.Second
	check = time.Second // how often it is asked whether there was a suspend
)

// Awake is a time in which this host was not suspended. The monotonic clock, by which
// proofs, claims and views grow old, stands still in a suspend: none of them outlasts
// one. // I1, I16, I19
type Awake struct {
	total  func() time.Duration
	before time.Duration
}

// StayAwake begins such a time. total is how long the host was suspended since it was
// booted, as Total.
func StayAwake(total func() time.Duration) Awake { return Awake{total, total()} }

// Over says that it is over, and for how long the host was suspended; "" while it is not.
func (a Awake) Over() string {
	if by := a.total() - a.before; by > nap {
		return "this host was suspended for " + by.Round(time.Second).String()
	}
	return ""
}

// Wait returns when it is over, and says so, or "" when ctx ends.
func (a Awake) Wait(ctx context.Context) string {
	tick := time.NewTicker(check)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-tick.C:
		}
		if why := a.Over(); why != "" {
			return why
		}
	}
}
