package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
)

// stranger is an outlet that was enrolled for n-1 and feeds something else. Its PDU
// loses every On for twelve minutes.
type stranger struct{ *outlet }

func (s stranger) Send(_ context.Context, c bmc.Command) (bmc.Receipt, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.sent = append(s.sent, c)
	ons := 0
	for _, each := range s.sent {
		if each == bmc.CommandOn {
			ons++
		}
	}
	if c == bmc.CommandOff || ons > 12 {
		s.cut = c == bmc.CommandOff
	}
	return bmc.Receipt{}, nil
}

// A BMC that reads On is a witness against the outlet's Off, not a proof that the
// outlet is back: a run that gave it an Off is Held until it has read it On. // I20
func TestOutletIsNotLeftOffBecauseTheBMCReadsOn(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withOutlet(w)
		w.ignoreOff = true // the host stays On, and its BMC says so
		e, stop := enrolled(t, w, store, func(o *engine.Options) {
			levels(o)
			o.Open = func(d bmc.Device) (bmc.Power, error) {
				if d.Driver == bmc.DriverFenceAgent {
					return stranger{p}, nil
				}
				return power{w}, nil
			}
		})
		time.Sleep(4 * time.Minute)
		r := only(t, e)
		assert.Equal(t, "OutletContradicted", r.Reason)
		assert.Equal(t, "power level 2 (fence_apc_snmp://192.0.2.200#7) reads Off while ipmi://192.0.2.1:623 reads On: it may feed another machine", r.Note)
		w.mu.Lock()
		w.ready, w.rv = "True", w.rv+1 // the host was well after all
		w.mu.Unlock()
		time.Sleep(7 * time.Minute)
		assert.Equal(t, remediate.Held, only(t, e).Step, "the outlet is off")
		time.Sleep(13 * time.Minute)
		r = only(t, e)
		subject, err := e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		refusals := e.Quarantine(t.Context(), subject)
		stop()
		require.Len(t, refusals, 1, "the next run must not cut it again")
		assert.Equal(t, policy.NotEnrolled, refusals[0].Reason)
		assert.Contains(t, refusals[0].Message, "power level 2 read Off while a lower one read On")
		assert.Equal(t, remediate.Aborted, r.Step, "%s: %s", r.Reason, r.Note)
		assert.False(t, p.cut)
		offs := 0
		for _, c := range p.sent {
			if c == bmc.CommandOff {
				offs++
			}
		}
		assert.Equal(t, 1, offs, "nothing was to be won by another")
		assert.Zero(t, w.deleted())
	})
}
