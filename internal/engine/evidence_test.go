package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// patient is a policy that waits an hour, unless the BMC reads Off.
func patient() policy.Check {
	p := nodePolicy()
	p.Conditions[0].Timeout, p.ShortenOnEvidence = time.Hour, true
	return p
}

func TestHostThatReadsOffIsNotWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetPower(false)
		e, _, stop := start(t, w, store, withPolicy(w, patient()))
		time.Sleep(6 * time.Minute)
		r := only(t, e)
		assert.Equal(t, remediate.Done, r.Step, "%s: %s", r.Reason, r.Note)
		assert.True(t, r.FoundOff)
		stop()
	})
}

// An outlet that reads Off shortens no wait, even if it is enrolled.
func TestOutletThatReadsOffIsNoEvidence(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.ChangeEntry(func(h *bmc.Host) { h.Levels = h.Levels[1:] })
		file := withPolicy(w, patient())
		e, stop := enrolled(t, w, store, func(o *engine.Options) { levels(o); file(o) })
		_, err := p.Send(t.Context(), bmc.CommandOff) // by another hand
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		stop()
	})
}

// The BMC is read at a limited rate, and On shortens no wait.
func TestHostThatReadsOnIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, _, stop := start(t, w, store, withPolicy(w, patient()))
		time.Sleep(10 * time.Minute)
		assert.Empty(t, e.Runs("c"))
		reads := w.Reads()
		assert.InDelta(t, 41, reads, 2, "one look each 15 s")
		stop()
	})
}

// A reading gets too old: a BMC that stops answering proves nothing any longer.
func TestOldReadingNoLongerCounts(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetPower(false)
		w.setContested(remediate.Yes) // keeps the run from being begun
		e, _, stop := start(t, w, store, withPolicy(w, patient()))
		verdict := func() policy.Verdict {
			x, err := e.Explain(t.Context(), "c", "n-1")
			require.NoError(t, err)
			return x.Verdict
		}
		time.Sleep(10 * time.Minute)
		require.Equal(t, policy.Unhealthy, verdict(), "read again and again")
		w.FailReads(noAnswer())
		time.Sleep(20 * time.Second)
		assert.Equal(t, policy.Pending, verdict())
		assert.Empty(t, e.Runs("c"))
		stop()
	})
}

// The BMC of another machine shortens no wait, and an instance that only observes reads no
// BMC. // I8
func TestWaitIsShortenedOnlyWithIdentityAndWhenArmed(t *testing.T) {
	cases := map[string]func(*world, *engine.Options){
		"identity":  func(w *world, _ *engine.Options) { w.SetBMCUUID("4c4c4544-0042-3510-8054-b4c04f4d9999") },
		"observing": func(_ *world, o *engine.Options) { o.Clusters[0].Mode = guard.ModeObserve },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, store *failingStore) {
				w.SetPower(false)
				e, _, stop := start(t, w, store, func(o *engine.Options) {
					withPolicy(w, patient())(o)
					change(w, o)
				})
				time.Sleep(10 * time.Minute)
				assert.Empty(t, e.Runs("c"))
				assert.Equal(t, name == "observing", w.Reads() == 0)
				stop()
			})
		})
	}
}

// However many hosts a check waits for, each BMC is read in its turn.
func TestBMCsOfWaitingHostsAreReadInTurn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		crowd := inCrowd(w, 200)
		_, _, stop := start(t, w, store, func(o *engine.Options) {
			withPolicy(w, patient())(o)
			crowd.options(o)
		})
		time.Sleep(time.Minute)
		nodes, _ := crowd.counted()
		assert.Equal(t, 201, nodes)
		stop()
	})
}
