// Package dice is the random source of all tests. Each run of go test uses the same
// seed. With FENCED_SOAK=1, as make soak sets it, each run uses a fresh seed and logs it;
// FENCED_SEED=N repeats it.
package dice

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
)

const (
	soakEnv = "FENCED_SOAK"
	seedEnv = "FENCED_SEED"
	// fixed is the seed of go test without FENCED_SOAK.
	fixed = 1
)

// Soak says whether tests use fresh seeds and their long forms.
func Soak() bool { return os.Getenv(soakEnv) != "" }

// OnlyInSoak skips a test outside a soak: one that takes long, of something that CI shows
// in a cheaper form.
func OnlyInSoak(t testing.TB) {
	t.Helper()
	if !Soak() {
		t.Skipf("it takes long; %s=1 runs it, and so does make soak", soakEnv)
	}
}

// Seed is the seed of this process: FENCED_SEED, else a fresh one in a soak, else
// always the same.
var Seed = sync.OnceValue(func() uint64 {
	seed, err := choose(os.Getenv(seedEnv), Soak())
	if err != nil {
		panic(err)
	}
	return seed
})

func choose(given string, soak bool) (uint64, error) {
	switch {
	case given != "":
		seed, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", seedEnv, err)
		}
		return seed, nil
	case soak:
		return Fresh(), nil
	}
	return fixed, nil
}

// Fresh is a seed that differs each time. No test may start from it.
func Fresh() uint64 { return 1 + rand.Uint64N(1<<48) }

// New is the random source of one test, or of one goroutine of it, which who names. What
// it yields depends neither on which other tests run nor on the order of goroutines. It
// is not safe for concurrent use.
func New(t testing.TB, who ...any) *rand.Rand {
	t.Helper()
	if len(who) == 0 {
		Say(t)
	}
	return rand.New(rand.NewPCG(Seed(), hash(fmt.Sprint(t.Name(), who))))
}

// Say logs the seed, and in a soak how to repeat it.
func Say(t testing.TB) {
	t.Helper()
	if Soak() {
		t.Logf("seed %d; again with %s=1 %s=%d go test -run '^%s$'", Seed(), soakEnv, seedEnv, Seed(), t.Name())
		return
	}
	t.Logf("seed %d; a fresh one with %s=1", Seed(), soakEnv)
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum64()
}
