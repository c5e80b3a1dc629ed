package sim

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/test/must"
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

// A password is found as it is and in what JSON makes of bytes, wherever it stands in
// them; what holds none is not taken for one.
func TestPasswordsAreFound(t *testing.T) {
	forms := markers(Plan{Seed: 7}.marker())
	found := func(text string) (found bool) {
		for _, form := range forms {
			found = found || strings.Contains(text, form)
		}
		return found
	}
	w := &World{plan: Plan{Seed: 7}}
	for before := range 7 {
		said := strings.Repeat("b", before) + w.password("n-1").Reveal() + "\n"
		record := must.Do(json.Marshal(map[string][]byte{"node": []byte(said)}))(t)
		assert.True(t, found(said))
		assert.True(t, found(string(record)), "%d bytes before it", before)
		assert.True(t, found(base64.RawURLEncoding.EncodeToString([]byte(said))))
	}
	other := &World{plan: Plan{Seed: 8}}
	assert.False(t, found(other.password("n-1").Reveal()))
	assert.False(t, found(w.password("n-1").String()))
}
