package cluster

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// end says that the newest try of a repair is over now, and whether its time was.
func (a *asking) end(p Repair, timedOut bool) Repair {
	p.Tries = slices.Clone(p.Tries)
	t := &p.Tries[len(p.Tries)-1]
	if t.Ended, t.Gone, t.Open = a.now, true, false; timedOut {
		t.TimedOut = a.now
	}
	p.By, p.InFlight = "", false
	a.b.Runs.PutRepair(p)
	return p
}

// Each object counts as a power cycle of its host, however often it vanishes: in the limit of a day, in the
// interval, and in the rate of the cluster. // I11, I15
func TestEachObjectCountsInTheRates(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*guard.Limits)
		made   int
		code   reason.Code
	}{
		"day":      {func(l *guard.Limits) { l.MaxFencesPerDay = 3 }, 3, reason.FencesPerDay},
		"interval": {func(l *guard.Limits) { l.MinPowerInterval = time.Hour }, 1, reason.PowerInterval},
		"rate":     {func(l *guard.Limits) { l.MaxInFlight, l.StartsPerHour = 4, 4 }, 4, reason.StartRate},
	} {
		t.Run(name, func(t *testing.T) {
			l := manyLimits()
			c.change(&l)
			a := newAsking(l)
			a.node("n", "Unknown")
			for range c.made {
				a.now = a.now.Add(time.Minute)
				r := must.Do(a.reserve(a.candidate(t, "n"), reboot))(t)
				a.end(r, false)
			}
			_, err := a.reserve(a.candidate(t, "n"), reboot)
			assert.Equal(t, c.code, refusedFor(t, err))
			require.Len(t, a.b.Runs.repairs, 1)
			for _, p := range a.b.Runs.repairs {
				assert.Len(t, p.Tries, c.made)
			}
		})
	}
}

// The steps of one escalation do not use up the limit of a day, neither for the next remediator nor
// for fenced as the last; when it is over, all of them count. // I15
func TestEscalationInTheLimitOfADay(t *testing.T) {
	l := manyLimits()
	l.MaxFencesPerDay, l.MinPowerInterval = 1, time.Hour
	a := newAsking(l)
	own := policy.Template{APIVersion: policy.FencedAPI, Kind: "FencedRemediationTemplate", Namespace: "ns", Name: "power"}
	a.check.Template = nil
	for i, from := range []policy.Template{reboot, replace, own} {
		a.check.Escalation = append(a.check.Escalation, policy.Escalation{Order: i, Timeout: time.Minute, Template: from})
	}
	a.put()
	a.node("n", "Unknown")
	r := must.Do(a.reserve(a.candidate(t, "n"), reboot))(t)
	a.end(r, false)
	_, err := a.reserve(a.candidate(t, "n"), reboot)
	assert.Equal(t, reason.PowerInterval, refusedFor(t, err), "the same template again")
	a.end(r, true)
	r = must.Do(a.reserve(a.candidate(t, "n"), replace))(t)
	r = a.end(r, true)
	require.Len(t, r.Tries, 2)

	c := a.candidate(t, "n")
	c.Draft.ID, c.Draft.Step, c.Draft.Started = "run", remediate.PowerOff, a.now
	require.NoError(t, a.b.Reserve(c, c.Draft, 0, time.Time{}, a.now), "fenced is the last")
	a.b.Runs.Drop("run")

	r.Check = ""
	a.b.Runs.PutRepair(r)
	_, err = a.reserve(a.candidate(t, "n"), reboot)
	assert.Equal(t, reason.PowerInterval, refusedFor(t, err))
	a.now = a.now.Add(10 * time.Hour)
	_, err = a.reserve(a.candidate(t, "n"), reboot)
	assert.Equal(t, reason.FencesPerDay, refusedFor(t, err))
}

