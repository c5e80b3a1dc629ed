package admit

import (
	"errors"
	"fmt"
	"testing"
	"time"

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
