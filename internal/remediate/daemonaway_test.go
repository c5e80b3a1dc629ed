package remediate

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// What was sent before nobody was there is not forgotten: a Node that registers while
// the host reads Off again is no lie of its BMC.
func TestTimeForOnBeginsAnew(t *testing.T) {
	r, s := begin(PowerOn, 10*minute)
	r.Isolated, r.Intent = ago(9*minute), Intent{SendOn, ago(8 * minute)}
	s.Node = Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: r.Target.SystemUUID}
	visits := len(r.Steps)
	next, action, _ := Next(r, s, noon)
	require.Equal(t, PowerOn, next.Step)
	assert.Equal(t, Nothing, action)
	assert.Equal(t, noon.Add(r.Limits.OnDeadline), next.Deadline())
	assert.Len(t, next.Steps, visits+1)
	assert.Equal(t, daemonAwayNote, next.Steps[visits-1].Note)

	s.At = noon.Add(pauseBeforeOn)
	next, action, _ = Next(next, s, s.At)
	assert.Equal(t, SendOn, action, "and not Held for a false Off: %s", next.Reason)
}

// No command reaches an outlet that hosts.d no longer names: the time for On does not begin anew for ever, and a
// person is called. // I10, L1
func TestTimeForOnEndsWhereTheAddressHasChanged(t *testing.T) {
	r, s := begin(PowerOn, 10*minute)
	r.Isolated = ago(9 * minute)
	s.Node = Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: r.Target.SystemUUID}
	s.LevelRefusal, s.Power, s.PowerError = reason.AddressChanged, bmc.Reading{}, bmc.KindUnreachable
	next, action, _ := Next(r, s, noon)
	assert.Equal(t, Held, next.Step)
	assert.Equal(t, reason.AddressChanged, next.Reason)
	assert.Equal(t, Nothing, action)
}