// Only a try by which the target has recovered is a success: the interval is not shortened by anything else. // I15
func TestOnlyARecoveryIsASuccess(t *testing.T) {
	for name, c := range map[string]struct {
		done   bool
		failed int
	}{"recovered": {true, 0}, "check gone": {false, 3}} {
		t.Run(name, func(t *testing.T) {
			a := newAsking(manyLimits())
			a.node("n", "Unknown")
			var r Repair
			for range 3 {
				var err error
				a.now = a.now.Add(time.Minute)
				r, err = a.reserve(a.candidate(t, "n"), reboot)
				require.NoError(t, err)
				r = a.end(r, false)
			}
			r.Check, r.Tries[2].Done = "", c.done
			a.b.Runs.PutRepair(r)
			f := guard.Facts{AsksOther: true}
			a.b.Count(a.candidate(t, "n"), "", &f, time.Time{}, a.now)
			assert.Equal(t, c.failed, f.FailedRunsInARow)
			assert.Equal(t, 3, f.RunsLastDay)
		})
	}
}

// A record that stands still blocks its target, and nothing else waits for its place. // I11, I22
func TestIdleRecordHasNoPlace(t *testing.T) {
	l := manyLimits()
	l.MaxInFlight, l.MaxInFlightPerZone = 1, 1
	a := newAsking(l)
	inZone := func(n *policy.Node) { n.Labels = policy.LabelsOf(map[string]string{"zone": "z"}) }
	for i := range 3 {
		a.node(fmt.Sprint("n-", i), "Unknown", inZone)
	}
	r := must.Do(a.reserve(a.candidate(t, "n-0"), reboot))(t)
	second := a.candidate(t, "n-1")
	_, err := a.reserve(second, reboot)
	assert.Equal(t, reason.InFlightLimit, refusedFor(t, err))
	r.Stored = true
	a.b.Runs.PutRepair(r)
	a.b.Runs.EndReservation(r.ID)
	lacking, needless := a.b.Runs.SlotMismatches(map[string]bool{})
	assert.Equal(t, [][]string{{r.ID}, nil}, [][]string{lacking, needless}, "it has a slot over all clusters")

	r.InFlight = false
	a.b.Runs.PutRepair(r)
	lacking, needless = a.b.Runs.SlotMismatches(map[string]bool{r.ID: true})
	assert.Equal(t, [][]string{nil, {r.ID}}, [][]string{lacking, needless})
	must.Do(a.reserve(second, reboot))(t)
	why := a.b.Runs.blocks(remediate.Target{Cluster: "c", Node: "n-0"})
	assert.Contains(t, why, r.ID)
}

// What takes its slot itself, within the limit, is given none beyond the limit meanwhile: the next object
// of a record, and a Waiting run that begins again. // I11
func TestReservedTakesItsSlotItself(t *testing.T) {
	a := newAsking(manyLimits())
	a.node("n", "Unknown")
	a.node("due", "Unknown")
	r := must.Do(a.reserve(a.candidate(t, "n"), reboot))(t)
	r.Stored = true
	r = a.end(r, false)
	a.b.Runs.EndReservation(r.ID)
	must.Do(a.reserve(a.candidate(t, "n"), reboot))(t)
	run := remediate.Run{ID: "due", Version: 1, Attempt: 1, Step: remediate.Waiting, Manual: &remediate.Order{}, Wait: &remediate.Wait{Due: true}, Strategy: remediate.PowerCycle, Target: remediate.Target{Cluster: "c", Node: "due"}}
	a.b.Runs.Put(run)
	due := a.b
	require.NoError(t, due.ReserveRetry(due.Objects.CandidateForRetry(run), 0, time.Time{}, a.now))
	lacking, _ := a.b.Runs.SlotMismatches(map[string]bool{})
	assert.Empty(t, lacking)

	run.Retry = &remediate.Order{}
	a.b.Runs.Put(run)
	a.b.Runs.EndReservation(r.ID)
	due.Runs.EndRetry(run.ID)
	lacking, _ = a.b.Runs.SlotMismatches(map[string]bool{})
	assert.ElementsMatch(t, []string{r.ID, run.ID}, lacking)
}

