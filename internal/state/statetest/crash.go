package statetest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/dice"
	"github.com/fenced/fenced/test/must"
)

// writerEnv tells the second process which store to write to.
const writerEnv = "STATETEST_WRITER_PATH"

const crashKeys = 4

// writeUntilKilled puts and deletes records without end. After each success it prints
// "key version data" or "key 0 -".
func writeUntilKilled(t *testing.T, e Engine, path string) {
	s := must.Do(e.Open(path))(t)
	for i := 0; ; i++ {
		key := fmt.Sprintf("k%d", i%crashKeys)
		old, err := s.Get(t.Context(), state.KindRun, key)
		if err == nil && i%(3*crashKeys) < crashKeys {
			require.NoError(t, s.Delete(t.Context(), state.KindRun, key, old.Version))
			fmt.Printf("%s 0 -\n", key)
			continue
		}
		data := fmt.Sprintf("data-%d", i)
		v := must.Do(s.Put(t.Context(), state.Record{Kind: state.KindRun, Key: key, Version: old.Version, Data: []byte(data)}))(t)
		fmt.Printf("%s %d %s\n", key, v, data)
	}
}

// crash repeatedly kills a writer of one store with -9. Afterwards the store has every
// acknowledged write. It has the write that was under way completely or not at all. This
// tests a crash of the process, not a crash of the machine.
func crash(t *testing.T, e Engine) {
	path := e.NewPath(t)
	acked := map[string]string{} // key -> "version data" of the last acknowledgement
	rounds, random := 8, dice.New(t)
	if e.Soak {
		rounds = 100
	}
	for round := range rounds {
		n := 1 + random.IntN(60)
		last := killWriter(t, path, n, acked)
		s, err := e.Open(path)
		require.NoError(t, err, "round %d: open after the kill", round)
		found := contents(t, s)
		require.NoError(t, s.Close())
		for key, want := range acked {
			if found[key] == want {
				continue
			}
			// Only the write after the last acknowledgement may be there without one.
			require.Equal(t, nextKey(last), key, "round %d, after %d writes: %s holds %q, acknowledged was %q",
				round, n, key, found[key], want)
			acked[key] = found[key]
		}
		for key := range found {
			if _, ok := acked[key]; !ok {
				require.Equal(t, nextKey(last), key, "round %d: %s was never written", round, key)
				acked[key] = found[key]
			}
		}
	}
}

// killWriter runs a writer until it has acknowledged n writes, and kills it. It records the
// acknowledged writes in acked and returns the last key.
func killWriter(t *testing.T, path string, n int, acked map[string]string) (last string) {
	seen := runUntilKilled(t, path, n, func(line string) {
		key, rest, ok := strings.Cut(line, " ")
		require.True(t, ok && strings.HasPrefix(key, "k"), "the writer said %q", line)
		if rest == "0 -" {
			rest = ""
		}
		acked[key], last = rest, key
	})
	require.NotZero(t, seen, "the writer wrote nothing")
	return last
}

// runUntilKilled runs the calling test again in another process, which writes to the store at the
// path, and gives each of its lines to acknowledged. After n lines it kills the process with -9; more
// lines may come. It returns how many came.
func runUntilKilled(t *testing.T, path string, n int, acknowledged func(line string), env ...string) (seen int) {
	root, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command(os.Args[0], "-test.run=^"+regexp.QuoteMeta(root)+"$", "-test.timeout=60s")
	cmd.Env = append(append(os.Environ(), writerEnv+"="+path), env...)
	out := must.Do(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() }) // too late is harmless
	defer watchdog.Stop()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		acknowledged(lines.Text())
		if seen++; seen == n {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	assert.Error(t, cmd.Wait(), "the writer was to be killed")
	return seen
}

func contents(t *testing.T, s state.Store) map[string]string {
	list := must.Do(s.List(t.Context(), state.KindRun))(t)
	found := map[string]string{}
	for _, r := range list {
		found[r.Key] = fmt.Sprintf("%d %s", r.Version, r.Data)
	}
	return found
}

// nextKey returns the key that the writer uses after key.
func nextKey(key string) string {
	var i int
	if _, err := fmt.Sscanf(key, "k%d", &i); err != nil {
		panic("statetest: not a key of the writer: " + key)
	}
	return fmt.Sprintf("k%d", (i+1)%crashKeys)
}

// manyEnv tells the second process that many goroutines write at the same time.
const manyEnv = "STATETEST_MANY_WRITERS"

const writers = 16

// manyWriteUntilKilled has many goroutines put records without end, each a record of its own.
// After each success it prints "key count".
func manyWriteUntilKilled(t *testing.T, e Engine, path string) {
	s := must.Do(e.Open(path))(t)
	var g sync.WaitGroup
	for i := range writers {
		g.Go(func() {
			key := fmt.Sprintf("w%d", i)
			old, err := s.Get(t.Context(), state.KindRun, key)
			if err != nil {
				assert.ErrorIs(t, err, state.ErrNotFound)
			}
			count := countOf(t, old.Data)
			for version := old.Version; err == nil || errors.Is(err, state.ErrNotFound); count++ {
				version, err = s.Put(t.Context(), state.Record{Kind: state.KindRun, Key: key, Version: version, Data: fmt.Append(nil, count+1)})
				if assert.NoError(t, err) {
					fmt.Printf("%s %d\n", key, count+1)
				}
			}
		})
	}
	g.Wait()
}

func countOf(t *testing.T, data []byte) (n int) {
	if len(data) > 0 {
		_, err := fmt.Sscan(string(data), &n)
		assert.NoError(t, err)
	}
	return n
}

// crashOfMany kills a process in which many write to one store, so that their records become
// durable together. Afterwards each acknowledged write is there, and of each writer at most the
// one more that was under way.
func crashOfMany(t *testing.T, e Engine) {
	path := e.NewPath(t)
	acked := map[string]int{}
	rounds, random := 5, dice.New(t)
	if e.Soak {
		rounds = 100
	}
	for round := range rounds {
		n := 1 + random.IntN(20*writers)
		killManyWriters(t, path, n, acked)
		s, err := e.Open(path)
		require.NoError(t, err, "round %d: open after the kill", round)
		list := must.Do(s.List(t.Context(), state.KindRun))(t)
		require.NoError(t, s.Close())
		found := map[string]int{}
		for _, r := range list {
			found[r.Key] = countOf(t, r.Data)
		}
		for i := range writers {
			key := fmt.Sprintf("w%d", i)
			assert.Contains(t, []int{acked[key], acked[key] + 1}, found[key], "round %d, after %d writes: %s", round, n, key)
			acked[key] = found[key]
		}
	}
}

// killManyWriters runs the writers until they have acknowledged n writes, and kills them.
func killManyWriters(t *testing.T, path string, n int, acked map[string]int) {
	seen := runUntilKilled(t, path, n, func(line string) {
		var key string
		var count int
		_, err := fmt.Sscanf(line, "%s %d", &key, &count)
		require.NoError(t, err, "the writers said %q", line)
		acked[key] = count
	}, manyEnv+"=1")
	require.NotZero(t, seen, "the writers wrote nothing")
}
