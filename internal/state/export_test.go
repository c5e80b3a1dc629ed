package state_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/test/must"
)

func TestImportChecksFirst(t *testing.T) {
	from := openStore(t)
	statetest.Fill(t, from, 100)
	good := string(statetest.Export(t, from))
	lines := strings.SplitAfter(good, "\n")
	changed := func(change func([]string) []string) string {
		return strings.Join(change(append([]string{}, lines...)), "")
	}
	for what, content := range map[string]string{
		"empty":           "",
		"another file":    "clusters: []\n",
		"cut in a line":   good[:len(good)/2],
		"no trailer":      strings.Join(lines[:len(lines)-2], ""),
		"a line is gone":  changed(func(l []string) []string { return append(l[:2], l[3:]...) }),
		"lines swapped":   changed(func(l []string) []string { l[1], l[3] = l[3], l[1]; return l }),
		"a line twice":    changed(func(l []string) []string { l[3] = l[1]; return l }),
		"more follows":    good + lines[1],
		"a letter":        strings.Replace(good, `"key":"prod"`, `"key":"prxd"`, 1),
		"unknown kind":    strings.Replace(good, `"kind":"hold"`, `"kind":"held"`, 1),
		"unknown field":   strings.Replace(good, `{"kind":"hold"`, `{"x":1,"kind":"hold"`, 1),
		"the id":          strings.Replace(good, `"key":"more"`, `"key":"store-id"`, 1),
		"a newer schema":  strings.Replace(good, `"schema":3`, `"schema":4`, 1),
		"a newer version": strings.Replace(good, `"version":1`, `"version":2`, 1),
	} {
		require.NotEqual(t, good, content, what)
		to := openStore(t)
		_, err := state.Import(t.Context(), to, strings.NewReader(content))
		require.Error(t, err, what)
		require.Equal(t, strings.Contains(what, "newer"), errors.Is(err, state.ErrFuture), "%s: %v", what, err)
		require.Empty(t, statetest.Records(t, to), "%s: something was written", what)
	}
	_, err := state.Import(t.Context(), from, strings.NewReader(good))
	require.ErrorContains(t, err, "not empty")
	require.ErrorContains(t, err, "1 backup")
}

// failingStore fails after some writes, like a machine that loses its power.
type failingStore struct {
	state.Store
	left int
}

func (d *failingStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	if d.left--; d.left < 0 {
		return 0, errors.New("the disk is gone")
	}
	return d.Store.Put(ctx, r)
}

// CheckComplete refuses a store after an interrupted import. Another import replaces it.
func TestImportInterrupted(t *testing.T) {
	from, to := openStore(t), openStore(t)
	statetest.Fill(t, from, 100)
	file := statetest.Export(t, from)
	for left := 1; left < len(statetest.Records(t, from)); left++ {
		_, err := state.Import(t.Context(), &failingStore{Store: to, left: left}, bytes.NewReader(file))
		require.ErrorContains(t, err, "the disk is gone")
		require.ErrorIs(t, state.CheckComplete(t.Context(), to), state.ErrIncompleteImport)
	}
	must.Do(state.Import(t.Context(), to, bytes.NewReader(file)))(t)
	require.NoError(t, state.CheckComplete(t.Context(), to))
	require.Equal(t, statetest.Records(t, from), statetest.Records(t, to))
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"format":"fenced-export","version":1,"schema":3,"store":"A","at":"2026-01-01T00:00:00Z"}` + "\n" +
		`{"kind":"pin","key":"h","data":"e30="}` + "\n" + `{"records":1,"sha256":"00"}` + "\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		s := openStore(t)
		if n, err := state.Import(t.Context(), s, bytes.NewReader(content)); err == nil {
			require.Len(t, statetest.Records(t, s), n)
		} else {
			require.Empty(t, statetest.Records(t, s))
		}
	})
}