// A restart loses the labels of Nodes that are gone: a record still counts in its own zone only. // I11
func TestZoneOfARecordAfterARestart(t *testing.T) {
	a := newAsking(manyLimits())
	a.node("n", "Unknown", func(n *policy.Node) { n.Labels = policy.LabelsOf(map[string]string{"zone": "z"}) })
	r := must.Do(a.reserve(a.candidate(t, "n"), reboot))(t)
	again := newAsking(manyLimits())
	again.b.Runs.SetRepairs([]Repair{r})
	for zone, want := range map[string]int{"z": 1, "y": 0} {
		n := again.node("other", "Unknown", func(n *policy.Node) { n.Labels = policy.LabelsOf(map[string]string{"zone": zone}) })
		f := guard.Facts{AsksOther: true}
		again.b.Count(Candidate{Node: n, Draft: remediate.Run{Target: remediate.Target{Node: "other"}}}, "", &f, time.Time{}, again.now)
		assert.Equal(t, want, f.ZoneInFlight, zone)
	}
}

// The record of a target has what its Node named, and a later one of that Node has it from there. // I11
func TestRecordHasWhatTheNodeNamed(t *testing.T) {
	a := newAsking(manyLimits())
	n := a.node("n", "Unknown", func(n *policy.Node) { n.OpenShiftMachine, n.ProviderID = "ns/gone", "p://1" })
	r := must.Do(a.reserve(a.candidate(t, "n"), reboot))(t)
	want := policy.NodeNames{OpenShiftMachine: "ns/gone", ProviderID: "p://1"}
	require.Equal(t, want, n.Names())
	assert.Equal(t, want, a.b.Runs.openTargets()[0].NodeNames)
	_, names := a.b.Runs.knownNode(r.Target, nil)
	assert.Equal(t, want, policy.NodeNames(names), "the Node is gone")
}

// A Machine whose Node is gone already counts in the zone that the record of an earlier run tells. If
// none does, it counts in every zone, as long as there are zones. // I11
func TestZoneOfAMachineWhoseNodeIsGone(t *testing.T) {
	const off = remediate.PowerOff
	inFlight := func(zone string) remediate.Run { // one whose Node is gone, too
		return remediate.Run{ID: "other", Step: off, Strategy: remediate.PowerCycle, Attempt: 1, NodeLabels: map[string]string{"zone": zone},
			Target: remediate.Target{Cluster: "c", Node: "n-2", Namespace: "ns", Machine: "m-2", MachineUID: "2"}}
	}
	earlier := func(change func(*remediate.Run)) remediate.Run {
		r := remediate.Run{ID: "earlier", Step: remediate.Aborted, Strategy: remediate.PowerCycle, Attempt: 1, NodeLabels: map[string]string{"zone": "a"},
			Target: remediate.Target{Cluster: "c", Node: "n-1", Namespace: "ns", Machine: "m-1", MachineUID: "1"}}
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		zones   bool
		records []remediate.Run
		refused bool
		value   string
	}{
		"of a full zone":               {true, []remediate.Run{inFlight("a"), earlier(func(*remediate.Run) {})}, true, "1 in zone a"},
		"of another zone":              {true, []remediate.Run{inFlight("b"), earlier(func(*remediate.Run) {})}, false, "0 in zone a"},
		"by the record of its Machine": {true, []remediate.Run{inFlight("b"), earlier(func(r *remediate.Run) { r.Target.Node = "before" })}, false, "0 in zone a"},
		"by the record of its Node":    {true, []remediate.Run{inFlight("b"), earlier(func(r *remediate.Run) { r.Target.Machine = "before" })}, false, "0 in zone a"},
		"of another Machine of its name": {true, []remediate.Run{inFlight("b"), earlier(func(r *remediate.Run) { r.Target.Node, r.Target.MachineUID = "before", "0" })}, true,
			"1 in one zone, and the zone of this host is not known"},
		"the record has no labels":  {true, []remediate.Run{inFlight("b"), earlier(func(r *remediate.Run) { r.NodeLabels = nil })}, true, "1 in one zone, and the zone of this host is not known"},
		"no zone is full":           {true, nil, false, "0 in one zone, and the zone of this host is not known"},
		"there are no zones at all": {false, []remediate.Run{inFlight("")}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := manyLimits()
			l.MaxInFlightPerZone = 1
			b := New(Options{Name: "c", Limits: NewLimits(l, remediate.Limits{})}, time.Now())
			b.Objects.complete = true
			m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-1", UID: "1", NodeName: "n-1"}
			b.Objects.ledger.Apply(b.Started, policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: m.Name}, Value: m})
			for name, zone := range map[string]string{"n-8": "a", "n-9": "b"} {
				n := &policy.Node{Name: name, UID: name}
				if c.zones {
					n.Labels = policy.LabelsOf(map[string]string{"zone": zone})
				}
				b.Objects.ledger.Apply(b.Started, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}, Value: n})
			}
			for _, r := range c.records {
				b.Runs.Put(r)
			}
			a := must.Do(b.CandidateForOrder(wire.Order{Machine: "ns/m-1"}))(t)
			f := guard.Facts{NeedsHost: true}
			b.Count(a, "", &f, time.Time{}, time.Now())
			gate := reason.Gate{Pass: true} // there is none without zones
			for _, g := range guard.StartGates(l, f, time.Now()) {
				if g.Name == "zoneInFlight" {
					gate = g
				}
			}
			assert.Equal(t, c.value, gate.Value)
			assert.Equal(t, c.refused, !gate.Pass)
			assert.Equal(t, a.Draft.NodeLabels["zone"] == "a", f.Zone == "a", "the record of the run has it")
		})
	}
}

