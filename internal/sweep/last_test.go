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
