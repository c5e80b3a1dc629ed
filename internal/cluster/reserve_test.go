package cluster

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/test/must"
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
				n := &policy.Node{Name: fmt.Sprint("n-", i), UID: fmt.Sprint("u-", i), Labels: policy.LabelsOf(map[string]string{"zone": "z"})}
				nodes[n.Name] = n
				b.Objects.ledger.Apply(time.Now(), policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: n.Name}, Value: n})
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
			require.NotContains(t, b.Runs.byID, "r2")
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
		"the check is gone":           {func(a *asking) { a.b.Objects.ledger.Apply(a.now, policy.Change{ID: checkObject(&a.check)}) }, reason.NotUnhealthy},
		"another Machine of its name": {func(a *asking) { a.machine("n", "2") }, reason.NotUnhealthy},
		"another remediator is at work on the host": {func(a *asking) {
			a.b.Runs.PutRepair(Repair{ID: "9", By: "K", Target: remediate.Target{Cluster: "c", Node: "before", SystemUUID: "33221100-5544-7766-8899-aabbccddeeff"}})
		}, reason.AlreadyRequested},
		"a run is open on the host": {func(a *asking) {
			a.b.Runs.Put(remediate.Run{ID: "9", Step: remediate.PowerOff, Target: remediate.Target{Cluster: "c", Node: "before", SystemUUID: "33221100-5544-7766-8899-aabbccddeeff"}})
		}, reason.UnderRemediation},
		"the cluster is being removed": {func(a *asking) { a.b.Runs.closed = true }, reason.NotOwner},
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
				reserve := func() error { return a.b.Reserve(before, before.Draft, 0, time.Time{}, a.now) }
				if waits {
					due := before.Draft
					due.Version, due.Attempt, due.Step, due.Wait = 1, 1, remediate.Waiting, &remediate.Wait{Due: true}
					a.b.Runs.Put(due)
					waiting := a.b
					before = waiting.Objects.CandidateForRetry(due)
					require.Empty(t, waiting.StillAsked(before, a.now))
					reserve = func() error { return waiting.ReserveRetry(before, 0, time.Time{}, a.now) }
				}
				c.change(a)
				err := reserve()
				if c.code == "" {
					require.NoError(t, err)
					return
				}
				assert.Equal(t, c.code, refusedFor(t, err))
				assert.Empty(t, a.b.Runs.reserved)
			})
		}
	}
}

// The Node that only a Machine names, whose deletion is open, closes no limit of the checks of Nodes. // I11
func TestNodeThatNeverWasIsNotCounted(t *testing.T) {
	ghost := remediate.Run{ID: "r1", Strategy: remediate.DeleteMachine, Step: remediate.PowerOff, Started: time.Now(),
		Target: remediate.Target{Namespace: "tenant", Machine: "m", MachineUID: "u", MachineAPI: policy.OpenShiftMachineAPI, Node: "ghost"}}
	assert.True(t, ghost.Open())
	assert.Equal(t, policy.OpenRun{ID: "r1", Machine: "tenant/m", MachineAPI: policy.OpenShiftMachineAPI}, openTarget(&ghost))
	for name, change := range map[string]func(*remediate.Run){
		"the Node was there":                func(r *remediate.Run) { r.Target.NodeUID = "n" },
		"a run had deleted it":              func(r *remediate.Run) { r.NodeLabels = map[string]string{"a": "b"} },
		"its host is switched off":          func(r *remediate.Run) { r.Strategy = remediate.PowerCycle },
		"the quorum depends on it":          func(r *remediate.Run) { r.ControlPlane = true },
		"without a Machine nobody names it": func(r *remediate.Run) { r.Target.Machine = "" },
	} {
		r := ghost
		change(&r)
		assert.Equal(t, "ghost", openTarget(&r).Node, name)
	}
}