// Of two Waiting runs that are due at once, with one start left, one begins: what was admitted counts
// as a start before its record says so. // I11
func TestAdmittedRunTakesItsStart(t *testing.T) {
	l := manyLimits()
	l.MaxInFlight, l.StartsPerHour = 3, 3
	a := newAsking(l)
	due := a.b
	for _, id := range []string{"r-1", "r-2"} {
		a.node(id, "Unknown")
		a.b.Runs.Put(remediate.Run{ID: id, Step: remediate.Waiting, Wait: &remediate.Wait{Due: true}, Manual: &remediate.Order{}, Strategy: remediate.PowerCycle, Attempt: 1, Started: a.now.Add(-time.Minute),
			Target: remediate.Target{Cluster: "c", Node: id}})
	}
	begin := func(id string) error {
		r, _ := a.b.Runs.Get(id)
		return due.ReserveRetry(due.Objects.CandidateForRetry(r), 0, time.Time{}, a.now)
	}
	require.NoError(t, begin("r-1"))
	assert.Equal(t, reason.StartRate, refusedFor(t, begin("r-2")))

	r, _ := a.b.Runs.Get("r-1") // the order is on record, and not carried out yet
	r.Retry = &remediate.Order{Actor: remediate.SelfActor}
	a.b.Runs.Put(r)
	due.Runs.EndRetry("r-1")
	assert.Equal(t, reason.StartRate, refusedFor(t, begin("r-2")))

	r.Retry = nil // it was dropped, because the run was not due any more
	a.b.Runs.Put(r)
	require.NoError(t, begin("r-2"))
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
		inA, inB bool
	}{
		{"as at the start", 1, "u-1", map[string]string{key: "a"}, true, true, false},
		{"has no label, or was made again without it before the run", 1, "u-1", nil, false, true, true},
		{"created again", 2, "u-2", nil, true, true, false},
		{"created again, another owner", 2, "u-2", nil, false, true, true},
		{"another machine has its name", 2, "u-2", map[string]string{key: "b"}, true, true, false},
		{"created again with its label", 2, "u-2", map[string]string{key: "b"}, false, false, true},
	} {
		b := New(Options{Name: "c"}, time.Now())
		n := &policy.Node{Name: "n-1", UID: c.uid, Labels: policy.LabelsOf(c.node)}
		b.Objects.ledger.Apply(time.Now(), policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: n.Name}, Value: n})
		r.Attempt, r.Target.NodeUID = c.attempt, c.uid
		r.NodeLabels = nil
		if c.known {
			r.NodeLabels = map[string]string{key: "a"}
		}
		var zones zoneCount
		zones.add(zoneOf(b.Objects.ledger, key, r.NodeLabels, r.Target.Node))
		assert.Equal(t, c.inA, zones.inFlight("a", false) == 1, "%s: zone a", c.name)
		assert.Equal(t, c.inB, zones.inFlight("b", false) == 1, "%s: zone b", c.name)
	}
}

