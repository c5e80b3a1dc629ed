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
)

// manyEnv tells the second process that many goroutines write at the same time.
const manyEnv = "STATETEST_MANY_WRITERS"

const writers = 16

// manyWriteUntilKilled has many goroutines put records without end, each a record of its own.
// After each success it prints "key count".
func manyWriteUntilKilled(t *testing.T, e Engine, path string) {
	s, err := e.Open(path)
	require.NoError(t, err)
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
		list, err := s.List(t.Context(), state.KindRun)
		require.NoError(t, err)
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
	root, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command(os.Args[0], "-test.run=^"+regexp.QuoteMeta(root)+"$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), writerEnv+"="+path, manyEnv+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() }) // too late is harmless
	defer watchdog.Stop()
	lines, seen := bufio.NewScanner(out), 0
	for lines.Scan() {
		var key string
		var count int
		_, err := fmt.Sscanf(lines.Text(), "%s %d", &key, &count)
		require.NoError(t, err, "the writers said %q", lines.Text())
		acked[key] = count
		if seen++; seen == n {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	assert.Error(t, cmd.Wait(), "the writers were to be killed")
	require.NotZero(t, seen, "the writers wrote nothing")
}
