package stop

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/state/boltstore"
	"github.com/fenced/fenced/internal/state/statetest"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// A clock that jumps forward and comes back ends no pause. A clock that stays there is believed
// after a while, and one that is set back at once. // I23
func TestClockThatJumpsEndsNoStop(t *testing.T) {
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := &jumpTolerantClock{wall: start}
	p := stop{by: "ada", until: start.Add(time.Hour)}
	over := func(now time.Time) bool { return !p.active(now) }
	at := func(mono, jump time.Duration) time.Time { return s.at(start.Add(mono+jump), mono) }
	assert.Equal(t, start.Add(time.Second), at(time.Second, 0))
	assert.False(t, over(at(2*time.Second, 2*time.Hour)), "it jumps")
	assert.False(t, over(at(9*time.Minute, 2*time.Hour)))
	assert.Equal(t, start.Add(10*time.Minute), at(10*time.Minute, 0), "it is back")
	assert.False(t, over(at(11*time.Minute, 2*time.Hour)), "it jumps again")
	assert.False(t, over(at(21*time.Minute-1, 2*time.Hour)))
	assert.True(t, over(at(21*time.Minute, 2*time.Hour)), "it was right")
	assert.False(t, over(at(22*time.Minute, 0)), "it is set back")
	assert.False(t, over(at(time.Hour-1, 0)))
	assert.True(t, over(at(time.Hour, 0)), "time itself is no jump")
	late := &jumpTolerantClock{wall: start}
	late.at(start.Add(time.Hour), 0)
	late.at(start.Add(time.Hour+9*time.Minute+365*24*time.Hour), 9*time.Minute)
	assert.Equal(t, start.Add(10*time.Minute), late.at(start.Add(10*time.Minute+365*24*time.Hour), 10*time.Minute), "a jump on top of one is as new")
	for mono := time.Hour; mono < 2*time.Hour; mono += time.Second {
		slow := (mono - time.Hour) / 100 // it is slewed
		assert.Equal(t, start.Add(mono+slow), at(mono, slow))
	}
}

// If a clock jumps over the end of a stop, the quiet period begins when the jump is believed,
// not at the end that the clock skipped. // I16, I23
func TestStopThatTheClockJumpedOverHasJustEnded(t *testing.T) {
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := &jumpTolerantClock{wall: start}
	end := start.Add(time.Hour)
	at := func(mono time.Duration) time.Time { return s.at(start.Add(mono+2*time.Hour), mono) }
	at(time.Second)
	assert.Equal(t, end, s.endedAt(end), "the jump is not believed yet")
	now := at(doubtTime + time.Second)
	assert.Equal(t, start.Add(2*time.Hour+doubtTime+time.Second), now)
	assert.Equal(t, now, s.endedAt(end))
	assert.Equal(t, start, s.endedAt(start), "ended before the jump")
	later := at(time.Hour)
	assert.Equal(t, now, s.endedAt(end), "still then")
	assert.Equal(t, later, s.endedAt(later), "ended after it")
}

const keepRuns = 90 * 24 * time.Hour

// Only holds that ended long ago are deleted. What another instance has deleted leaves the
// cache here as well.
func TestHoldsAreForgottenLongAfterTheirEnd(t *testing.T) {
	s := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	long, lately := time.Now().Add(-2*keepRuns).UTC(), time.Now().Add(-time.Hour).UTC()
	for node, h := range map[string]state.Hold{
		"endless":         {At: long},
		"over":            {At: long, Until: long.Add(time.Hour)},
		"released":        {At: long, ReleasedBy: "bea", ReleasedAt: long},
		"just over":       {At: long, Until: lately},
		"just released":   {At: long, Until: long, ReleasedBy: "bea", ReleasedAt: lately},
		"held once more":  {At: long, ReleasedAt: long},
		"over long after": {At: long, Until: time.Now().Add(time.Hour).UTC()},
	} {
		h.Cluster, h.Node, h.By = "c", node, "ada"
		must.Do(statetest.SaveHold(t.Context(), s, h))(t)
	}
	open := func() *Stop {
		return must.Do(New(t.Context(), Options{Store: s, Emit: func(event.Event) {}}))(t)
	}
	one, other := open(), open()
	require.NoError(t, other.Prune(t.Context(), s, time.Now().Add(-keepRuns)))
	var left []string
	for _, h := range other.holds.All() {
		left = append(left, h.Key())
	}
	assert.ElementsMatch(t, []string{"c/endless", "c/just over", "c/just released", "c/held once more", "c/over long after"}, left)
	require.NoError(t, one.Load(t.Context()))
	assert.Equal(t, other.holds.All(), one.holds.All())
	require.NoError(t, one.Prune(t.Context(), s, time.Now().Add(-keepRuns)), "another has done it")
}