// A host counts under each of its names: by the system UUID of its Node, in another byte order too. A run
// that is open under the old name closes the gate for the new one, and the runs of the old name count in
// the limits of a day, of the interval and of the back-off. // I6, I11, I15
func TestHostCountsUnderEachOfItsNames(t *testing.T) {
	a := newAsking(manyLimits())
	node := a.node("new", "True", func(n *policy.Node) { n.SystemUUID = "33221100-5544-7766-8899-aabbccddeeff" })
	r := remediate.Run{ID: "r-1", Version: 1, Step: remediate.PowerOff, Strategy: remediate.PowerCycle, Attempt: 1, Intervened: true, Started: a.now.Add(-time.Hour),
		Target: remediate.Target{Cluster: "c", Node: "old", SystemUUID: "00112233-4455-6677-8899-aabbccddeeff"}}
	draft := remediate.Run{ID: "r-2", Strategy: remediate.PowerCycle, Target: remediate.Target{Cluster: "c", Node: "new", SystemUUID: node.SystemUUID}}
	c := Candidate{Node: node, Draft: draft}
	count := func() guard.Facts {
		f := guard.Facts{NeedsHost: true}
		a.b.Count(c, "", &f, time.Time{}, a.now)
		return f
	}
	a.b.Runs.Put(r)
	assert.Equal(t, "r-1", count().OpenRun)
	assert.False(t, a.b.Healthy(draft.Target))
	assert.Equal(t, reason.UnderRemediation, refusedFor(t, a.b.Reserve(c, draft, 0, time.Time{}, a.now)))

	r.Step, r.Ended = remediate.Aborted, a.now.Add(-time.Minute)
	a.b.Runs.Put(r)
	f := count()
	assert.Empty(t, f.OpenRun)
	assert.True(t, a.b.Healthy(draft.Target))
	assert.Equal(t, []any{1, 1, r.Ended}, []any{f.RunsLastDay, f.FailedRunsInARow, f.LastRunEnded})
	assert.Len(t, a.b.Runs.EndedOn(draft.Target, a.now), 1)
	other := c
	other.Draft.Target.SystemUUID = "44112233-4455-6677-8899-aabbccddeeff"
	c = other
	assert.Zero(t, count().RunsLastDay, "another host")
}

// An end that a wrong clock dated a year ahead delays the next run of the host from when it was seen, and not for the year; where nobody
// saw it, from when this instance began to lead. // I15, L4
func TestEndAtATimeToComeDelaysNoYear(t *testing.T) {
	begun := remediate.Run{ID: "r-1", Version: 1, Step: remediate.PowerOff, Strategy: remediate.PowerCycle, Attempt: 1, Intervened: true,
		Started: time.Now().Add(-time.Minute), Target: remediate.Target{Cluster: "c", Node: "n"}}
	ended := begun
	ended.Step, ended.Ended = remediate.Aborted, time.Now().AddDate(1, 0, 0)
	for name, before := range map[string]remediate.Run{"seen": begun, "not seen": ended} {
		a := newAsking(manyLimits())
		require.NoError(t, a.b.Runs.BeginLeadership([]remediate.Run{before}))
		a.b.Runs.Put(ended)
		for _, since := range []time.Duration{0, time.Hour} {
			f, now := guard.Facts{NeedsHost: true}, time.Now().Add(since)
			a.b.Count(Candidate{Draft: remediate.Run{ID: "r-2", Strategy: remediate.PowerCycle, Target: begun.Target}}, "", &f, time.Time{}, now)
			assert.InDelta(t, since, now.Sub(f.LastRunEnded), float64(time.Minute), name)
			assert.InDelta(t, since, now.Sub(a.b.Runs.EndedOn(begun.Target, now)[0].Ended), float64(time.Minute), name)
		}
	}
}