// Nor does the one of a Machine that another remediator was asked to repair. // I11
func TestNodeThatNeverWasIsNotCountedWhenHandedOver(t *testing.T) {
	ghost := func(id string) Repair {
		return Repair{ID: id, By: "Reboot of record " + id,
			Target: remediate.Target{Cluster: "c", Namespace: "tenant", Machine: id, MachineUID: "u", MachineAPI: policy.OpenShiftMachineAPI, Node: "ghost-" + id}}
	}
	a := newAsking(manyLimits())
	a.check.MaxUnhealthy = new(intstr.FromInt32(1))
	a.put()
	a.node("n", "Unknown")
	a.b.Runs.SetRepairs([]Repair{ghost("1"), ghost("2"), ghost("3")})
	assert.Equal(t, policy.OpenRun{ID: "of the remediator of Reboot of record 1", Machine: "tenant/1", MachineAPI: policy.OpenShiftMachineAPI}, a.b.Runs.openTargets()[0])
	a.candidate(t, "n")
	counted := a.b.Objects.ledger.Counters()
	require.Len(t, counted, 1)
	assert.Equal(t, []any{1, true}, []any{counted[0].Expected, counted[0].Allowed})
	for name, change := range map[string]func(*Repair){
		"the Node was there":                func(r *Repair) { r.Target.NodeUID = "n" },
		"its labels are known":              func(r *Repair) { r.NodeLabels = map[string]string{"a": "b"} },
		"the quorum depends on it":          func(r *Repair) { r.ControlPlane = true },
		"without a Machine nobody names it": func(r *Repair) { r.Target.Machine = "" },
	} {
		r := ghost("1")
		change(&r)
		a.b.Runs.SetRepairs([]Repair{r})
		assert.Equal(t, "ghost-1", a.b.Runs.openTargets()[0].Node, name)
	}
}

// Deleting the Node of a k3s or RKE2 server removes its etcd member. So a control-plane
// Node is tainted, unless the cluster is OpenShift or the configuration says otherwise. A
// check may ask for the taint, but not for the deletion.
func TestControlPlaneIsolation(t *testing.T) {
	const taint, remove = remediate.IsolateTaint, remediate.IsolateDelete
	for name, c := range map[string]struct {
		control  bool
		operator remediate.Isolation
		machine  string // apiVersion of the Machine
		check    policy.Check
		want     remediate.Isolation
	}{
		"a worker": {machine: policy.ClusterAPIV1Beta2, want: remove},
		"a worker whose check asks for the taint": {check: policy.Check{Isolation: string(taint)}, want: taint},
		"no Machine":                                 {control: true, want: taint},
		"Cluster API":                                {control: true, machine: policy.ClusterAPIV1Beta2, want: taint},
		"OpenShift by the Machine":                   {control: true, machine: policy.OpenShiftMachineAPI, want: remove},
		"OpenShift by the check":                     {control: true, check: policy.Check{APIVersion: policy.OpenShiftMachineAPI}, want: remove},
		"OpenShift, and the operator chose":          {control: true, operator: taint, machine: policy.OpenShiftMachineAPI, want: taint},
		"the operator chose":                         {control: true, operator: remove, machine: policy.ClusterAPIV1Beta2, want: remove},
		"a check that asks for the deletion":         {control: true, machine: policy.ClusterAPIV1Beta2, check: policy.Check{Isolation: string(remove)}, want: taint},
		"a check that asks for the taint":            {control: true, machine: policy.OpenShiftMachineAPI, check: policy.Check{Isolation: string(taint)}, want: taint},
		"a check for the taint against the operator": {control: true, operator: remove, check: policy.Check{Isolation: string(taint)}, want: taint},
	} {
		t.Run(name, func(t *testing.T) {
			d := Drafter{Isolation: remove, ControlPlaneIsolation: c.operator}
			r := remediate.Run{Isolation: remove, ControlPlane: c.control, Target: remediate.Target{MachineAPI: c.machine}}
			d.override(&r, &c.check)
			assert.Equal(t, c.want, r.Isolation)
		})
	}
}

// A check sets deadlines and attempts for its own runs. The others come from the
// configuration.
func TestCheckSetsTheLimitsOfItsRuns(t *testing.T) {
	base := remediate.Limits{OffDeadline: 1, OnDeadline: 2, ReadyTimeout: 3, RunTimeout: 4, MaxAttempts: 5}
	d := Drafter{}
	r := remediate.Run{Limits: base}
	d.override(&r, &policy.Check{})
	assert.Equal(t, base, r.Limits)
	check := &policy.Check{MaxAttempts: 9}
	check.Deadlines.PowerOff, check.Deadlines.PowerOn, check.Deadlines.NodeReady, check.Deadlines.Run = time.Second, 2*time.Second, 3*time.Second, 4*time.Second
	d.override(&r, check)
	assert.Equal(t, remediate.Limits{OffDeadline: time.Second, OnDeadline: 2 * time.Second, ReadyTimeout: 3 * time.Second, RunTimeout: 4 * time.Second, MaxAttempts: 9}, r.Limits)
}

