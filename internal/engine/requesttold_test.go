package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/state"
)

// watchedPower calls a function before each Off.
type watchedPower struct {
	bmc.Power
	beforeOff func()
}

func (p watchedPower) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	if c == bmc.CommandOff {
		p.beforeOff()
	}
	return p.Power.Send(ctx, c)
}

// countedRequests counts the writes to the status of requests.
type countedRequests struct {
	engine.Requests
	writes *atomic.Int64
}

func (r countedRequests) Report(ctx context.Context, q remediate.Request, s request.Status) error {
	r.writes.Add(1)
	return r.Requests.Report(ctx, q, s)
}

// leisurelyStore takes its time for each write: what else happens at the start of a run is over when that is saved.
type leisurelyStore struct{ state.Store }

func (s leisurelyStore) Put(ctx context.Context, r state.Record) (uint64, error) {
	time.Sleep(700 * time.Millisecond)
	return s.Store.Put(ctx, r)
}

// Whoever made a request may begin while it is not processed. So it is told that it is before the first Off of each
// attempt, by whatever the run was begun. // I22
func TestRequestIsToldBeforeTheOff(t *testing.T) {
	for name, change := range map[string]func(w *world, o *engine.Options){
		"its own run":      func(w *world, o *engine.Options) { responding(w)(o) },
		"a run of a check": func(w *world, o *engine.Options) { o.Clusters[0].Requests = w.Requests() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				var told [][]string
				offs := &atomic.Int64{}
				w.SetBootTime(never) // at first
				e, _, stop := start(t, w, store, func(o *engine.Options) {
					change(w, o)
					o.Open = func(bmc.Device) (bmc.Power, error) {
						return watchedPower{w.bmc(), func() {
							_, s := asked(w)
							told = append(told, []string{s.Phase, conditionOf(s, request.Processing), s.Run})
							offs.Add(1)
						}}, nil
					}
				})
				time.Sleep(10 * time.Second)
				ask(w, nil)
				for offs.Load() < 2 { // the second attempt has switched it off: a host that boots earlier needs no second Off
					time.Sleep(time.Second)
				}
				w.SetBootTime(time.Minute)
				time.Sleep(time.Hour)
				r := only(t, e)
				require.Equal(t, []any{remediate.Done, 2}, []any{r.Step, r.Attempt}, "%s: %s", r.Reason, r.Note)
				require.GreaterOrEqual(t, len(told), 2)
				for _, s := range told {
					assert.Equal(t, []string{request.Running, "True", r.ID}, s)
				}
				stop()
			})
		})
	}
}

// A host is not left as it is because the status cannot be written.
func TestOffDoesNotWaitForAStatusThatCannotBeWritten(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		fails := &atomic.Bool{}
		fails.Store(true)
		ask(w, nil)
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			o.Clusters[0].Requests = withoutStatus{w.Requests(), fails}
		})
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		stop()
	})
}

// The status follows each step of the run, also where it cannot switch anything yet, and is not written more often
// than that needs.
func TestRequestFollowsItsRun(t *testing.T) {
	for name, waits := range map[string]bool{"switches at once": false, "waits before its Off": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				writes := &atomic.Int64{}
				w.OnLook(func(looks int) {
					if waits && looks == 2 { // the first of the run, after that of the probe
						w.setContested(remediate.CannotTell)
					}
				})
				e, _, stop := start(t, w, leisurelyStore{store}, func(o *engine.Options) {
					responding(w)(o)
					o.Clusters[0].Requests = countedRequests{w.Requests(), writes}
				})
				time.Sleep(time.Minute + 900*time.Millisecond) // the run is saved right after one of the looks that need no change
				ask(w, nil)
				var behind, most time.Duration
				began := time.Now()
				done := func() bool { runs := e.Runs("c"); return len(runs) > 0 && runs[0].Step == remediate.Done }
				for !done() {
					time.Sleep(50 * time.Millisecond)
					if time.Since(began) > 20*time.Second {
						w.setContested(remediate.No)
					}
					behind += 50 * time.Millisecond
					if runs := e.Runs("c"); len(runs) == 0 || runs[0].Version == 0 { // it is not saved yet
						behind = 0
					} else if _, told := asked(w); len(told.Conditions) > 0 && told.Conditions[0].Reason == string(runs[0].Step) {
						behind = 0
					}
					most = max(most, behind)
				}
				assert.LessOrEqual(t, most, time.Second)
				time.Sleep(5 * time.Second)
				_, told := asked(w)
				assert.Equal(t, request.Succeeded, told.Phase)
				assert.LessOrEqual(t, int(writes.Load()), len(only(t, e).Steps)+3)
				stop()
			})
		})
	}
}
