package engine_test

import (
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/fake"
)

// withLPAR gives the host a second level whose plug is one of several systems'.
func withLPAR(w *world) (*fake.OutletHandle, func(*engine.Options)) {
	p, levels := withOutlet(w)
	w.ChangeEntry(func(h *bmc.Host) {
		d := &h.Levels[1].Devices[0]
		d.Agent, d.Parameters = "fence_lpar", map[string]string{"plug": "node1", "managed": "system-a"}
	})
	return p, levels
}

// choose changes a parameter of the second level's device.
func (w *world) choose(name, value string) {
	w.ChangeEntry(func(h *bmc.Host) {
		d := &h.Levels[1].Devices[0]
		d.Parameters = maps.Clone(d.Parameters)
		d.Parameters[name] = value
	})
}

// The parameters that select the machine behind an address are part of the enrolment,
// whatever the agent calls them: managed of fence_lpar, zone of fence_gce, target of
// fence_ipmilan. // I8, I10
func TestEnrolmentEndsWithTheParameters(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		_, levels := withLPAR(w)
		e, stop := enrolled(t, w, store, levels)
		verdict := func() guard.IdentityVerdict {
			s, err := e.SubjectOf(t.Context(), "c", "n-1")
			require.NoError(t, err)
			return e.Identify(t.Context(), s, 1, 0, bmc.Reading{})
		}
		require.Equal(t, guard.IdentityMatches, verdict())
		w.choose("managed", "system-b")
		assert.Equal(t, guard.IdentityNotEnrolled, verdict(), "node1 of system-b was never enrolled")
		_, err := e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		assert.Equal(t, guard.IdentityMatches, verdict())
		stop()
	})
}

// An enrolment from before parameters were stored does not count for a device that reports
// no identity. It still counts for one that does.
func TestOldEnrolmentWithoutParameters(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		host := w.Entry()
		_, levels := withLPAR(w)
		e, stop := enrolled(t, w, store, levels)
		older := func() {
			p := pinOf(t, store, "c/n-1")
			p.Choice = ""
			_, err := state.SavePin(t.Context(), store, p)
			require.NoError(t, err)
			store.syncChanges()
		}
		older()
		s, err := e.SubjectOf(t.Context(), "c", "n-1")
		require.NoError(t, err)
		assert.Equal(t, guard.IdentityNotEnrolled, e.Identify(t.Context(), s, 1, 0, bmc.Reading{}))
		host.IdentityMode = "pinned"
		w.ChangeEntry(func(h *bmc.Host) { *h = host })
		_, err = e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		older()
		assert.Equal(t, guard.IdentityMatches, checked(t, e, hostUUID, "").Identity)
		stop()
	})
}

// A run continues with the parameters with which it started, and with no others, even if
// others are enrolled meanwhile. // I10
func TestRunDoesNotFollowOtherParameters(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		p, levels := withLPAR(w)
		w.SetFault(fake.IgnoresOff)
		e, stop := enrolled(t, w, store, levels)
		time.Sleep(untilOff)
		require.Zero(t, only(t, e).Level)
		w.choose("managed", "system-b")
		_, err := e.Enroll(t.Context(), byHand)
		require.NoError(t, err)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Held, only(t, e).Step)
		assert.Empty(t, p.Commands(), "node1 of system-b is another machine")
		stop()
	})
}