// Where another template follows that of fenced, that one decides about the Machine. // I14
func TestNextTemplateDecidesAboutTheMachine(t *testing.T) {
	own := policy.Template{APIVersion: policy.FencedAPI, Kind: policy.FencedRemediationKind + "Template", Name: "power"}
	other := policy.Template{APIVersion: "example.com/v1", Kind: "RebootTemplate", Name: "next"}
	for name, c := range map[string]struct {
		templates []policy.Template
		replaces  bool
	}{
		"another follows":   {[]policy.Template{own, other}, false},
		"fenced comes last": {[]policy.Template{other, own}, true},
	} {
		check := &policy.Check{Kind: policy.NodeHealthCheckKind}
		for _, template := range c.templates {
			check.Escalation = append(check.Escalation, policy.Escalation{Template: template})
		}
		r := remediate.Run{Limits: remediate.Limits{Reprovision: true}}
		Drafter{}.override(&r, check)
		assert.Equal(t, c.replaces, r.Limits.Reprovision, name)
	}
}

// The limits of a run come from the configuration, the check and the target.
func TestLimitsOfADraft(t *testing.T) {
	draft := func(o Options, target policy.TargetReport) remediate.Limits {
		o.Draft.Limits = NewLimits(guard.Limits{}, remediate.Limits{ReadyTimeout: 10 * time.Minute})
		a, ok := New(o, time.Now()).CandidateForCheck(&policy.Check{Strategy: policy.PowerCycleHosts}, &target)
		assert.True(t, ok)
		return a.Draft.Limits
	}
	assert.Equal(t, remediate.Limits{ReadyTimeout: 10 * time.Minute}, draft(Options{}, policy.TargetReport{Node: "n", StartupTimeout: time.Minute}))
	assert.Equal(t, 20*time.Minute, draft(Options{}, policy.TargetReport{Node: "n", StartupTimeout: 20 * time.Minute}).ReadyTimeout, "the larger one")
	assert.True(t, draft(Options{Draft: Drafter{Reprovision: true}}, policy.TargetReport{Node: "n"}).Reprovision)
	assert.True(t, draft(Options{}, policy.TargetReport{Node: "n", Action: policy.MarkOwner}).ReplaceControlPlane, "its owner guards the quorum") // I14
	assert.True(t, draft(Options{Rules: policy.Rules{DeleteControlPlaneMachines: true}}, policy.TargetReport{Node: "n"}).ReplaceControlPlane)
	assert.False(t, draft(Options{}, policy.TargetReport{Node: "n", Action: policy.DeleteMachine}).ReplaceControlPlane)
}

// A request or a probe for the Machine of one API says nothing about the Machine of its name on another.
func TestTargetsOfTwoAPIsAreTwo(t *testing.T) {
	of := func(api string) string {
		return TargetKey(&policy.TargetReport{Machine: "prod/m", MachineAPIVersion: api})
	}
	assert.NotEqual(t, of(policy.OpenShiftMachineAPI), of(policy.ClusterAPIV1Beta2))
	assert.Equal(t, of(policy.ClusterAPIV1Beta1), of(policy.ClusterAPIV1Beta2))
}

// TestRunIDsAreNames: a run that is made can be named in an order.
func TestRunIDsAreNames(t *testing.T) {
	for _, at := range []time.Time{time.Now(), time.UnixMilli(1), time.Date(2500, 1, 1, 0, 0, 0, 0, time.UTC)} {
		id := NewRunID(at)
		require.NoError(t, api.CheckTarget(id))
	}
}

