// Package suspend tells how long this host was suspended. Monotonic time, by which
// timers run and ages are taken, stands still then, while the rest of the world goes on.
package suspend

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// together is how far apart the clocks may be read to be taken for one moment; the
	// kernel may let another program run in between.
	together = time.Millisecond
	tries    = 100
)

// Total is how long this host was suspended since it was booted. A virtual machine that
// its hypervisor stops does not know of it: its clocks all stand still.
func Total() time.Duration {
	var slept time.Duration
	for range tries {
		before := read(unix.CLOCK_MONOTONIC)
		slept = read(unix.CLOCK_BOOTTIME) - before
		if read(unix.CLOCK_MONOTONIC)-before <= together {
			break
		}
	}
	return slept
}

// read is the time that a clock shows. Linux has had both for longer than Go needs.
func read(clock int32) time.Duration {
	var at unix.Timespec
	if err := unix.ClockGettime(clock, &at); err != nil {
		panic("suspend: read a clock that each Linux has: " + err.Error())
	}
	return time.Duration(at.Nano())
}
