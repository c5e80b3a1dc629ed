package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/escalate"
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
			b := New(Options{Name: "c", Limits: NewLimits(l, remediate.Limits{})}, time.Now())
			nodes := map[string]*policy.Node{}
			for i := range 6 {
				n := &policy.Node{Name: fmt.Sprint("n-", i), UID: fmt.Sprint("u-", i), Labels: map[string]string{"zone": "z"}}
				nodes[n.Name] = n
				b.ledger.Apply(time.Now(), policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: n.Name}, Value: n})
			}
			require.NoError(t, b.Reserve(Candidate{Draft: first, Node: nodes["n-1"]}, first, 0, time.Time{}, time.Now()))
			err := b.Reserve(Candidate{Draft: second, Node: nodes["n-2"]}, second, 0, time.Time{}, time.Now())
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

// ownTemplate is one that fenced carries out itself.
var ownTemplate = policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Namespace: "ns", Name: "power"}

// Between the gates of a candidate and its place, the check may have changed its mind, and somebody else may have
// begun. That is asked of a new run, and of a Waiting run that begins again, as of what another remediator is asked
// (TestReserveAsksTheCheckAgain). // I4, I11, I22
func TestReserveAsksForARunAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*asking)
		code   reason.Code
	}{
		"as before":                  {func(*asking) {}, ""},
		"recovered":                  {func(a *asking) { a.node("n", "True") }, reason.NotUnhealthy},
		"left to another remediator": {func(a *asking) { a.check.Template = &reboot; a.put() }, reason.NotUnhealthy},
		"over the limit": {func(a *asking) {
			a.check.MaxUnhealthy = &intstr.IntOrString{IntVal: 1}
			a.put()
			a.node("second", "Unknown")
		}, reason.ShortCircuit},
		"the check is gone":           {func(a *asking) { a.b.ledger.Apply(a.now, policy.Change{ID: checkObject(&a.check)}) }, reason.NotUnhealthy},
		"another Machine of its name": {func(a *asking) { a.machine("n", "2") }, reason.NotUnhealthy},
		"another remediator is at work on the host": {func(a *asking) {
			a.b.Put(escalate.Record{ID: "9", Objects: []escalate.Object{{Kind: "K"}}, Target: remediate.Target{Cluster: "c", Node: "before", SystemUUID: "33221100-5544-7766-8899-aabbccddeeff"}})
		}, reason.AlreadyRequested},
		"a run is open on the host": {func(a *asking) {
			a.b.Model.Put(remediate.Run{ID: "9", Step: remediate.PowerOff, Target: remediate.Target{Cluster: "c", Node: "before", SystemUUID: "33221100-5544-7766-8899-aabbccddeeff"}})
		}, reason.UnderRemediation},
		"the cluster is being removed": {func(a *asking) { a.b.closed = true }, reason.NotOwner},
	} {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", waiting: ", waits), func(t *testing.T) {
				a := newAsking(manyLimits())
				a.check.Template = &ownTemplate
				a.put()
				a.machine("n", "1")
				a.node("n", "Unknown", func(n *policy.Node) {
					n.SystemUUID, n.OpenShiftMachine = "00112233-4455-6677-8899-aabbccddeeff", "ns/n"
				})
				before := a.candidate(t, "n")
				before.Draft.ID = "r"
				require.Equal(t, "1", before.Draft.Target.MachineUID)
				reserve := func() error { return a.b.Model.Reserve(before, before.Draft, 0, time.Time{}, a.now) }
				if waits {
					due := before.Draft
					due.Version, due.Attempt, due.Step, due.Wait = 1, 1, remediate.Waiting, &remediate.Wait{Due: true}
					a.b.Model.Put(due)
					waiting := WaitingRuns{a.b.Model}
					before = waiting.Candidate(due)
					require.Empty(t, waiting.StillAsked(before, a.now))
					reserve = func() error { return waiting.Reserve(before, 0, time.Time{}, a.now) }
				}
				c.change(a)
				err := reserve()
				if c.code == "" {
					require.NoError(t, err)
					return
				}
				assert.Equal(t, c.code, refusedFor(t, err))
				assert.Empty(t, a.b.runs.reserved)
			})
		}
	}
}
