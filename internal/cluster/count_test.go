package cluster

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// end says that the newest object of a record is gone now, and whether its time was over.
func (a *asking) end(r escalate.Record, timedOut bool) escalate.Record {
	o := &r.Objects[len(r.Objects)-1]
	if o.Gone = a.now; timedOut {
		o.TimedOut = a.now
	}
	a.b.Put(r)
	return r
}

// Each object counts as a run of its host, however often it vanishes: in the limit of a day, in the
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
				r, err := a.reserve(a.candidate(t, "n"), reboot)
				require.NoError(t, err)
				a.end(r, false)
			}
			_, err := a.reserve(a.candidate(t, "n"), reboot)
			assert.Equal(t, c.code, refusedFor(t, err))
			require.Len(t, a.b.Records(), 1)
			assert.Len(t, a.b.Records()[0].Objects, c.made)
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
	r, err := a.reserve(a.candidate(t, "n"), reboot)
	require.NoError(t, err)
	a.end(r, false)
	_, err = a.reserve(a.candidate(t, "n"), reboot)
	assert.Equal(t, reason.PowerInterval, refusedFor(t, err), "the same template again")
	a.end(r, true)
	r, err = a.reserve(a.candidate(t, "n"), replace)
	require.NoError(t, err)
	r = a.end(r, true)
	require.Len(t, r.Objects, 2)

	c := a.candidate(t, "n")
	c.Draft.ID, c.Draft.Step, c.Draft.Started = "run", remediate.PowerOff, a.now
	require.NoError(t, a.b.Model.Reserve(c, c.Draft, 0, time.Time{}, a.now), "fenced is the last")
	a.b.Model.Drop("run")

	r.Ended = a.now
	a.b.Put(r)
	_, err = a.reserve(a.candidate(t, "n"), reboot)
	assert.Equal(t, reason.PowerInterval, refusedFor(t, err))
	a.now = a.now.Add(10 * time.Hour)
	_, err = a.reserve(a.candidate(t, "n"), reboot)
	assert.Equal(t, reason.FencesPerDay, refusedFor(t, err))
}

