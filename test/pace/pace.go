// Package pace judges how long something takes on a machine that others keep busy.
package pace

import (
	"bufio"
	"flag"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Hang is longer than a busy machine delays anything: what takes this long hangs.
const Hang = time.Minute

// Tries is for how long a try that came too late is repeated.
const Tries = 5 * Hang

// Once asserts that do can end within the limit. It repeats the attempt until one ends in
// time, for as long as Tries: one try in time suffices. A busy machine makes some tries
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
		if time.Since(begun) > Tries {
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

// Before looks at something before it changes, which it does by itself after d. It repeats
// the look with twice the d until one ends before that: what the look on a busy machine has
// seen after d says nothing. look returns the assertions about what it has seen.
func Before(t testing.TB, d time.Duration, look func(d time.Duration) (judge func())) {
	t.Helper()
	for ; ; d *= 2 {
		at := time.Now()
		judge := look(d)
		if time.Since(at) < d {
			judge()
			return
		}
		if d > Tries {
			t.Errorf("a look takes longer than %s", d)
			return
		}
	}
}

// Until repeats try until it is true, for as long as Tries. It is for what a delay of the
// machine can spoil, but not each time: a defect spoils all tries.
func Until(t testing.TB, what string, try func() bool) {
	t.Helper()
	for begun := time.Now(); !try(); {
		if time.Since(begun) > Tries {
			t.Errorf("%s: not in any try for %s", what, Tries)
			return
		}
		if t.Failed() {
			return
		}
	}
}

// Fit is how many of what needs so many bytes of memory the free memory holds, at least one. Where nobody says how much is
// free it is no limit.
func Fit(need int) int {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return math.MaxInt
	}
	defer func() { _ = f.Close() }() // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "MemAvailable:" {
			if kB, err := strconv.Atoi(fields[1]); err == nil {
				return max(1, kB*1024/need)
			}
		}
	}
	return math.MaxInt
}

// Together lets n tests of a package run at once, whatever the number of processors,
// unless the command line says how many: for tests that wait far more than they
// compute. TestMain calls it.
func Together(n int) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if chosen {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // the testing package has had this flag for ever
	}
}
