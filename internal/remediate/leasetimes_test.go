package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
)

// Whatever is written into a Lease, waits and deadlines that depend on it stay bounded, also those of a record of an
// older fenced. // I5, L1
func TestDurationOfALeaseIsCapped(t *testing.T) {
	for _, d := range []time.Duration{0, 40 * time.Second, LeaseDurationMax, LeaseDurationMax + sec, (1<<31 - 1) * time.Second} {
		l := Lease{Duration: d}
		assert.LessOrEqual(t, l.quietFor(), LeaseDurationMax/2)
		assert.LessOrEqual(t, l.recentFor(), LeaseDurationMax)
		assert.GreaterOrEqual(t, l.quietFor(), leaseQuietFor)
		assert.Equal(t, d > LeaseDurationMax, l.TooLong() != "")
		r, s := begin(PowerOff, sec)
		r.OffLease = &Lease{Known: true, ResourceVersion: "v1", RenewTime: noon.AddDate(900, 0, 0), Duration: d, Seen: noon}
		s.Lease = *r.OffLease
		assert.LessOrEqual(t, r.Deadline().Sub(noon), r.Limits.OffDeadline+LeaseDurationMax)
		later := noon.Add(l.quietFor())
		s.At, s.Proof = later, provenBy(noon).Add(bmc.Reading{State: bmc.Off, At: later})
		r, _, _ = Next(r, s, later)
		assert.Equal(t, DeleteNode, r.Step, "%s: %s: %s", d, r.Reason, r.Note)
	}
}