// Only an end with a healthy target is a success, and only if the last remediator had not failed:
// the interval is not shortened by anything else. // I15
func TestOnlyARecoveryIsASuccess(t *testing.T) {
	for name, c := range map[string]struct {
		recovered, timedOut bool
		failed              int
	}{"recovered": {true, false, 0}, "check gone": {false, false, 3}, "repaired by somebody else": {true, true, 3}} {
		t.Run(name, func(t *testing.T) {
			a := newAsking(manyLimits())
			a.node("n", "Unknown")
			var r escalate.Record
			for range 3 {
				var err error
				a.now = a.now.Add(time.Minute)
				r, err = a.reserve(a.candidate(t, "n"), reboot)
				require.NoError(t, err)
				r = a.end(r, c.timedOut)
			}
			r.Ended, r.Recovered = a.now, c.recovered
			a.b.Put(r)
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
	inZone := func(n *policy.Node) { n.Labels = map[string]string{"zone": "z"} }
	for i := range 3 {
		a.node(fmt.Sprint("n-", i), "Unknown", inZone)
	}
	r, err := a.reserve(a.candidate(t, "n-0"), reboot)
	require.NoError(t, err)
	second := a.candidate(t, "n-1")
	_, err = a.reserve(second, reboot)
	assert.Equal(t, reason.InFlightLimit, refusedFor(t, err))
	r.Version = 1
	a.b.Put(r)
	a.b.Reserved(r.ID)
	lacking, needless := a.b.SlotMismatches(map[string]bool{})
	assert.Equal(t, [][]string{{r.ID}, nil}, [][]string{lacking, needless}, "it has a slot over all clusters")

	r.Idle = a.now
	a.b.Put(r)
	lacking, needless = a.b.SlotMismatches(map[string]bool{r.ID: true})
	assert.Equal(t, [][]string{nil, {r.ID}}, [][]string{lacking, needless})
	_, err = a.reserve(second, reboot)
	require.NoError(t, err)
	why := a.b.runs.blocks(remediate.Target{Cluster: "c", Node: "n-0"})
	assert.Contains(t, why, r.ID)
}

// What takes its slot itself, within the limit, is given none beyond the limit meanwhile: the next object
// of a record, and a Waiting run that begins again. // I11
func TestReservedTakesItsSlotItself(t *testing.T) {
	a := newAsking(manyLimits())
	a.node("n", "Unknown")
	a.node("due", "Unknown")
	r, err := a.reserve(a.candidate(t, "n"), reboot)
	require.NoError(t, err)
	r.Version = 1
	r = a.end(r, false)
	a.b.Reserved(r.ID)
	_, err = a.reserve(a.candidate(t, "n"), reboot)
	require.NoError(t, err)
	run := remediate.Run{ID: "due", Version: 1, Attempt: 1, Step: remediate.Waiting, Manual: &remediate.Order{}, Wait: &remediate.Wait{Due: true}, Strategy: remediate.PowerCycle, Target: remediate.Target{Cluster: "c", Node: "due"}}
	a.b.Model.Put(run)
	due := WaitingRuns{a.b.Model}
	require.NoError(t, due.Reserve(due.Candidate(run), 0, time.Time{}, a.now))
	lacking, _ := a.b.SlotMismatches(map[string]bool{})
	assert.Empty(t, lacking)

	run.Retry = &remediate.Order{}
	a.b.Model.Put(run)
	a.b.Reserved(r.ID)
	due.End(run.ID)
	lacking, _ = a.b.SlotMismatches(map[string]bool{})
	assert.ElementsMatch(t, []string{r.ID, run.ID}, lacking)
}

// A record costs no copy of all runs, of which there are thousands, for each candidate.
func TestRecordCopiesNoRuns(t *testing.T) {
	a := newAsking(manyLimits())
	a.node("n", "Unknown")
	a.b.Model.Put(remediate.Run{ID: "1", Step: remediate.Done, Target: remediate.Target{Cluster: "c", Node: "m"}})
	r, err := a.reserve(a.candidate(t, "n"), reboot)
	require.NoError(t, err)
	all := a.b.runs.all()
	assert.Equal(t, reflect.ValueOf(a.b.runs.byID).Pointer(), reflect.ValueOf(all.byID).Pointer())
	seen := map[string]bool{}
	for id := range all.each() {
		seen[id] = true
	}
	assert.Equal(t, map[string]bool{"1": true, r.ID: true}, seen)
	assert.Len(t, a.b.runs.byID, 1)
}

// A restart loses the labels of Nodes that are gone: a record still counts in its own zone only. // I11
func TestZoneOfARecordAfterARestart(t *testing.T) {
	a := newAsking(manyLimits())
	a.node("n", "Unknown", func(n *policy.Node) { n.Labels = map[string]string{"zone": "z"} })
	r, err := a.reserve(a.candidate(t, "n"), reboot)
	require.NoError(t, err)
	again := newAsking(manyLimits())
	again.b.Begin([]escalate.Record{r})
	for zone, want := range map[string]int{"z": 1, "y": 0} {
		n := again.node("other", "Unknown", func(n *policy.Node) { n.Labels = map[string]string{"zone": zone} })
		f := guard.Facts{AsksOther: true}
		again.b.Count(Candidate{Node: n, Draft: remediate.Run{Target: remediate.Target{Node: "other"}}}, "", &f, time.Time{}, again.now)
		assert.Equal(t, want, f.ZoneInFlight, zone)
	}
}

// The record of a target has what its Node named, and a later one of that Node has it from there. // I11
func TestRecordHasWhatTheNodeNamed(t *testing.T) {
	a := newAsking(manyLimits())
	n := a.node("n", "Unknown", func(n *policy.Node) { n.OpenShiftMachine, n.ProviderID = "ns/gone", "p://1" })
	r, err := a.reserve(a.candidate(t, "n"), reboot)
	require.NoError(t, err)
	want := policy.NodeNames{OpenShiftMachine: "ns/gone", ProviderID: "p://1"}
	require.Equal(t, want, n.Names())
	assert.Equal(t, want, a.b.runs.openTargets()[0].NodeNames)
	run := asRun(&r, 0)
	assert.Equal(t, want, openTarget(&run).NodeNames)
	_, names := a.b.runs.knownNode(r.Target, nil)
	assert.Equal(t, want, policy.NodeNames(names), "the Node is gone")
}

// A record does not grow without end: what no rule needs goes, and then nothing more is made.
func TestRecordIsBounded(t *testing.T) {
	l := manyLimits()
	l.MaxFencesPerDay = 500
	a := newAsking(l)
	a.node("n", "Unknown")
	for range escalate.MaxObjects {
		r, err := a.reserve(a.candidate(t, "n"), reboot)
		require.NoError(t, err)
		a.end(r, false)
	}
	_, err := a.reserve(a.candidate(t, "n"), reboot)
	assert.Equal(t, reason.FencesPerDay, refusedFor(t, err))
	require.ErrorContains(t, err, "50 objects were made for it")
	a.now = a.now.Add(25 * time.Hour)
	r, err := a.reserve(a.candidate(t, "n"), reboot)
	require.NoError(t, err)
	assert.Len(t, r.Objects, 2, "the newest of the template stays")
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
			b.complete = true
			m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-1", UID: "1", NodeName: "n-1"}
			b.ledger.Apply(b.Started, policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: m.Name}, Value: m})
			for name, zone := range map[string]string{"n-8": "a", "n-9": "b"} {
				n := &policy.Node{Name: name, UID: name}
				if c.zones {
					n.Labels = map[string]string{"zone": zone}
				}
				b.ledger.Apply(b.Started, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}, Value: n})
			}
			for _, r := range c.records {
				b.Put(r)
			}
			a, err := b.CandidateForOrder(wire.Order{Machine: "ns/m-1"})
			require.NoError(t, err)
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
	due := WaitingRuns{a.b.Model}
	for _, id := range []string{"r-1", "r-2"} {
		a.node(id, "Unknown")
		a.b.Model.Put(remediate.Run{ID: id, Step: remediate.Waiting, Wait: &remediate.Wait{Due: true}, Manual: &remediate.Order{}, Strategy: remediate.PowerCycle, Attempt: 1, Started: a.now.Add(-time.Minute),
			Target: remediate.Target{Cluster: "c", Node: id}})
	}
	begin := func(id string) error {
		r, _ := a.b.Run(id)
		return due.Reserve(due.Candidate(r), 0, time.Time{}, a.now)
	}
	require.NoError(t, begin("r-1"))
	assert.Equal(t, reason.StartRate, refusedFor(t, begin("r-2")))

	r, _ := a.b.Run("r-1") // the order is on record, and not carried out yet
	r.Retry = &remediate.Order{Actor: remediate.SelfActor}
	a.b.Model.Put(r)
	due.End("r-1")
	assert.Equal(t, reason.StartRate, refusedFor(t, begin("r-2")))

	r.Retry = nil // it was dropped, because the run was not due any more
	a.b.Model.Put(r)
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
		n := &policy.Node{Name: "n-1", UID: c.uid, Labels: c.node}
		b.ledger.Apply(time.Now(), policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: n.Name}, Value: n})
		r.Attempt, r.Target.NodeUID = c.attempt, c.uid
		r.NodeLabels = nil
		if c.known {
			r.NodeLabels = map[string]string{key: "a"}
		}
		var zones zoneCount
		zones.add(zoneOf(b.ledger, key, &r))
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
	a.b.Model.Put(r)
	assert.Equal(t, "r-1", count().OpenRun)
	assert.False(t, a.b.Objects().Healthy(draft.Target))
	assert.Equal(t, reason.UnderRemediation, refusedFor(t, a.b.Model.Reserve(c, draft, 0, time.Time{}, a.now)))

	r.Step, r.Ended = remediate.Aborted, a.now.Add(-time.Minute)
	a.b.Model.Put(r)
	f := count()
	assert.Empty(t, f.OpenRun)
	assert.True(t, a.b.Objects().Healthy(draft.Target))
	assert.Equal(t, []any{1, 1, r.Ended}, []any{f.RunsLastDay, f.FailedRunsInARow, f.LastRunEnded})
	assert.Len(t, a.b.EndedOn(draft.Target), 1)
	other := c
	other.Draft.Target.SystemUUID = "44112233-4455-6677-8899-aabbccddeeff"
	c = other
	assert.Zero(t, count().RunsLastDay, "another host")
}
