package sim

import (
	"flag"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "search the world of each mutant anew, and write them to testdata/mutants.txt")

// mutantWorlds knows for each mutant the first world in which it is noticed. To play that world alone takes a third of
// the time of a search. If the mutant is no longer noticed there, because the dice fall otherwise, all worlds are searched.
type mutantWorlds struct {
	mu   sync.Mutex
	seed map[string]uint64
}

const mutantWorldsFile = "mutants.txt"

func readWorlds(t *testing.T) *mutantWorlds {
	t.Helper()
	w := &mutantWorlds{seed: map[string]uint64{}}
	path := filepath.Join("testdata", mutantWorldsFile)
	if *update {
		t.Cleanup(func() { w.write(t, path) })
		return w
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		var seed uint64
		_, err := fmt.Sscan(line, &seed)
		require.NoError(t, err, line)
		_, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		w.seed[name] = seed
	}
	return w
}

// of gives the seeds of the worlds to play, the likeliest first.
func (w *mutantWorlds) of(rule, name string) iter.Seq[uint64] {
	w.mu.Lock()
	known := w.seed[rule+" "+name]
	w.mu.Unlock()
	return func(yield func(uint64) bool) {
		if known != 0 && !yield(known) {
			return
		}
		for seed := uint64(1); seed <= mutantSeeds; seed++ {
			if seed != known && !yield(seed) {
				return
			}
		}
	}
}

func (w *mutantWorlds) found(rule, name string, seed uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seed[rule+" "+name] = seed
}

func (w *mutantWorlds) write(t *testing.T, path string) {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(w.seed)) {
		fmt.Fprintf(&text, "%d %s\n", w.seed[name], name)
	}
	require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
}