// Whether a Waiting run that is due may go on is asked as if that run did not exist. What other
// remediators were asked exists all the same: a budget counts their targets, and no check asks for
// more there. // I11, I22
func TestDueRunForgetsNoOtherRemediator(t *testing.T) {
	a := newAsking(manyLimits())
	a.check.Conditions = []policy.UnhealthyCondition{{Type: "Bad", Status: "True", Timeout: time.Minute}}
	a.put()
	a.b.Objects.ledger.Apply(a.now, policy.Change{
		ID:    policy.ObjectID{APIVersion: policy.FencedAPI, Kind: policy.DisruptionBudgetKind, Name: "b"},
		Value: &policy.DisruptionBudget{Name: "b", Selector: labels.SelectorFromSet(labels.Set{"in": "b"}), MaxUnavailable: intstr.FromInt32(1)},
	})
	for _, name := range []string{"n-1", "n-3"} { // each is Ready, so it counts only while somebody repairs it
		a.node(name, "True", func(n *policy.Node) {
			n.Labels = policy.LabelsOf(map[string]string{"in": "b"})
			n.Conditions = append(n.Conditions, policy.ConditionsOf([]policy.Condition{{Type: "Bad", Status: "True", LastTransition: a.now.Add(-time.Hour)}})...)
		})
	}
	a.node("n-9", "Unknown")
	must.Do(a.reserve(a.candidate(t, "n-1"), reboot))(t)
	due := remediate.Run{ID: "due", Attempt: 1, Step: remediate.Waiting, Wait: &remediate.Wait{Due: true}, Strategy: remediate.PowerCycle, Target: remediate.Target{Cluster: "c", Node: "n-9"}}
	a.b.Runs.Put(due)
	third := a.candidate(t, "n-3")
	_, err := a.reserve(third, reboot)
	require.Equal(t, reason.Budget, refusedFor(t, err))

	asks := func(node string) policy.TargetReport {
		t.Helper()
		a.b.Follow(a.now, nil, time.Time{})
		targets := a.b.Objects.ledger.ActingOn(a.check.ID(), node, a.now)
		if len(targets) == 0 {
			r, _, _ := a.b.Objects.WithTargets(a.check.ID(), a.now)
			for _, found := range r.Targets {
				if found.Node == node {
					return found
				}
			}
		}
		require.Len(t, targets, 1)
		return targets[0]
	}
	waiting := a.b
	waiting.StillAsked(waiting.Objects.CandidateForRetry(due), a.now)
	assert.Equal(t, reason.UnderRemediation, asks("n-1").Reason)
	assert.Equal(t, []reason.Code{reason.Budget}, asks("n-3").Refusals)
	_, err = a.reserve(third, reboot)
	assert.Equal(t, reason.Budget, refusedFor(t, err))
}

// A later attempt is justified by the one before. Only the limit of its check is asked again: meanwhile so many hosts
// may be down that no host may be switched off for that check. // I11
func TestLaterAttemptAsksTheLimitOfItsCheck(t *testing.T) {
	a := newAsking(manyLimits())
	a.check.MaxUnhealthy = new(intstr.FromInt32(2))
	a.put()
	due := remediate.Run{ID: "due", Attempt: 2, Step: remediate.Waiting, Reason: reason.AttemptsExhausted, Wait: &remediate.Wait{Due: true}, Isolated: a.now.Add(-time.Hour),
		Strategy: remediate.PowerCycle, Target: remediate.Target{Cluster: "c", Node: "n-1"}, NodeLabels: map[string]string{}, CheckID: CheckID(a.check.ID())}
	a.b.Runs.Put(due) // it has deleted its Node
	a.node("n-2", "Unknown")
	a.node("n-3", "True")
	waiting := a.b
	refused := func() []reason.Code {
		unlock := a.b.lock()
		a.b.applyOpenRuns(a.now)
		unlock()
		g, failing := FirstFailing(waiting.StillAsked(waiting.Objects.CandidateForRetry(due), a.now))
		if !failing {
			return nil
		}
		return []reason.Code{g.Reason}
	}
	assert.Empty(t, refused(), "two of three are not healthy")
	a.node("n-3", "Unknown")
	assert.Equal(t, []reason.Code{reason.ShortCircuit}, refused())
	a.node("n-3", "True")
	assert.Empty(t, refused())

	a.check.Invalid = "spec.maxUnhealthy: no number"
	a.put()
	assert.Equal(t, []reason.Code{reason.NotUnhealthy}, refused(), "nobody knows the limit")
	a.check.Invalid = ""
	a.put()
	assert.Empty(t, refused())
	a.b.Objects.ledger.Apply(a.now, policy.Change{ID: checkObject(&a.check)})
	assert.Equal(t, []reason.Code{reason.NotUnhealthy}, refused(), "nobody asks")
}

