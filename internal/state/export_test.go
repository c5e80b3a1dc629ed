package state_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

var everyKind = []state.Kind{
	state.KindRun, state.KindBackup, state.KindCluster, state.KindPin, state.KindFreeze, state.KindHold, state.KindSlot, state.KindMeta,
}

// fill puts something of each kind into a store, and a Node of about that size.
func fill(t *testing.T, s state.Store, size int) {
	ctx := t.Context()
	run := openRun("r1")
	_, err := state.SaveRun(ctx, s, run)
	require.NoError(t, err)
	node := []byte(`{"metadata":{"name":"n","note":"` + strings.Repeat("x", size) + `"}}`)
	require.NoError(t, state.SaveBackup(ctx, s, state.Backup{RunID: run.ID, NodeUID: "u", Node: node, Saved: time.Now()}))
	_, err = state.SaveCluster(ctx, s, state.Cluster{Name: "prod", Armed: true})
	require.NoError(t, err)
	_, err = state.SavePin(ctx, s, state.Pin{Host: "prod/n"})
	require.NoError(t, err)
	_, err = state.SaveFreeze(ctx, s, state.Freeze{RunID: run.ID, Host: "prod/n"})
	require.NoError(t, err)
	_, err = state.SaveHold(ctx, s, state.Hold{Cluster: "prod", Node: "n", By: "ann"})
	require.NoError(t, err)
	require.True(t, take(t, s, 1, run.ID))
	_, err = s.Put(ctx, state.Record{Kind: state.KindMeta, Key: "more", Data: []byte{0xff, '\n'}})
	require.NoError(t, err)
}

func openRun(id string) remediate.Run {
	return remediate.Run{ID: id, Step: remediate.PowerOn, Started: time.Now().UTC()}
}

// contents are all records of a store but its id, without their versions.
func contents(t *testing.T, s state.Store) (all []state.Record) {
	for _, kind := range everyKind {
		list, err := s.List(t.Context(), kind)
		require.NoError(t, err)
		for _, r := range list {
			if r.Key != "store-id" {
				r.Version = 0
				all = append(all, r)
			}
		}
	}
	return all
}

func export(t *testing.T, s state.Store) []byte {
	var out bytes.Buffer
	n, err := state.Export(t.Context(), s, &out)
	require.NoError(t, err)
	require.Equal(t, len(contents(t, s)), n)
	return out.Bytes()
}

// From bbolt to etcd and back to bbolt, all is as it was, and what was open is open.
func TestExportMovesBetweenEngines(t *testing.T) {
	from, through, to := openBolt(t), openEtcd(t, sharedEtcd(t), newPrefix()), openBolt(t)
	fill(t, from, 400<<10) // base64 makes it too large for one key of etcd
	want := contents(t, from)
	for _, step := range [][2]state.Store{{from, through}, {through, to}} {
		n, err := state.Import(t.Context(), step[1], bytes.NewReader(export(t, step[0])))
		require.NoError(t, err)
		require.Len(t, want, n)
		require.Equal(t, want, contents(t, step[1]))
		require.NoError(t, state.Whole(t.Context(), step[1]))
	}
	runs, err := state.LoadRuns(t.Context(), to)
	require.NoError(t, err)
	require.Len(t, runs, 1)
	require.True(t, runs[0].Open())
	first, err := state.ID(t.Context(), from)
	require.NoError(t, err)
	second, err := state.ID(t.Context(), to)
	require.NoError(t, err)
	require.NotEqual(t, first, second, "another store has another id")
}

