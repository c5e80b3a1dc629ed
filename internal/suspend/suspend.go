// Package suspend measures how long this host was suspended. Meanwhile monotonic
// time, which timers and ages use, stands still.
package suspend

import (
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
