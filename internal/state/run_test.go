package state_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/test/must"
)

// openStore opens a new store of the engine that needs no other process.
func openStore(t *testing.T) state.Store {
	t.Helper()
	s := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)

func aRun(id string) remediate.Run {
	return remediate.Run{ID: id, Step: remediate.PowerOff, Strategy: remediate.PowerCycle, Started: noon}
}

func TestSaveRunComparesAndSets(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	first := must.Do(state.SaveRun(ctx, s, aRun("r1")))(t)
	require.NotZero(t, first.Version)
	_, err := state.SaveRun(ctx, s, aRun("r1"))
	require.ErrorIs(t, err, state.ErrExists)

	first.Step = remediate.DeleteNode
	second := must.Do(state.SaveRun(ctx, s, first))(t)
	stale, err := state.SaveRun(ctx, s, first)
	require.ErrorIs(t, err, state.ErrConflict)
	require.ErrorContains(t, err, `"r1"`)
	require.Equal(t, first.Version, stale.Version, "a failed save must not look like a saved run")

	got := must.Do(state.GetRun(ctx, s, "r1"))(t)
	require.Equal(t, second, got)
	_, err = state.GetRun(ctx, s, "r2")
	require.ErrorIs(t, err, state.ErrNotFound)
}

func TestSaveRunRefusesWhatCouldNotBeContinued(t *testing.T) {
	s := openStore(t)
	_, err := state.SaveRun(t.Context(), s, aRun(""))
	require.Error(t, err)
	run := aRun("r1")
	run.Step = "Dance"
	_, err = state.SaveRun(t.Context(), s, run)
	require.ErrorContains(t, err, `unknown step "Dance"`)
	runs := must.Do(state.LoadRuns(t.Context(), s))(t)
	require.Empty(t, runs)
}

// One bad record must not make fenced forget the other hosts.
func TestLoadRunsReturnsTheGoodBesideTheBad(t *testing.T) {
	for name, c := range map[string]struct {
		data, want string
		future     bool
	}{
		"a future version":  {data: `{"v":2,"step":{"n":1}}`, want: "version 2", future: true},
		"an unknown field":  {data: `{"v":1,"data":{"id":"bad","step":"Held","mood":"sad"}}`, want: "mood"},
		"an unknown step":   {data: `{"v":1,"data":{"id":"bad","step":"Dance"}}`, want: "Dance"},
		"no reason to wait": {data: `{"v":1,"data":{"id":"bad","step":"Waiting"}}`, want: "Waiting"},
		"another's ID":      {data: `{"v":1,"data":{"id":"other","step":"Held"}}`, want: `"other"`},
		"no JSON":           {data: `run`, want: "decode"},
		"no version":        {data: `{"data":{"id":"bad","step":"Held"}}`, want: "no version"},
		"no data":           {data: `{"v":1}`, want: "empty"},
		"null":              {data: `{"v":1,"data":null}`, want: "empty"},
		"more after it":     {data: `{"v":1,"data":{"id":"bad","step":"Held"}} {}`, want: "decode"},
		"a stray outer key": {data: `{"v":1,"data":{"id":"bad","step":"Held"},"sum":1}`, want: "sum"},
		"nothing":           {data: ``, want: "decode"},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := openStore(t), t.Context()
			for _, id := range []string{"a", "z"} {
				must.Do(state.SaveRun(ctx, s, aRun(id)))(t)
			}
			v := must.Do(s.Put(ctx, state.Record{Kind: state.KindRun, Key: "bad", Data: []byte(c.data)}))(t)

			runs, err := state.LoadRuns(ctx, s)
			require.ErrorContains(t, err, `"bad"`)
			require.ErrorContains(t, err, c.want)
			if c.future {
				require.ErrorIs(t, err, state.ErrFuture)
			}
			require.Len(t, runs, 2)
			require.Equal(t, "a", runs[0].ID)
			require.Equal(t, "z", runs[1].ID)

			// It is neither pruned nor overwritten.
			n, err := state.PruneRuns(ctx, s, noon.Add(1000*time.Hour))
			require.Error(t, err)
			require.Zero(t, n)
			r := must.Do(s.Get(ctx, state.KindRun, "bad"))(t)
			require.Equal(t, v, r.Version)
			require.Equal(t, c.data, string(r.Data))
		})
	}
}

