// Package suspend measures how long this host was suspended. In a suspend monotonic
// time, by which timers run and proofs, claims and views grow old, stands still.
package suspend

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sameMoment is the maximum time between two clock readings that count as
	// simultaneous; the kernel may run another program in between.
	sameMoment = time.Millisecond
	tries      = 100
)

// Total is how long this host was suspended since boot. A virtual machine does
// not notice when its hypervisor stops it: all of its clocks stop.
func Total() time.Duration {
	var slept time.Duration
	for range tries {
		before := read(unix.CLOCK_MONOTONIC)
		slept = read(unix.CLOCK_BOOTTIME) - before
		if read(unix.CLOCK_MONOTONIC)-before <= sameMoment {
			break
		}
	}
	return slept
}

// read returns the time of a clock. Linux has had both clocks for longer than Go
// requires.
func read(clock int32) time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(clock, &at); err != nil {
		panic("suspend: read a clock that each Linux has: " + err.Error())
	}
	return time.Duration(at.Nano())
}

const (
	// nap is the longest suspend that is none: claims and proofs leave that much.
	nap   = time.Second
	check = time.Second // how often it is asked whether there was a suspend
)

// Awake is a time in which this host was not suspended. No proof, claim or view outlasts
// it. // I1, I16, I19
type Awake struct {
	total  func() time.Duration
	before time.Duration
}

// StayAwake begins such a time. total is Total, except in tests.
func StayAwake(total func() time.Duration) Awake { return Awake{total, total()} }

// Over returns why the time is over: for how long the host was suspended. It is "" while the time lasts.
func (a Awake) Over() string {
	if by := a.total() - a.before; by > nap {
		return "this host was suspended for " + by.Round(time.Second).String()
	}
	return ""
}

// Wait returns what Over says as soon as the time is over, or "" when ctx ends.
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
