package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/reason"
)

// Beside an active confirmation, the BMC takes the Off and reads Off twice, and then the
// Lease moves: the BMC has lied, and is frozen, whatever the person said. // I5
func TestBMCThatLiesBesideAWordIsFalseOff(t *testing.T) {
	lied := func(in Step) (Run, Observation) {
		r, s := begin(in, 20*sec)
		confirm(&r)
		r.Confirmation = &OffConfirmation{Given: r.Confirmed.At, Since: ago(minute), Lease: Lease{Known: true, ResourceVersion: "v1", RenewTime: ago(minute)}}
		if in == DeleteNode {
			r.Proof = ProofBMC
		}
		s.Lease.ResourceVersion = "v2"
		return r, s
	}
	for _, in := range []Step{PowerOff, DeleteNode} {
		r, s := lied(in)
		got, _, _ := Next(r, s, noon)
		assert.Equal(t, Held, got.Step, in)
		assert.Equal(t, reason.FalseOff, got.Reason, "in %s: %s", in, got.Note)

		on(&s)
		got, _, _ = Next(r, s, noon)
		assert.Equal(t, reason.ConfirmedOffContradicted, got.Reason, "in %s: who reads On does not lie", in)
	}
	r, s := lied(DeleteNode)
	r.Proof = ProofHuman
	unread(&s, bmc.KindUnreachable)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, reason.ConfirmedOffContradicted, got.Reason, "no BMC has said that the host is off")
}

// A run that comes back from step 2 has nothing from a BMC; what the Lease was when the
// word was given does not make one a liar. // I5
func TestLeaseOfAWordIsNoOffRead(t *testing.T) {
	r, s := begin(DeleteNode, sec)
	confirmedFor(minute)(&r, &s)
	r.Proof = ProofHuman
	metal3(&r, &s, No)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, PowerOff, got.Step)
	assert.Nil(t, got.OffLease)
	assert.Empty(t, got.Proof)
}

// confirmationLies are the searches of BMCs that lie beside a confirmation.
var confirmationLies = []variant{
	{name: "confirmed: wrong, and the BMC lies", states: 3_200, confirmedAtStart: true, mistaken: true, sick: true, ignoresOff: true, lieFor: 100, faults: join(crashes, []fault{lie, lostPower, lostAPI}), budget: 2, want: "Held ConfirmedOffContradicted"},
	{name: "confirmed: wrong, and the BMC lies, Metal3", states: 1_000, confirmedAtStart: true, mistaken: true, sick: true, ignoresOff: true, bmh: true, lieFor: 100, faults: join(crashes, []fault{lie, pause}), budget: 2, want: "Held ConfirmedOffContradicted"},
}

var confirmationLieMutants = []mutant{
	{"believes a BMC beside a confirmation", "I5: a BMC that lies beside a confirmation", variant{name: "m", confirmedAtStart: true, mistaken: true, sick: true, ignoresOff: true, lieFor: 100, faults: []fault{lie}, budget: 1}, saying(func(r Run, s Observation, r2 *Run, _ *Action, _ time.Time) {
		if confirmationActive(r) && r2.Reason == reason.FalseOff {
			*r2, _, _ = holdContradicted(r, "the Node's Lease was renewed since", clock(0))
		}
	})},
}