func TestImportChecksFirst(t *testing.T) {
	from := openBolt(t)
	fill(t, from, 100)
	good := string(export(t, from))
	lines := strings.SplitAfter(good, "\n")
	sealed := func(change func([]string) []string) string {
		return strings.Join(change(append([]string{}, lines...)), "")
	}
	for what, content := range map[string]string{
		"empty":           "",
		"another file":    "clusters: []\n",
		"cut in a line":   good[:len(good)/2],
		"no seal":         strings.Join(lines[:len(lines)-2], ""),
		"a line is gone":  sealed(func(l []string) []string { return append(l[:2], l[3:]...) }),
		"lines swapped":   sealed(func(l []string) []string { l[1], l[3] = l[3], l[1]; return l }),
		"a line twice":    sealed(func(l []string) []string { l[3] = l[1]; return l }),
		"more follows":    good + lines[1],
		"a letter":        strings.Replace(good, `"key":"prod"`, `"key":"prxd"`, 1),
		"unknown kind":    strings.Replace(good, `"kind":"hold"`, `"kind":"held"`, 1),
		"unknown field":   strings.Replace(good, `{"kind":"hold"`, `{"x":1,"kind":"hold"`, 1),
		"the id":          strings.Replace(good, `"key":"more"`, `"key":"store-id"`, 1),
		"a newer schema":  strings.Replace(good, `"schema":3`, `"schema":4`, 1),
		"a newer version": strings.Replace(good, `"version":1`, `"version":2`, 1),
	} {
		require.NotEqual(t, good, content, what)
		to := openBolt(t)
		_, err := state.Import(t.Context(), to, strings.NewReader(content))
		require.Error(t, err, what)
		require.Equal(t, strings.Contains(what, "newer"), errors.Is(err, state.ErrFuture), "%s: %v", what, err)
		require.Empty(t, contents(t, to), "%s: something was written", what)
	}
	_, err := state.Import(t.Context(), from, strings.NewReader(good))
	require.ErrorContains(t, err, "not empty")
	require.ErrorContains(t, err, "1 backup")
}

func TestImportIntoAStoreInUse(t *testing.T) {
	c, prefix := sharedEtcd(t), newPrefix()
	a := startInstance(t, c, prefix, "a", []string{"prod"}, stay)
	a.awaitClaim(t, "prod")
	_, err := state.Import(t.Context(), openEtcd(t, c, prefix), bytes.NewReader(export(t, openBolt(t))))
	require.ErrorIs(t, err, state.ErrLocked)
	require.ErrorContains(t, err, `"a"`)
}

// dying fails after some writes, as a machine that goes down does.
type dying struct {
	state.Store
	left int
}

func (d *dying) Put(ctx context.Context, r state.Record) (uint64, error) {
	if d.left--; d.left < 0 {
		return 0, errors.New("the disk is gone")
	}
	return d.Store.Put(ctx, r)
}

// A half that was imported is no store to act on; another import replaces it.
func TestImportInterrupted(t *testing.T) {
	from, to := openBolt(t), openBolt(t)
	fill(t, from, 100)
	file := export(t, from)
	for left := 1; left < len(contents(t, from)); left++ {
		_, err := state.Import(t.Context(), &dying{Store: to, left: left}, bytes.NewReader(file))
		require.ErrorContains(t, err, "the disk is gone")
		require.ErrorIs(t, state.Whole(t.Context(), to), state.ErrUnfinished)
	}
	_, err := state.Import(t.Context(), to, bytes.NewReader(file))
	require.NoError(t, err)
	require.NoError(t, state.Whole(t.Context(), to))
	require.Equal(t, contents(t, from), contents(t, to))
}

func FuzzImport(f *testing.F) {
	f.Add([]byte(`{"format":"fenced-export","version":1,"schema":3,"store":"A","at":"2026-01-01T00:00:00Z"}` + "\n" +
		`{"kind":"pin","key":"h","data":"e30="}` + "\n" + `{"records":1,"sha256":"00"}` + "\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		s := openBolt(t)
		if n, err := state.Import(t.Context(), s, bytes.NewReader(content)); err == nil {
			require.Len(t, contents(t, s), n)
		} else {
			require.Empty(t, contents(t, s))
		}
	})
}
