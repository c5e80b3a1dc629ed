// Package pace judges how long something takes on a machine that others keep busy.
package pace

import (
	"testing"
	"time"
)

// Hang is longer than a busy machine delays anything: what takes this long hangs.
const Hang = time.Minute

// Once asserts that do can be done within a limit: it repeats do until it was, for as
// long as Hang. A busy machine makes some of the tries late, a defect makes all late.
func Once(t testing.TB, limit time.Duration, do func()) {
	t.Helper()
	var best time.Duration
	for tries, begun := 1, time.Now(); ; tries++ {
		at := time.Now()
		do()
		took := time.Since(at)
		if took < limit || t.Failed() {
			return
		}
		if best == 0 || took < best {
			best = took
		}
		if time.Since(begun) > Hang {
			t.Errorf("it took %s at best, in %d tries; the limit is %s", best, tries, limit)
			return
		}
	}
}

// Lasts is Once of something that takes a while: it never takes less, and can be done
// with little more.
func Lasts(t testing.TB, least, more time.Duration, do func()) {
	t.Helper()
	Once(t, least+more, func() {
		at := time.Now()
		do()
		if took := time.Since(at); took < least {
			t.Errorf("it took %s, less than %s", took, least)
		}
	})
}
