package sweep

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/reason"
)

// The newest result of a host is the one that bmc list shows.
func TestLastChecksAreThoseOfTheList(t *testing.T) {
	w := newWorld()
	w.host(1)
	w.host(2).err = &bmc.Error{Kind: bmc.KindAuth, Err: assert.AnError}
	w.host(3).uuid = "4c4c4544-0042-3510-8052-ffffffffffff"
	w.run(t, func(t *testing.T) {
		w.wait(time.Millisecond)
		require.Len(t, w.sweep.LastChecks("prod", "prod/n-1"), 1)
		assert.Zero(t, w.sweep.LastChecks("prod", "prod/n-1")[0].At, "not checked yet")
		w.wait(5 * time.Minute)
		for n, want := range map[int]hosts.LastCheck{
			1: {Power: bmc.On, Identity: guard.IdentityMatches},
			2: {Reason: "BMCAuth"},
			3: {Power: bmc.On, Identity: guard.IdentityDiffers},
		} {
			r := w.result(t, n)
			last := w.sweep.LastChecks("prod", r.Host)
			require.Len(t, last, 1)
			got := last[0]
			assert.Equal(t, want, hosts.LastCheck{Power: got.Power, Identity: got.Identity, Reason: got.Reason}, r.Host)
			assert.Equal(t, r.Checked, got.At)
			assert.Equal(t, r.UUID, got.UUID)
		}
		assert.Empty(t, w.sweep.LastChecks("dev", "prod/n-1"))
	})
}

// A BMC that answers, and that nothing proves to be the Node's, is not dependable: a fence would be
// refused. Of a host without a Node, and where identities are not compared, that says nothing.
func TestUnprovenIdentityIsNotDependable(t *testing.T) {
	w := newWorld()
	for n := range 3 {
		w.host(n + 1).uuid = ""
	}
	w.subjects[1].Host.IdentityMode = "off"
	w.subjects[2].Node = ""
	w.run(t, func(t *testing.T) {
		w.wait(5 * time.Minute)
		unproven := w.result(t, 1)
		assert.False(t, unproven.Dependable)
		assert.Equal(t, reason.IdentityUnknown, unproven.Reason)
		assert.Equal(t, StateUnproven, unproven.State)
		assert.True(t, w.result(t, 2).Dependable)
		_, doubtful := w.sweep.Tally()
		assert.Equal(t, map[string]int{"prod": 1}, doubtful)
	})
}

// An empty list would read as that all is well.
func TestWhatWasNotSeenYetIsNotHealthy(t *testing.T) {
	w := newWorld()
	_, err := New(Options{Engine: w, Concurrency: 1}).Results(t.Context(), "")
	var refusal *reason.Refusal
	require.ErrorAs(t, err, &refusal)
	assert.Equal(t, reason.NotSynced, refusal.Reason)

	w.subjects = []hosts.Subject{{Cluster: "prod", Err: &reason.Refusal{Reason: reason.NotSynced, Message: "not seen whole"}}}
	w.run(t, func(t *testing.T) {
		w.wait(time.Second)
		all := w.results(t, "")
		require.Len(t, all, 1)
		assert.False(t, all[0].Dependable)
		assert.Equal(t, reason.NotSynced, all[0].Reason)
		assert.Equal(t, StateUnchecked, all[0].State)
		_, bad := w.sweep.Tally()
		assert.Empty(t, bad, "nothing is known to be bad")

		w.change(func() { w.subjects = nil })
		w.host(1)
		w.wait(emptyRefresh)
		assert.Equal(t, "n-1", w.results(t, "")[0].Node, "it is looked at again soon")
	})
}

func TestPercentile95(t *testing.T) {
	assert.Zero(t, percentile95(nil))
	assert.Equal(t, time.Second, percentile95([]time.Duration{time.Second}))
	var all []time.Duration
	for i := range 20 {
		all = append(all, time.Duration(20-i))
	}
	assert.Equal(t, time.Duration(19), percentile95(all))
}