// What somebody has held by its name, since the release of its group began, stays held, and no record says otherwise.
func TestReleaseOfAGroupTellsWhatItReleased(t *testing.T) {
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	var told []string
	s := must.Do(New(t.Context(), Options{Store: store, Emit: func(e event.Event) { told = append(told, e.Node) }}))(t)
	g := Group{Stop: s, Order: wire.Order{Cluster: "c", Actor: "ada", Reason: "feed"}, Selector: "rack=r1", Nodes: []string{"n-1", "n-2"}}
	must.Do(g.Hold(t.Context()))(t)
	must.Do(s.Release(t.Context(), wire.Order{Cluster: "c", Node: "n-2", Actor: "bea", Reason: "disk"}))(t)
	must.Do(s.Hold(t.Context(), wire.Order{Cluster: "c", Node: "n-2", Actor: "bea", Reason: "disk"}, func(string) bool { return true }))(t)
	told = nil
	assert.Equal(t, []string{"n-1"}, must.Do(g.end(t.Context(), g.Nodes))(t))
	assert.Equal(t, []string{"", "n-1"}, told)
	assert.NotEmpty(t, s.Held("c", "n-2"))
}

// Who sees a pause is told what ends it: not the same for a file, for all clusters and for one.
func TestPauseSaysWhatEndsIt(t *testing.T) {
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	file := filepath.Join(t.TempDir(), "pause")
	s := must.Do(New(t.Context(), Options{Store: store, Emit: func(event.Event) {}, PauseFile: file}))(t)
	by := func(cluster string) string {
		why, resume := s.PausedBy(cluster)
		assert.Equal(t, why, s.Paused(cluster))
		assert.Equal(t, why == "", resume == "")
		return resume
	}
	assert.Empty(t, by("prod"))
	s.unsaved.extend(key{cluster: "prod"}, stop{by: "ada", reason: "storm"}, time.Now())
	assert.Equal(t, "fencectl resume --cluster prod --reason WHY", by("prod"))
	assert.Empty(t, by("lab"))
	s.unsaved.extend(key{cluster: state.AllClusters}, stop{by: "ada", reason: "storm"}, time.Now())
	assert.Equal(t, "fencectl resume --reason WHY", by("prod"))
	require.NoError(t, os.WriteFile(file, []byte("storm"), 0o600))
	assert.Equal(t, "rm "+file, by("lab"))
}

// A release that a wrong clock dated years ahead does not hide the runs of those years from the limits of a host, and hides no later
// release. // I15
func TestReleaseAtATimeToComeSaysNothing(t *testing.T) {
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	lately, ahead := time.Now().Add(-time.Hour).UTC(), time.Now().AddDate(2, 0, 0).UTC()
	for _, h := range []state.Hold{
		{Node: "n-1", ReleasedAt: ahead}, {Node: "n-1", Quarantine: true, ReleasedAt: lately}, {Node: "n-2", ReleasedAt: ahead}, {Node: "n-3", ReleasedAt: lately},
	} {
		h.Cluster, h.By, h.ReleasedBy = "c", "ada", "bea"
		must.Do(statetest.SaveHold(t.Context(), store, h))(t)
	}
	s := must.Do(New(t.Context(), Options{Store: store, Emit: func(event.Event) {}}))(t)
	assert.Equal(t, []time.Time{lately, {}, lately, lately}, []time.Time{
		s.ReleasedAt("c", "n-1"), s.ReleasedAt("c", "n-2"), s.ReleasedAt("c", "n-3"), s.ReleasedAt("c", "n-2", "n-1"),
	})
}

// A new quarantine does not count the runs again that a person let pass with an earlier release: they would delay the next run of the host. // I15
func TestQuarantineKeepsTheReleaseBeforeIt(t *testing.T) {
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	s := must.Do(New(t.Context(), Options{Store: store, Emit: func(event.Event) {}}))(t)
	s.Quarantine(t.Context(), "c", "n-1", "3 runs", time.Now())
	must.Do(s.Release(t.Context(), wire.Order{Cluster: "c", Node: "n-1", Actor: "ada", Reason: "fan replaced"}))(t)
	released := s.ReleasedAt("c", "n-1")
	require.NotZero(t, released)
	s.Quarantine(t.Context(), "c", "n-1", "3 runs more", time.Now())
	why, _ := s.Quarantined("c", "n-1")
	assert.Contains(t, why, "3 runs more")
	assert.Equal(t, released, s.ReleasedAt("c", "n-1"))
}

// Of two stops that are ordered at the same time the longer one binds: nobody is told that a host is held for longer than it is. // I23
func TestLongerOfTwoStopsAtOnceBinds(t *testing.T) {
	store := must.Do(boltstore.Open(filepath.Join(t.TempDir(), "state.db")))(t)
	defer store.Close()
	s := must.Do(New(t.Context(), Options{Store: store, Emit: func(event.Event) {}}))(t)
	now := time.Now()
	short, long := stop{by: "ada", until: now.Add(time.Hour)}, stop{by: "bea", until: now.Add(5 * time.Hour)}
	for i := range 5000 {
		k := key{"c", fmt.Sprint("n-", i)}
		var both sync.WaitGroup
		for _, ordered := range []stop{long, short} {
			both.Go(func() { s.bind(k, ordered) })
		}
		both.Wait()
		require.Equal(t, long, s.unsaved.get(k), i)
	}
}