// An ended run that cannot be read keeps nobody from reading the others. It stays as it is. Anything less than certain may be an open
// run. // I20
func TestEndedRunThatCannotBeReadIsSetAside(t *testing.T) {
	const ended = `"ended":"2026-01-01T00:00:00Z"`
	for name, c := range map[string]struct {
		data  string
		aside bool
	}{
		"a field of another version":  {`{"v":1,"data":{"id":"bad","step":"Done",` + ended + `,"mood":"sad"}}`, true},
		"a field of the wrong type":   {`{"v":1,"data":{"id":"bad","step":"Aborted",` + ended + `,"attempt":"two"}}`, true},
		"a time that is none":         {`{"v":1,"data":{"id":"bad","step":"Reprovisioned",` + ended + `,"started":"noon"}}`, true},
		"a stray outer key":           {`{"v":1,"sum":1,"data":{"id":"bad","step":"Done",` + ended + `}}`, true},
		"open":                        {`{"v":1,"data":{"id":"bad","step":"PowerOn","mood":"sad"}}`, false},
		"open, with the time of ends": {`{"v":1,"data":{"id":"bad","step":"Held",` + ended + `,"mood":"sad"}}`, false},
		"without the time of its end": {`{"v":1,"data":{"id":"bad","step":"Done","mood":"sad"}}`, false},
		"another's ID":                {`{"v":1,"data":{"id":"other","step":"Done",` + ended + `,"mood":"sad"}}`, false},
		"a future version":            {`{"v":2,"data":{"id":"bad","step":"Done",` + ended + `}}`, false},
		"no version":                  {`{"data":{"id":"bad","step":"Done",` + ended + `}}`, false},
		"cut off":                     {`{"v":1,"data":{"id":"bad","step":"Done",` + ended + `,"mood":`, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, ctx := openStore(t), t.Context()
			must.Do(state.SaveRun(ctx, s, aRun("a")))(t)
			must.Do(s.Put(ctx, state.Record{Kind: state.KindRun, Key: "bad", Data: []byte(c.data)}))(t)
			runs, aside, err := state.LoadAllRuns(ctx, s)
			require.Equal(t, !c.aside, err != nil, err)
			require.Len(t, runs, 1)
			require.Equal(t, c.aside, len(aside) == 1)
			if c.aside {
				require.Equal(t, "bad", aside[0].ID)
				require.ErrorContains(t, aside[0].Err, `"bad"`)
				must.Do(state.PruneRuns(ctx, s, noon.Add(1000*time.Hour)))(t)
			}
			r := must.Do(s.Get(ctx, state.KindRun, "bad"))(t)
			require.Equal(t, c.data, string(r.Data))
		})
	}
}

func TestPruneRunsKeepsOpenAndRecent(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	save := func(id string, step remediate.Step, ended time.Time) {
		run := aRun(id)
		run.Step, run.Ended = step, ended
		must.Do(state.SaveRun(ctx, s, run))(t)
	}
	save("old-done", remediate.Done, noon.Add(-2*time.Hour))
	save("old-aborted", remediate.Aborted, noon.Add(-2*time.Hour))
	save("new-done", remediate.Done, noon)
	save("held", remediate.Held, noon.Add(-2*time.Hour))
	save("running", remediate.PowerOn, time.Time{})
	save("ended-at-no-time", remediate.Done, time.Time{})
	n := must.Do(state.PruneRuns(ctx, s, noon))(t)
	require.Equal(t, 2, n)
	runs := must.Do(state.LoadRuns(ctx, s))(t)
	var ids []string
	for _, run := range runs {
		ids = append(ids, run.ID)
	}
	require.Equal(t, []string{"ended-at-no-time", "held", "new-done", "running"}, ids)
}

func backup(run, uid, rv, node string, at time.Time) state.Backup {
	return state.Backup{RunID: run, NodeUID: uid, ResourceVersion: rv, Saved: at, Node: []byte(node)}
}

// Every byte of the Node's JSON is kept, with spaces and escapes. // I21
func TestBackupIsByteExact(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	b := backup("r1", "uid-1", "7", "{ \"a\":\t\"<&>\u2028é\", \"n\": 1.0e3,\n \"a\": 2}", noon)
	require.NoError(t, state.SaveBackup(ctx, s, b))
	got := must.Do(state.Backups(ctx, s, "r1"))(t)
	require.Equal(t, []state.Backup{b}, got)
	got = must.Do(state.Backups(ctx, s, "r2"))(t)
	require.Empty(t, got)
}

func TestBackupRefusesHalfANode(t *testing.T) {
	s := openStore(t)
	for name, b := range map[string]state.Backup{
		"cut off":  backup("r1", "uid-1", "7", `{"a":`, noon),
		"empty":    backup("r1", "uid-1", "7", ``, noon),
		"no UID":   backup("r1", "", "7", `{}`, noon),
		"no run":   backup("", "uid-1", "7", `{}`, noon),
		"too long": backup("r1", "uid-1", "7", fmt.Sprintf("%q", make([]byte, state.MaxData)), noon),
	} {
		require.Error(t, state.SaveBackup(t.Context(), s, b), name)
	}
	list := must.Do(s.List(t.Context(), state.KindBackup))(t)
	require.Empty(t, list)
}

