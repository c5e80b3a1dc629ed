package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// unusable is a hosts.d whose entry of n-1 is refused.
type unusable struct{ hosts.Inventory }

func (unusable) Find(context.Context, string, string) (bmc.Host, bool, error) {
	return bmc.Host{}, false, errors.New("address: no scheme")
}

// A manual confirmation takes the place of a proof where none can be had: the Node is
// isolated, the host is left off, and the record says so permanently. // I26
func TestConfirmOffWithoutARun(t *testing.T) {
	for name, change := range map[string]func(*world, *engine.Options){
		"a dead BMC":         func(w *world, _ *engine.Options) { w.dead() },
		"no BMC":             func(w *world, _ *engine.Options) { w.DropEntry() },
		"an entry of no use": func(w *world, o *engine.Options) { o.Hosts = unusable{w} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.pauseCheck()
				l := &ledger{}
				e, _, stop := start(t, w, store, func(o *engine.Options) {
					o.Record = l.record
					change(w, o)
				})
				time.Sleep(time.Second)
				dry := dryRun(byHand)
				out, err := e.ConfirmOff(t.Context(), dry)
				require.NoError(t, err)
				assert.Len(t, out.Evidence, 3, "power, Node and Lease: %v", out.Evidence)
				require.Empty(t, e.Runs("c"))

				out, err = e.ConfirmOff(t.Context(), byHand)
				require.NoError(t, err)
				time.Sleep(10 * time.Minute)
				r := only(t, e)
				assert.Equal(t, out.Run, r.ID)
				assert.Equal(t, remediate.Held, r.Step, r.Note)
				assert.Equal(t, "ConfirmedOff", string(r.Reason), r.Note)
				assert.Equal(t, remediate.ProofHuman, r.Proof)
				assert.Equal(t, byHand.Actor, r.Confirmed.Actor)
				assert.Equal(t, 1, w.Isolations())
				assert.Zero(t, w.Count(bmc.CommandOn))
				stop()
				took := l.all()
				at := slices.IndexFunc(took, func(ev event.Event) bool { return ev.Action == remediate.IsolateNode })
				require.NotEqual(t, -1, at)
				assert.Contains(t, took[at].Inputs, ` proof=Human by="ada (uid 1000)" proven=false`, "nobody takes it for a reading")
			})
		})
	}
}

// A run that is Held because it has no proof accepts the confirmation.
func TestConfirmOffOfAHeldRun(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, nil)
		r := until(t, e, remediate.PowerOff)
		_, err := e.ConfirmOff(t.Context(), byHand)
		refusedFor(t, err, reason.OrderRefused)
		w.dead()
		until(t, e, remediate.Held)
		require.Zero(t, w.Isolations())
		_, err = e.ConfirmOff(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		got := only(t, e)
		assert.Equal(t, r.ID, got.ID)
		assert.Equal(t, "ConfirmedOff", string(got.Reason), got.Note)
		assert.Equal(t, 1, w.Isolations())

		w.SetPower(true) // somebody mends the mains, and the host boots
		w.FailReads(nil)
		time.Sleep(20 * time.Minute)
		got = only(t, e)
		assert.Equal(t, remediate.Done, got.Step, "%s: %s", got.Reason, got.Note)
		assert.NotNil(t, got.Confirmed, "for ever")
		assert.True(t, w.Restored())
		stop()
	})
}

// A manual confirmation is refused if evidence contradicts it, or if a gate that is not
// about the BMC fails. // I26
func TestConfirmOffIsRefused(t *testing.T) {
	for code, change := range map[reason.Code]func(w *world, e *engine.Engine){
		reason.ConfirmedOffContradicted: func(w *world, _ *engine.Engine) { w.SetPower(true); w.FailReads(nil) },
		reason.Contested:                func(w *world, _ *engine.Engine) { w.setContested(remediate.Yes) },
		reason.NotSynced:                func(w *world, _ *engine.Engine) { w.setUnsynced(true) },
	} {
		t.Run(string(code), func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.pauseCheck()
				w.dead()
				e, _, stop := start(t, w, store, nil)
				time.Sleep(time.Second)
				change(w, e)
				_, err := e.ConfirmOff(t.Context(), byHand)
				refusedFor(t, err, code)
				assert.Empty(t, e.Runs("c"))
				assert.Zero(t, w.Isolations())
				stop()
			})
		})
	}
	for name, seen := range map[string]func(w *world){
		"Ready":     func(w *world) { w.SetReady("True") },
		"renewing":  func(w *world) { w.SetLeaseMoving(true) },
		"coming on": func(w *world) { w.SetBootTime(never); w.SetPower(true); w.FailReads(nil) }, // the BMC alone says so
	} {
		t.Run("later seen "+name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.pauseCheck()
				w.dead()
				e, _, stop := start(t, w, store, nil)
				time.Sleep(time.Second)
				_, err := e.ConfirmOff(t.Context(), byHand)
				require.NoError(t, err)
				time.Sleep(5 * time.Second) // the Lease must stand still for longer
				seen(w)
				time.Sleep(5 * time.Minute)
				r := only(t, e)
				assert.Equal(t, string(reason.ConfirmedOffContradicted), string(r.Reason), r.Note)
				assert.Zero(t, w.Isolations())
				stop()
			})
		})
	}
}

// A pause and a hold also refuse a manual confirmation.
func TestConfirmOffRespectsStops(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.pauseCheck()
		w.dead()
		e, _, stop := start(t, w, store, nil)
		time.Sleep(time.Second)
		_, err := e.Hold(t.Context(), byHand)
		require.NoError(t, err)
		_, err = e.ConfirmOff(t.Context(), byHand)
		refusedFor(t, err, reason.Hold)
		_, err = e.Pause(t.Context(), byHand)
		require.NoError(t, err)
		_, err = e.ConfirmOff(t.Context(), byHand)
		refusedFor(t, err, reason.Paused)
		stop()
	})
}