// The run of a request is the open one on its target, else its own newest one. A run that somebody
// else ordered has carried it out if it ended after the request was made.
func TestRunOfARequest(t *testing.T) {
	made := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	own := &remediate.Request{Kind: policy.FencedRemediationKind, UID: "u"}
	target := remediate.Target{Namespace: "ns", Machine: "m", MachineUID: "mu", Node: "n"}
	run := func(id string, step remediate.Step, ended time.Time, q *remediate.Request) remediate.Run {
		return remediate.Run{ID: id, Step: step, Ended: ended, Request: q, Target: target}
	}
	before, after := made.Add(-time.Minute), made.Add(time.Minute)
	for name, c := range map[string]struct {
		runs []remediate.Run
		want string
	}{
		"none":                                {nil, ""},
		"of a check, before":                  {[]remediate.Run{run("a", remediate.Done, before, nil)}, ""},
		"of a check, Done since":              {[]remediate.Run{run("a", remediate.Done, after, nil)}, "a"},
		"of a check, replaced since":          {[]remediate.Run{run("a", remediate.Reprovisioned, after, nil)}, "a"},
		"the Machine before, replaced since":  {[]remediate.Run{{ID: "a", Step: remediate.Reprovisioned, Ended: after, Target: remediate.Target{Node: "n", MachineUID: "earlier"}}}, ""},
		"of a check, dropped since":           {[]remediate.Run{run("a", remediate.Aborted, after, nil)}, ""},
		"open":                                {[]remediate.Run{run("a", remediate.PowerOff, time.Time{}, nil), run("b", remediate.Done, after, own)}, "a"},
		"its own":                             {[]remediate.Run{run("a", remediate.Done, after, own)}, "a"},
		"the newest of its own":               {[]remediate.Run{run("a", remediate.Aborted, after, own), run("b", remediate.Aborted, after, own)}, "b"},
		"its own, whatever their IDs":         {[]remediate.Run{run("b", remediate.Aborted, after, own), run("a", remediate.Done, after, own)}, "a"},
		"two of checks, one by a clock ahead": {[]remediate.Run{run("a", remediate.Done, after, nil), run("b", remediate.Done, made.Add(3*time.Hour), nil)}, "a"},
		"its own dropped, then of a check":    {[]remediate.Run{run("b", remediate.Aborted, after, own), run("a", remediate.Done, after, nil)}, "a"},
		"of a check, by a clock ahead":        {[]remediate.Run{run("a", remediate.Done, made.Add(3*time.Hour), nil)}, ""},
		"of a check, by a wrong clock":        {[]remediate.Run{{ID: "a", Step: remediate.Done, Ended: after, WrongClock: true, Target: target}}, ""},
		"of another target":                   {[]remediate.Run{{ID: "a", Step: remediate.Done, Ended: after, Target: remediate.Target{Node: "other"}}}, ""},
	} {
		rs := newRuns()
		for _, r := range c.runs {
			rs.byID[r.ID] = &r
		}
		q := policy.Requested{Request: &policy.Request{Kind: own.Kind, UID: own.UID, Created: made}, Target: policy.TargetReport{Machine: "ns/m", Node: "n", MachineUID: "mu"}}
		found := rs.ofRequests(after.Add(time.Minute)).of(&q, false)
		if c.want == "" {
			assert.Nil(t, found, name)
			continue
		}
		require.NotNil(t, found, name)
		assert.Equal(t, c.want, found.ID, name)
	}
	rs := newRuns()
	done := run("a", remediate.Done, after, nil)
	rs.byID["a"] = &done
	annotation := policy.Requested{Request: policy.AnnotatedRequest(&policy.Machine{UID: "mu"}), Target: policy.TargetReport{Machine: "ns/m", Node: "n"}}
	assert.Nil(t, rs.ofRequests(after.Add(time.Minute)).of(&annotation, false), "nobody knows when an annotation was set")
}

// A finalizer names its run. One of an older version does not: then any run of the request is taken for it. // I20
func TestLacksHolder(t *testing.T) {
	r, fresh := &remediate.Run{ID: "r-1", Step: remediate.Aborted, Intervened: true}, &remediate.Run{ID: "r-3", Step: remediate.Aborted, Attempt: 1}
	rs := runs{byID: map[string]*remediate.Run{r.ID: r, fresh.ID: fresh}}
	for name, c := range map[string]struct {
		power  *policy.PowerRequest
		newest *remediate.Run
		want   bool
	}{
		"an annotation":                   {nil, nil, false},
		"no finalizer":                    {&policy.PowerRequest{HeldFor: "r-2"}, nil, false},
		"of a known run":                  {&policy.PowerRequest{HasFinalizer: true, HeldFor: "r-1"}, r, false},
		"of one that touched nothing":     {&policy.PowerRequest{HasFinalizer: true, HeldFor: "r-3"}, fresh, true},
		"of another run than the newest":  {&policy.PowerRequest{HasFinalizer: true, HeldFor: "r-2"}, r, true},
		"of an older version":             {&policy.PowerRequest{HasFinalizer: true}, r, false},
		"of an older version, and no run": {&policy.PowerRequest{HasFinalizer: true}, nil, true},
	} {
		assert.Equal(t, c.want, rs.lacksHolder(c.power, c.newest), name)
	}
}
