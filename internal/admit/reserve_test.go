package admit

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Two candidates have passed all gates, and only one may start: reserve refuses the second
// if the first has used up a limit. // I11, I12
func TestReserveChecksAllLimits(t *testing.T) {
	for code, change := range map[reason.Code]func(l *guard.Limits, first, second *remediate.Run){
		"":                   func(*guard.Limits, *remediate.Run, *remediate.Run) {},
		reason.InFlightLimit: func(l *guard.Limits, _, _ *remediate.Run) { l.MaxInFlight = 1 },
		reason.ZoneInFlight:  func(l *guard.Limits, _, _ *remediate.Run) { l.MaxInFlightPerZone = 1 },
		reason.TotalInFlight: func(l *guard.Limits, _, _ *remediate.Run) { l.MaxInFlightTotal = 1 },
		reason.StartRate: func(l *guard.Limits, first, _ *remediate.Run) {
			l.MaxInFlight, l.StartsPerHour, first.Step = 1, 1, remediate.Held
		},
		reason.ControlPlaneBusy: func(_ *guard.Limits, first, second *remediate.Run) {
			first.ControlPlane, second.ControlPlane = true, true
		},
		reason.UnderRemediation: func(_ *guard.Limits, first, second *remediate.Run) { second.Target = first.Target },
	} {
		t.Run(string(code), func(t *testing.T) {
			l := guard.Limits{MaxInFlight: 5, MaxInFlightPercent: 100, MaxInFlightPerZone: 5, MaxInFlightTotal: 5, MaxFencesPerDay: 5, ZoneBreakerMin: 9, ZoneKey: "zone"}
			run := func(n int) remediate.Run {
				return remediate.Run{ID: fmt.Sprint("r", n), Step: remediate.PowerOff, Started: time.Now(), Strategy: remediate.PowerCycle,
					Target: remediate.Target{Cluster: "c", Node: fmt.Sprint("n-", n), Host: fmt.Sprint("h-", n)}}
			}
			first, second := run(1), run(2)
			change(&l, &first, &second)
			b := NewBook(BookOptions{Name: "c", Limits: NewLimits(l, remediate.Limits{})}, time.Now())
			nodes := map[string]*policy.Node{}
			for i := range 6 {
				n := &policy.Node{Name: fmt.Sprint("n-", i), UID: fmt.Sprint("u-", i), Labels: map[string]string{"zone": "z"}}
				nodes[n.Name] = n
				b.ledger.Apply(time.Now(), policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: n.Name}, Value: n})
			}
			require.NoError(t, b.reserve(candidate{draft: first, node: nodes["n-1"]}, first, 0, time.Time{}, time.Now()))
			err := b.reserve(candidate{draft: second, node: nodes["n-2"]}, second, 0, time.Time{}, time.Now())
			if code == "" {
				require.NoError(t, err)
				return
			}
			refusal, ok := errors.AsType[*reason.Refusal](err)
			require.True(t, ok, "%v", err)
			require.Equal(t, code, refusal.Reason)
			require.NotContains(t, b.runs.byID, "r2")
		})
	}
}

// A Node that a GitOps tool created again has no zone label, and the second attempt takes it for
// its target: the host still counts in the zone where the run began, and after a change of the
// owner, which does not know that zone, in every zone. So it does where the record of the run that deleted the
// Node is lost, and no kubelet has registered the new one yet. // I11
func TestZoneOfANodeWithoutItsLabel(t *testing.T) {
	const key = "zone"
	r := remediate.Run{ID: "r1", Step: remediate.PowerOff, Attempt: 1, Target: remediate.Target{Node: "n-1", NodeUID: "u-1"}}
	for _, c := range []struct {
		name     string
		attempt  int
		uid      string            // of the Node as it is now, which is also the target's
		node     map[string]string // its labels
		known    bool              // this daemon started the run, in zone a
		boot     string            // "" if no kubelet has registered it
		inA, inB bool
	}{
		{"as at the start", 1, "u-1", map[string]string{key: "a"}, true, "b", true, false},
		{"never had a label", 1, "u-1", nil, false, "b", false, false},
		{"created again", 2, "u-2", nil, true, "b", true, false},
		{"created again, the run lost, not registered", 1, "u-1", nil, false, "", true, true},
		{"created again with its label, not registered", 1, "u-1", map[string]string{key: "b"}, false, "", false, true},
		{"created again, another owner", 2, "u-2", nil, false, "b", true, true},
		{"another machine has its name", 2, "u-2", map[string]string{key: "b"}, true, "b", true, false},
		{"created again with its label", 2, "u-2", map[string]string{key: "b"}, false, "b", false, true},
	} {
		b := NewBook(BookOptions{Name: "c"}, time.Now())
		n := &policy.Node{Name: "n-1", UID: c.uid, Labels: c.node, BootID: c.boot}
		b.ledger.Apply(time.Now(), policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: n.Name}, Value: n})
		r.Attempt, r.Target.NodeUID = c.attempt, c.uid
		r.NodeLabels = nil
		if c.known {
			r.NodeLabels = map[string]string{key: "a"}
		}
		zone, known := zoneOf(b.ledger, key, &r)
		assert.Equal(t, c.inA, !known || zone == "a", "%s: zone a", c.name)
		assert.Equal(t, c.inB, !known || zone == "b", "%s: zone b", c.name)
	}
}
