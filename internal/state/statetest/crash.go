package statetest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/dice"
)

// writerEnv tells the second process which store to write to.
const writerEnv = "STATETEST_WRITER_PATH"

func writerPath() string { return os.Getenv(writerEnv) }

const crashKeys = 4

// writeUntilKilled puts and deletes records without end. After each success it prints
// "key version data" or "key 0 -".
func writeUntilKilled(t *testing.T, e Engine, path string) {
	s, err := e.Open(path)
	require.NoError(t, err)
	for i := 0; ; i++ {
		key := fmt.Sprintf("k%d", i%crashKeys)
		old, err := s.Get(t.Context(), state.KindRun, key)
		if err == nil && i%(3*crashKeys) < crashKeys {
			require.NoError(t, s.Delete(t.Context(), state.KindRun, key, old.Version))
			fmt.Printf("%s 0 -\n", key)
			continue
		}
		data := fmt.Sprintf("data-%d", i)
		v, err := s.Put(t.Context(), state.Record{Kind: state.KindRun, Key: key, Version: old.Version, Data: []byte(data)})
		require.NoError(t, err)
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
	root, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command(os.Args[0], "-test.run=^"+regexp.QuoteMeta(root)+"$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), writerEnv+"="+path)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	watchdog := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() }) // too late is harmless
	defer watchdog.Stop()
	lines := bufio.NewScanner(out)
	for i := 0; lines.Scan(); i++ {
		key, rest, ok := strings.Cut(lines.Text(), " ")
		require.True(t, ok && strings.HasPrefix(key, "k"), "the writer said %q", lines.Text())
		if rest == "0 -" {
			rest = ""
		}
		acked[key], last = rest, key
		if i+1 == n {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	assert.Error(t, cmd.Wait(), "the writer was to be killed")
	require.NotEmpty(t, last, "the writer wrote nothing")
	return last
}

func contents(t *testing.T, s state.Store) map[string]string {
	list, err := s.List(t.Context(), state.KindRun)
	require.NoError(t, err)
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
