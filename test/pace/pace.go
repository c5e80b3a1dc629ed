// Package pace judges how long something takes on a machine that others keep busy.
package pace

import (
	"testing"
	"time"
)

// Hang is longer than a busy machine delays anything: what takes this long hangs.
const Hang = time.Minute

// Once asserts that do can end within the limit. It repeats the attempt until one ends in
// time, for as long as Hang: one try in time suffices. A busy machine makes some tries
// late, a defect makes all of them late.
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

// Lasts asserts that no try takes less than least, and, as Once does, that one ends
// within least and more.
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
