package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/test/fake"
)

// writeLease has somebody write the Lease of n-1, with any time and duration.
func writeLease(w *world, renewed time.Time, duration time.Duration) {
	w.Do(func(s *fake.State) {
		s.Leases["n-1"] = fake.Lease{Version: s.Leases["n-1"].Version + 1, Renewed: renewed, Duration: duration}
	})
}

// longestLease is leaseDurationSeconds: 2147483647.
const longestLease = (1<<31 - 1) * time.Second

// No power is cut on a host of which nobody can wait until its kubelet has missed a renewal. A shorter
// duration, or no Lease, lets it be fenced. // I5
func TestTooLongLeaseIsRefusedBeforeTheFirstOff(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.Do(func(s *fake.State) { s.Host("n-1").LeaseFor = longestLease })
		writeLease(w, time.Now().Add(-time.Minute), longestLease)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(10 * time.Minute)
		assert.Zero(t, w.Count(bmc.CommandOff))
		g := gate(t, e, reason.LeaseTooLong)
		assert.False(t, g.Pass)
		assert.Contains(t, g.Value, "leaseDurationSeconds of the Node's Lease is 2147483647")
		_, err := e.Fence(t.Context(), byHand)
		refusedFor(t, err, reason.LeaseTooLong)
		writeLease(w, time.Now().Add(-time.Hour), 40*time.Second)
		time.Sleep(3 * time.Minute)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		stop()
	})
}

// A duration that is written once the Off was sent delays the isolation by half of the longest duration that
// fenced waits for, and no more. // I5, L1
func TestLeaseWrittenAfterTheOffDelaysNoLongerThanTheCap(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		written := false
		w.OnLook(func(int) { // the first look after the Off
			if !written && w.Count(bmc.CommandOff) > 0 {
				written = true
				writeLease(w, time.Now(), longestLease)
			}
		})
		e, _, stop := start(t, w, store, nil)
		time.Sleep(untilOff + times.LongestLease/4)
		require.Zero(t, w.Isolations())
		time.Sleep(times.LongestLease/4 + 20*time.Second)
		assert.Equal(t, 1, w.Isolations(), "%s: %s", only(t, e).Reason, only(t, e).Note)
		stop()
	})
}

// A Lease that was renewed in the year 2999 is one that stands still: its Node is fenced as soon as fenced has seen it
// unchanged for a minute. // I4
func TestLeaseOfTheYear2999EscapesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		writeLease(w, time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), 40*time.Second)
		e, _, stop := start(t, w, store, nil)
		time.Sleep(untilOff)
		assert.False(t, gate(t, e, reason.NodeAlive).Pass, "one observation does not tell")
		assert.Zero(t, w.Count(bmc.CommandOff))
		time.Sleep(2 * time.Minute)
		assert.Equal(t, 1, w.Count(bmc.CommandOff))
		assert.Equal(t, 1, w.Isolations())
		stop()
	})
}