func TestBackupsKeepFirstAndNewestOfEachNode(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	for i := range 5 {
		require.NoError(t, state.SaveBackup(ctx, s, backup("r1", "one", fmt.Sprint(i), fmt.Sprintf(`{"n":%d}`, i), noon)))
	}
	for i := range 5 {
		require.NoError(t, state.SaveBackup(ctx, s, backup("r1", "two", fmt.Sprint(10+i), fmt.Sprintf(`{"n":%d}`, 10+i), noon)))
	}
	got := must.Do(state.Backups(ctx, s, "r1"))(t)
	var versions []string
	for _, b := range got {
		versions = append(versions, b.ResourceVersion)
	}
	require.Equal(t, []string{"0", "4", "10", "14"}, versions)
}

// The largest Node that etcd accepts can be saved in every attempt of a run, although each
// attempt finds another UID and the Node changes.
func TestBackupsOfTheLargestNodeInEachAttempt(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	node := fmt.Sprintf(`{"metadata":{"annotations":{"a":%q}}}`, strings.Repeat("x", 3<<19))
	for i := range 6 {
		require.NoError(t, state.SaveBackup(ctx, s, backup("r1", fmt.Sprint("uid-", i/2), fmt.Sprint(i), node, noon)))
	}
	got := must.Do(state.Backups(ctx, s, "r1"))(t)
	require.Len(t, got, 6)
	for _, b := range got {
		require.Len(t, b.Node, len(node))
	}
}

// A run that waits and tries again for weeks finds another Node each time, and can still save each: of those in between the oldest go, once
// the record would be too large. The Node that the run found stays, and the one that is deleted next. // I21, L5
func TestBackupsOfARunThatGoesOnForWeeksFit(t *testing.T) {
	require.Equal(t, state.MaxData, state.SetMaxBackups(64<<10))
	defer state.SetMaxBackups(state.MaxData)
	s, ctx := openStore(t), t.Context()
	node := fmt.Sprintf(`{"metadata":{"annotations":{"a":%q}}}`, strings.Repeat("x", 10<<10))
	for i := range 8 {
		require.NoError(t, state.SaveBackup(ctx, s, backup("r1", fmt.Sprint("uid-", i/2), fmt.Sprint(i), node, noon)))
	}
	var versions []string
	for _, b := range must.Do(state.Backups(ctx, s, "r1"))(t) {
		versions = append(versions, b.ResourceVersion)
	}
	require.Equal(t, []string{"0", "1", "7"}, versions)
}

// corruptingStore stores another backup than it was given, as a failing disk may.
type corruptingStore struct{ state.Store }

func (l corruptingStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	if r.Kind == state.KindBackup {
		r.Data = []byte(`{"v":1,"data":[{"runID":"r1","nodeUID":"uid-1","resourceVersion":"7","saved":"2026-03-01T12:00:00Z","node":"e30="}]}`)
	}
	return l.Store.Put(ctx, r)
}

func TestBackupIsReadBack(t *testing.T) {
	s := corruptingStore{openStore(t)}
	require.NoError(t, state.SaveBackup(t.Context(), s, backup("r1", "uid-1", "7", `{}`, noon)))
	err := state.SaveBackup(t.Context(), s, backup("r1", "uid-1", "8", `{"labels":1}`, noon))
	require.ErrorContains(t, err, "read back differs")
}

func TestBackupOfTheFutureIsNotWrittenOver(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	must.Do(s.Put(ctx, state.Record{Kind: state.KindBackup, Key: "r1", Data: []byte(`{"v":9}`)}))(t)
	require.ErrorIs(t, state.SaveBackup(ctx, s, backup("r1", "uid-1", "7", `{}`, noon)), state.ErrFuture)
	_, err := state.PruneBackups(ctx, s, noon.Add(time.Hour), func(string) bool { return false })
	require.ErrorIs(t, err, state.ErrFuture)
	r := must.Do(s.Get(ctx, state.KindBackup, "r1"))(t)
	require.Equal(t, `{"v":9}`, string(r.Data))
}

func TestPruneBackups(t *testing.T) {
	s, ctx := openStore(t), t.Context()
	save := func(run, uid string, at time.Time) {
		require.NoError(t, state.SaveBackup(ctx, s, backup(run, uid, "7", `{}`, at)))
	}
	save("old", "u1", noon.Add(-8*24*time.Hour))
	save("kept", "u2", noon.Add(-8*24*time.Hour))
	save("new", "u3", noon.Add(-6*24*time.Hour))
	save("both", "u4", noon.Add(-8*24*time.Hour))
	save("both", "u5", noon) // the newest backup of a run counts for all of them
	n := must.Do(state.PruneBackups(ctx, s, noon.Add(-7*24*time.Hour), func(run string) bool { return run == "kept" }))(t)
	require.Equal(t, 1, n)
	for run, want := range map[string]int{"old": 0, "kept": 1, "new": 1, "both": 2} {
		list := must.Do(state.Backups(ctx, s, run))(t)
		require.Len(t, list, want, run)
	}
}
