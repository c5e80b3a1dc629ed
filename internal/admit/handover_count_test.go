package admit

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
)

// end says that the newest object of a record is gone now, and whether its time was over.
func (a *asking) end(r escalate.Record, timedOut bool) escalate.Record {
	o := &r.Objects[len(r.Objects)-1]
	if o.Gone = a.now; timedOut {
		o.TimedOut = a.now
	}
	a.b.put(r)
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
			require.Len(t, a.b.records(), 1)
			assert.Len(t, a.b.records()[0].Objects, c.made)
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
	c.draft.ID, c.draft.Step, c.draft.Started = "run", remediate.PowerOff, a.now
	require.NoError(t, a.b.Book.reserve(c, c.draft, 0, time.Time{}, a.now), "fenced is the last")
	a.b.Book.drop("run")

	r.Ended = a.now
	a.b.put(r)
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
			a.b.put(r)
			f := guard.Facts{AsksOther: true}
			a.b.count(a.candidate(t, "n"), "", &f, time.Time{}, a.now)
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
	a.b.put(r)
	a.b.reserved(r.ID)
	lacking, needless := a.b.SlotMismatches(map[string]bool{})
	assert.Equal(t, [][]string{{r.ID}, nil}, [][]string{lacking, needless}, "it has a slot over all clusters")

	r.Idle = a.now
	a.b.put(r)
	lacking, needless = a.b.SlotMismatches(map[string]bool{r.ID: true})
	assert.Equal(t, [][]string{nil, {r.ID}}, [][]string{lacking, needless})
	_, err = a.reserve(second, reboot)
	require.NoError(t, err)
	why := a.b.blocks(remediate.Target{Cluster: "c", Node: "n-0"})
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
	a.b.reserved(r.ID)
	_, err = a.reserve(a.candidate(t, "n"), reboot)
	require.NoError(t, err)
	run := remediate.Run{ID: "due", Version: 1, Attempt: 1, Step: remediate.Waiting, Wait: &remediate.Wait{Due: true}, Strategy: remediate.PowerCycle, Target: remediate.Target{Cluster: "c", Node: "due"}}
	a.b.Book.put(run)
	due := waitingRuns{a.b.Book}
	require.NoError(t, due.reserve(due.candidate(run), 0, time.Time{}, a.now))
	lacking, _ := a.b.SlotMismatches(map[string]bool{})
	assert.Empty(t, lacking)

	run.Retry = &remediate.Order{}
	a.b.Book.put(run)
	a.b.reserved(r.ID)
	due.end(run.ID)
	lacking, _ = a.b.SlotMismatches(map[string]bool{})
	assert.ElementsMatch(t, []string{r.ID, run.ID}, lacking)
}

// A record costs no copy of all runs, of which there are thousands, for each candidate.
func TestRecordCopiesNoRuns(t *testing.T) {
	a := newAsking(manyLimits())
	a.node("n", "Unknown")
	a.b.Book.put(remediate.Run{ID: "1", Step: remediate.Done, Target: remediate.Target{Cluster: "c", Node: "m"}})
	r, err := a.reserve(a.candidate(t, "n"), reboot)
	require.NoError(t, err)
	all := a.b.allRuns()
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
	again.b.begin([]escalate.Record{r})
	for zone, want := range map[string]int{"z": 1, "y": 0} {
		n := again.node("other", "Unknown", func(n *policy.Node) { n.Labels = map[string]string{"zone": zone} })
		f := guard.Facts{AsksOther: true}
		again.b.count(candidate{node: n, draft: remediate.Run{Target: remediate.Target{Node: "other"}}}, "", &f, time.Time{}, again.now)
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
	assert.Equal(t, want, a.b.openTargets()[0].NodeNames)
	run := asRun(&r, 0)
	assert.Equal(t, want, openTarget(&run).NodeNames)
	_, names := a.b.knownNode(r.Target, nil)
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
