package sim

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

// number reads a number from the environment.
func number(t *testing.T, key string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(key)
	if text == "" {
		return otherwise
	}
	v, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, key)
	return v
}

// TestSimulation plays SIM_SEEDS worlds, the first of them SIM_FIRST, and wants no
// audit to find anything.
func TestSimulation(t *testing.T) {
	first, n := number(t, "SIM_FIRST", 1), number(t, "SIM_SEEDS", 20)
	var mu sync.Mutex
	var all Outcome
	began := time.Now()
	t.Run("seed", func(t *testing.T) {
		for seed := first; seed < first+n; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				out, found := Play(t, NewPlan(seed), Defect{})
				for _, v := range found {
					t.Errorf("%s", v.Text)
				}
				mu.Lock()
				defer mu.Unlock()
				all.Add(out)
			})
		}
	})
	t.Logf("%.1f virtual hours per second\n%s", all.Virtual.Hours()/time.Since(began).Seconds(), all.Table())
}
