package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/fake"
)

// losesOns is an outlet whose PDU loses every On for twelve minutes.
type losesOns struct {
	bmc.Power
	ons *atomic.Int32
}

func (l losesOns) Send(ctx context.Context, c bmc.Command) (bmc.Receipt, error) {
	if c == bmc.CommandOn && l.ons.Add(1) <= 12 {
		return bmc.Receipt{}, nil
	}
	return l.Power.Send(ctx, c)
}

// A BMC that reads On is a witness against the Off of an outlet, not a proof that the
// outlet is on again: a run that sent the outlet an Off stays Held until it has read it
// On. // I20
func TestOutletIsNotLeftOffBecauseTheBMCReadsOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, _ := withOutlet(w)
		p.Change(func(o *fake.Outlet) { o.FeedsAnother = true })
		w.SetFault(fake.IgnoresOff) // the host stays On, and its BMC says so
		e, stop := enrolled(t, w, store, opening(w.bmc(), losesOns{p, new(atomic.Int32)}))
		time.Sleep(4 * time.Minute)
		r := only(t, e)
		assert.Equal(t, "OutletContradicted", string(r.Reason))
		assert.Equal(t, "power level 2 (fence_apc_snmp://192.0.2.200#7) reads Off while ipmi://192.0.2.1:623 reads On: it may feed another machine", r.Note)
		w.SetReady("True") // the host was well after all
		time.Sleep(7 * time.Minute)
		assert.Equal(t, remediate.Held, only(t, e).Step, "the outlet is off")
		time.Sleep(13 * time.Minute)
		r = only(t, e)
		subject, err := e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		refusals := e.Forbidden(t.Context(), subject)
		stop()
		require.Len(t, refusals, 1, "the next run must not cut it again")
		assert.Equal(t, reason.NotEnrolled, refusals[0].Reason)
		assert.Contains(t, refusals[0].Message, "power level 2 read Off while a lower one read On")
		assert.Equal(t, remediate.Aborted, r.Step, "%s: %s", r.Reason, r.Note)
		assert.True(t, p.On())
		offs := 0
		for _, c := range p.Commands() {
			if c == bmc.CommandOff {
				offs++
			}
		}
		assert.Equal(t, 1, offs, "nothing was to be won by another")
		assert.Zero(t, w.Isolations())
	})
}