// The same is so for what another remediator was asked: the end that counts is the one that was seen last. // I15, L4
func TestRequestThatEndsAtATimeToComeDelaysNoYear(t *testing.T) {
	aYear := time.Now().AddDate(1, 0, 0)
	p := Repair{ID: "9", Stored: true, Target: remediate.Target{Cluster: "c", Node: "n"}, Tries: []Try{{Attempt: policy.Attempt{Started: time.Now().Add(-time.Minute)}, Open: true}}}
	gone := p
	gone.Tries = []Try{{Attempt: p.Tries[0].Attempt, Gone: true, Ended: aYear}}
	for name, before := range map[string]Repair{"seen": p, "not seen": gone} {
		a := newAsking(manyLimits())
		require.NoError(t, a.b.Runs.BeginLeadership(nil))
		a.b.Runs.SetRepairs([]Repair{before})
		if name == "seen" {
			a.b.Runs.began = time.Now().Add(-24 * time.Hour)
		}
		a.b.Runs.PutRepair(gone)
		a.b.Runs.PutRepair(gone) // another save of the same end
		for _, since := range []time.Duration{0, time.Hour} {
			f, now := guard.Facts{NeedsHost: true}, time.Now().Add(since)
			a.b.Count(Candidate{Draft: remediate.Run{ID: "r-2", Strategy: remediate.PowerCycle, Target: p.Target}}, "", &f, time.Time{}, now)
			assert.InDelta(t, since, now.Sub(f.LastRunEnded), float64(time.Minute), name)
		}
	}
}

// Labels find the Nodes that have all of them, with those that a run or another remediator has deleted. What has no Node is
// listed apart: nobody knows its labels.
func TestNodesWithLabels(t *testing.T) {
	a := newAsking(manyLimits())
	with := func(labels map[string]string) func(*policy.Node) {
		return func(n *policy.Node) { n.Labels = policy.LabelsOf(labels) }
	}
	r7 := map[string]string{"rack": "r7", "pool": "storage"}
	a.node("there", "True", with(r7))
	a.node("other-pool", "True", with(map[string]string{"rack": "r7"}))
	a.node("elsewhere", "True", with(map[string]string{"rack": "r8", "pool": "storage"}))
	a.node("bare", "True")
	a.node("moved", "True", with(map[string]string{"rack": "r8"}))
	open := func(id, node string, labels map[string]string, ended bool) {
		r := remediate.Run{ID: id, Step: remediate.PowerOn, Target: remediate.Target{Cluster: "c", Node: node, Namespace: "ns", Machine: "m-" + id}, NodeLabels: labels}
		if ended {
			r.Step = remediate.Done
		}
		a.b.Runs.Put(r)
	}
	open("run-1", "deleted", r7, false)
	open("run-2", "ended", r7, true)
	open("run-3", "moved", r7, false) // what the Node has now counts
	open("run-4", "", nil, false)     // its Machine never joined
	open("run-5", "unknown", nil, false)
	a.b.Runs.PutRepair(Repair{ID: "asked", By: "someone", Target: remediate.Target{Cluster: "c", Node: "replaced"}, NodeLabels: r7})
	a.machine("there", "m-1") // has its Node
	a.machine("waiting", "m-2")

	for node, labels := range map[string]map[string]string{"anew": {"os": "linux"}, "anew-elsewhere": {"rack": "r8"}} { // a kubelet has registered it
		a.node(node, "True", with(labels), func(n *policy.Node) { n.UID = "new" })
		a.b.Runs.Put(remediate.Run{ID: "run-" + node, Step: remediate.RestoreNode, Isolated: time.Now(), NodeLabels: r7,
			Target: remediate.Target{Cluster: "c", Node: node, NodeUID: "old"}})
	}

	assert.Equal(t, []Place{{Rack: "r7"}, {}, {Rack: "r7"}, {Rack: "r8"}, {Rack: "r7"}, {}, {Rack: "r7"}},
		a.b.Places("rack", []string{"there", "bare", "deleted", "moved", "anew", "ended", "replaced"}))

	found := a.b.WithLabels(r7)
	assert.Equal(t, []string{"anew", "deleted", "replaced", "there"}, found.Nodes)
	assert.Equal(t, map[string]string{"anew": "run-anew", "deleted": "run-1"}, found.Runs)
	assert.Equal(t, []string{"ns/m-run-4", "ns/waiting", "unknown"}, found.Unlabelled)
	assert.Empty(t, found.Values)

	found = a.b.WithLabels(map[string]string{"rack": "r9"})
	assert.Empty(t, found.Nodes)
	assert.Equal(t, []string{"r7", "r8"}, found.Values)
	assert.Empty(t, a.b.WithLabels(map[string]string{"rack": "r9", "pool": "storage"}).Values, "of which label?")
}

