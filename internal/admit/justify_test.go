package admit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// Only the host's own, identified BMC shortens a wait.
func TestOnlyTheOwnBMCShortensAWait(t *testing.T) {
	off := remediate.Observation{ProofKind: remediate.ProofBMC, Power: bmc.Reading{State: bmc.Off}, Identity: remediate.Yes}
	assert.True(t, ownBMCReadsOff(off))
	for name, spoil := range map[string]func(*remediate.Observation){
		"a further level": func(s *remediate.Observation) { s.Level = 1 },
		"an outlet":       func(s *remediate.Observation) { s.ProofKind = remediate.ProofDevice },
		"On":              func(s *remediate.Observation) { s.Power.State = bmc.On },
		"a stranger":      func(s *remediate.Observation) { s.Identity = remediate.CannotTell },
	} {
		s := off
		spoil(&s)
		assert.False(t, ownBMCReadsOff(s), name)
	}
}

// An order to fence by hand needs no check, but it is given once: what an old backup or a reboot has overtaken
// justifies no Off. // I4
func TestOrderOfAHostThatHasBootedSince(t *testing.T) {
	now := time.Now()
	r := remediate.Run{Attempt: 1, Intervened: true, Manual: &remediate.Order{At: now.Add(-time.Minute)}, Target: remediate.Target{Node: "n", NodeUID: "u", BootID: "b1"}}
	seen := remediate.Observation{Node: remediate.Node{Exists: remediate.Yes, UID: "u", BootID: "b2", Ready: remediate.Yes}}
	for name, c := range map[string]struct {
		change func(r *remediate.Run, n *remediate.Node)
		want   remediate.Answer
	}{
		"it works after another boot":      {func(*remediate.Run, *remediate.Node) {}, remediate.No},
		"nothing was switched yet":         {func(r *remediate.Run, _ *remediate.Node) { r.Intervened = false }, remediate.Yes},
		"a person has it begin again":      {func(r *remediate.Run, _ *remediate.Node) { r.Revalidate = true }, remediate.Yes},
		"in a later attempt":               {func(r *remediate.Run, _ *remediate.Node) { r.Attempt = 2 }, remediate.Yes},
		"after the isolation":              {func(r *remediate.Run, _ *remediate.Node) { r.Isolated = now }, remediate.Yes},
		"its Node is not Ready":            {func(_ *remediate.Run, n *remediate.Node) { n.Ready = remediate.No }, remediate.Yes},
		"the same boot":                    {func(_ *remediate.Run, n *remediate.Node) { n.BootID = "b1" }, remediate.Yes},
		"nobody knows which boot it had":   {func(r *remediate.Run, _ *remediate.Node) { r.Target.BootID = "" }, remediate.Yes},
		"nobody knows which boot it is in": {func(_ *remediate.Run, n *remediate.Node) { n.BootID = "" }, remediate.Yes},
	} {
		r, s := r, seen
		c.change(&r, &s.Node)
		got, _ := (&runCluster{}).Justified(r, run.Fresh{}, s, now)
		assert.Equal(t, c.want, got, name)
	}
}

func TestWithDetail(t *testing.T) {
	assert.Equal(t, "not synced yet", withDetail("not synced yet", ""))
	assert.Equal(t, "not synced yet; refused", withDetail("not synced yet", "refused"))
}
