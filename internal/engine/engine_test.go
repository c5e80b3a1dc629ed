package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
	_ "github.com/fenced/fenced/test/oneproc" // it plays in virtual time
)

// bubble runs a test in virtual time over a store in a real directory.
func bubble(t *testing.T, f func(t *testing.T, w *world, store *failingStore)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store := &failingStore{Store: openStore(t, dir), changed: make(chan struct{}, 1)}
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		f(t, newWorld(), store)
	})
}

func only(t *testing.T, e *engine.Engine) remediate.Run {
	t.Helper()
	runs := e.Runs("c")
	if len(runs) != 1 {
		x, err := e.Explain(t.Context(), "c", "n-1")
		require.NoError(t, err)
		require.Len(t, runs, 1, "gates: %+v", x.Gates)
	}
	return runs[0]
}

func gate(t *testing.T, e *engine.Engine, code reason.Code) reason.Gate {
	t.Helper()
	x, err := e.Explain(t.Context(), "c", "n-1")
	require.NoError(t, err)
	for _, g := range x.Gates {
		if g.Reason == code {
			return g
		}
	}
	require.Failf(t, "no such gate", "%s is not among %+v", code, x.Gates)
	return reason.Gate{}
}

func TestUnknownNodeIsFencedAndComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(59 * time.Second)
		require.Zero(t, w.Count(bmc.CommandOff), "inside the timeout nothing is sent")
		time.Sleep(5 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.Equal(t, 1, w.Isolations())
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		assert.True(t, w.Restored())
		stop()
	})
}

// A record that is not durable authorises no action. // I19
func TestNothingIsDoneWhileTheStoreRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, stop := start(t, w, store, nil)
		time.Sleep(30 * time.Second)
		store.set(true)
		time.Sleep(10 * time.Minute)
		require.Empty(t, w.Commands())
		require.Zero(t, w.Isolations())
		failed := eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.Failed })
		require.NotEmpty(t, failed, "the refusal of the store was not told")
		store.set(false)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step, "the run starts once the store works")
		stop()
	})
}

// A stop at any moment, and a start with the same store, lead to the same end as an
// undisturbed run. // I20
func TestRestartAtAnyMomentReachesTheSameEnd(t *testing.T) {
	for _, at := range []time.Duration{61, 63, 66, 70, 76, 82, 88, 95, 105} {
		bubble(t, func(t *testing.T, w *world, store *failingStore) {
			_, _, stop := start(t, w, store, nil)
			time.Sleep(at * time.Second)
			stop()
			e, _, stop := start(t, w, store, nil)
			time.Sleep(10 * time.Minute)
			r := only(t, e)
			assert.Equal(t, remediate.Done, r.Step, "stopped after %ds: %s %s", at, r.Reason, r.Note)
			assert.Equal(t, 1, w.Isolations(), "stopped after %ds", at)
			stop()
		})
	}
}

func TestRefusalsHaveReasonsAndTouchNothing(t *testing.T) {
	cases := map[reason.Code]func(*world, *engine.Options){
		reason.IdentityMismatch: func(w *world, _ *engine.Options) { w.SetBMCUUID("4c4c4544-0042-3510-8054-b4c04f4d9999") },
		reason.IdentityUnknown:  func(w *world, _ *engine.Options) { w.SetBMCUUID("") },
		"BMCAuth": func(w *world, _ *engine.Options) {
			w.FailReads(refusedAccount())
		},
		reason.Contested:   func(w *world, _ *engine.Options) { w.setContested(remediate.Yes) },
		reason.PowerOwner:  func(w *world, _ *engine.Options) { w.Do(func(s *fake.State) { s.PowerForbidden = "disablePowerOff" }) },
		reason.Observing:   func(_ *world, o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve },
		reason.QuietPeriod: func(_ *world, o *engine.Options) { o.Guards.QuietPeriod = time.Hour },
	}
	for code, change := range cases {
		t.Run(string(code), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				e, _, stop := start(t, w, store, func(o *engine.Options) { change(w, o) })
				time.Sleep(10 * time.Minute)
				assert.False(t, gate(t, e, code).Pass)
				assert.Empty(t, e.Runs("c"))
				assert.Empty(t, w.Commands())
				stop()
			})
		})
	}
}

func TestBMCThatNeverTurnsOffIsHeldAndNothingIsDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetFault(fake.IgnoresOff)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(4 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Held, r.Step)
		assert.Equal(t, "PowerOffFailed", string(r.Reason))
		assert.Zero(t, w.Isolations())
		gate(t, e, reason.UnderRemediation)
		stop()
	})
}

func TestMovingLeaseWhileOffIsFalseOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetLeaseMoving(true)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(4 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Held, r.Step)
		assert.Equal(t, "FalseOff", string(r.Reason))
		assert.Zero(t, w.Isolations())
		stop()
	})
}

// Only as many runs start as the limit allows. The place is free again at
// registration. // I11
func TestInFlightLimitDelaysTheSecondNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, func(o *engine.Options) { o.Guards.MaxInFlight = 0 })
		time.Sleep(untilOff + time.Second)
		require.Len(t, e.Runs("c"), 1, "at least one is always allowed")
		w.setOthersDown(true)
		time.Sleep(2 * time.Second)
		require.Len(t, e.Runs("c"), 1)
		x, err := e.Explain(t.Context(), "c", "other-0")
		require.NoError(t, err)
		reasons := map[reason.Code]bool{}
		for _, g := range x.Gates {
			reasons[g.Reason] = true
		}
		assert.True(t, reasons[reason.InFlightLimit], "%+v", x.Gates)
		stop()
	})
}

// If the BMC address of a host changes while its run is open, the run does not follow
// it. // I10
func TestRunDoesNotFollowAChangedAddress(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, _, stop := start(t, w, store, nil)
		time.Sleep(untilOff)
		stop()
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.ChangeEntry(func(h *bmc.Host) { h.Levels[0].Devices[0].Endpoint.Host = "192.0.2.66" })
		e, _, stop := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Held, r.Step)
		assert.Equal(t, string(reason.AddressChanged), string(r.Reason), r.Note)
		assert.Zero(t, w.Isolations())
		assert.Len(t, w.Commands(), 1, "nothing is sent to the new address")
		stop()
	})
}

// The own host of the daemon is found by its UUID even if its Node is gone. // I13
func TestOwnHostIsFoundByUUIDWithoutItsNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		own := func(o *engine.Options) { o.Own = hosts.Own{MachineID: "machine-n-1"} }
		w.SetReady("True")
		_, _, stop := start(t, w, store, own)
		time.Sleep(time.Second)
		stop()
		w.RemoveNode()
		w.ChangeEntry(func(h *bmc.Host) { h.PinnedUUID = hostUUID })
		e, _, stop := start(t, w, store, own)
		time.Sleep(time.Minute)
		assert.Empty(t, e.Runs("c"))
		assert.Empty(t, w.Commands())
		gate(t, e, reason.OwnHost)
		stop()
	})
}

// After a refusal the run uses a password that was corrected.
func TestCorrectedPasswordIsUsed(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		time.Sleep(untilOff)
		require.Equal(t, 1, w.Count(bmc.CommandOff))
		w.FailReads(refusedAccount())
		time.Sleep(time.Minute)
		require.Equal(t, "BMCAuth", string(only(t, e).Reason))
		require.Zero(t, w.Count(bmc.CommandOn), "a BMC that refused the account is spared")
		w.FailReads(nil)
		time.Sleep(6 * time.Minute)
		assert.NotZero(t, w.Count(bmc.CommandOn), "the host is back on")
		assert.Zero(t, w.Isolations())
		stop()
	})
}