// A cluster is not one of a single Node because runs have deleted the others: if the last one that is left is not ready, either, fenced suspects
// its own view. // I11, I16
func TestLastNodeLeftIsNoClusterOfOne(t *testing.T) {
	on := func(node string) remediate.Target { return remediate.Target{Cluster: "c", Node: node, NodeUID: "u"} }
	for name, c := range map[string]struct {
		runs    []string // Nodes on which a run waits
		repairs []Repair
		of      string // the Node of the candidate
		pass    bool
	}{
		"the only Node":                               {nil, nil, "n", true},
		"a run has deleted another":                   {[]string{"gone"}, nil, "n", false},
		"a run is on the Node itself":                 {[]string{"n"}, nil, "n", true},
		"the run that is due has deleted its own":     {[]string{"gone"}, nil, "gone", false},
		"another remediator has deleted another":      {nil, []Repair{{ID: "r", Target: on("gone"), By: "Metal3Remediation ns/gone"}}, "n", false},
		"and the next one is to be asked":             {nil, []Repair{{ID: "r", Target: on("gone"), Check: "check"}}, "n", false},
		"another remediator's repair is over":         {nil, []Repair{{ID: "r", Target: on("gone")}}, "n", true},
		"another remediator works on the Node itself": {nil, []Repair{{ID: "r", Target: on("n"), By: "Metal3Remediation ns/n"}}, "n", true},
	} {
		a := newAsking(manyLimits())
		a.node("n", "Unknown")
		for _, node := range c.runs {
			a.b.Runs.Put(remediate.Run{ID: "of " + node, Version: 1, Step: remediate.Waiting, Wait: &remediate.Wait{}, Strategy: remediate.PowerCycle, Attempt: 1, Target: on(node)})
		}
		a.b.Runs.SetRepairs(c.repairs)
		f := guard.Facts{NeedsHost: true}
		a.b.Count(Candidate{Node: a.b.Objects.Node(c.of), Draft: remediate.Run{ID: "of " + c.of, Strategy: remediate.PowerCycle, Target: on(c.of)}}, "", &f, time.Time{}, a.now)
		for _, g := range guard.Gates(manyLimits(), f, a.now) {
			if g.Name == "everythingDown" {
				assert.Equal(t, c.pass, g.Pass, "%s: %s", name, g.Value)
			}
		}
	}
}
