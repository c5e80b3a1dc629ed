package cluster

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

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func after(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

// deleted is a run that has deleted a Machine of controller "u".
func deleted(n int, at, created time.Time, neverReady bool) remediate.Run {
	return remediate.Run{
		ID: fmt.Sprint("r", n), Step: remediate.Reprovisioned, Ended: at.Add(time.Second), Strategy: remediate.DeleteMachine, CheckID: "check",
		Intent: remediate.Intent{Action: remediate.DeleteTargetMachine, At: at},
		Target: remediate.Target{Namespace: "ns", Machine: fmt.Sprint("m-", n), MachineUID: fmt.Sprint("uid-", n), MachineAPI: policy.OpenShiftMachineAPI, Node: fmt.Sprint("n-", n), NodeUID: fmt.Sprint("node-", n)},
		Origin: &remediate.Origin{Controller: "u", Created: created, NeverReady: neverReady},
	}
}

// Failures in a row are replacements that were never Ready, since the newest Machine that was.
func TestFailedReplacements(t *testing.T) {
	day := noon.Add(-24 * time.Hour)
	worker := deleted(1, after(0), day, false)
	for name, c := range map[string]struct {
		ended    []remediate.Run
		lastGood time.Time
		want     int
		replaces bool // a Machine created at after(50)
	}{
		"nothing deleted":                   {},
		"one that was Ready":                {[]remediate.Run{worker}, time.Time{}, 0, true},
		"one replacement":                   {[]remediate.Run{worker, deleted(2, after(5), after(0), true)}, time.Time{}, 1, true},
		"its time is before the deletion":   {[]remediate.Run{worker, deleted(2, after(5), after(0).Add(-5*time.Second), true)}, time.Time{}, 1, true},
		"never Ready, but no replacement":   {[]remediate.Run{worker, deleted(2, after(5), day, true)}, time.Time{}, 0, true},
		"three":                             {[]remediate.Run{worker, deleted(2, after(5), after(1), true), deleted(3, after(9), after(6), true), deleted(4, after(20), after(10), true)}, time.Time{}, 3, true},
		"an older worker in between":        {[]remediate.Run{worker, deleted(2, after(5), after(1), true), deleted(3, after(9), day, false), deleted(4, after(20), after(10), true)}, time.Time{}, 2, true},
		"a replacement that was Ready":      {[]remediate.Run{worker, deleted(2, after(5), after(1), true), deleted(3, after(90), after(6), false), deleted(4, after(99), after(91), true)}, time.Time{}, 1, true},
		"one is Ready now":                  {[]remediate.Run{worker, deleted(2, after(5), after(1), true), deleted(3, after(9), after(6), true)}, after(9), 0, true},
		"one was Ready before the others":   {[]remediate.Run{worker, deleted(2, after(5), after(1), true), deleted(3, after(9), after(6), true)}, after(5), 1, true},
		"several runs for one Machine":      {[]remediate.Run{worker, deleted(2, after(5), after(1), true), again(deleted(2, after(6), after(1), true))}, time.Time{}, 1, true},
		"all deletions come after it":       {[]remediate.Run{deleted(2, after(60), after(55), true)}, time.Time{}, 0, false},
		"records of an older version":       {[]remediate.Run{{ID: "r0", Step: remediate.Reprovisioned, Ended: after(1)}}, time.Time{}, 0, false},
		"those of another controller":       {[]remediate.Run{another(worker), another(deleted(2, after(5), after(1), true))}, time.Time{}, 0, false},
		"what was aborted without deleting": {[]remediate.Run{aborted(worker)}, time.Time{}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			rs := newRuns()
			for _, r := range c.ended {
				rs.byID[r.ID] = &r
			}
			s := rs.deletionsOf("u", c.lastGood)
			assert.Equal(t, c.want, s.failed)
			assert.Equal(t, c.replaces, s.replaces(remediate.Origin{Created: after(50)}))
			assert.False(t, s.replaces(remediate.Origin{}), "a creation time that is unknown")
		})
	}
}

func again(r remediate.Run) remediate.Run   { r.ID += "-again"; return r }
func another(r remediate.Run) remediate.Run { r.Origin = &remediate.Origin{Controller: "v"}; return r }
func aborted(r remediate.Run) remediate.Run {
	r.Step, r.Intent = remediate.Aborted, remediate.Intent{}
	return r
}

// A deleted Machine counts until it and its Node are gone, but not for longer than the
// timeout, and only in its own check.
func TestDeletionsInProgress(t *testing.T) {
	machine := func(b *Model, uid string, deleting bool) {
		m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-1", UID: uid, Deleting: deleting}
		b.ledger.Apply(noon, policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: m.Name}, Value: m})
	}
	node := func(b *Model, uid string) {
		b.ledger.Apply(noon, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "n-1"}, Value: &policy.Node{Name: "n-1", UID: uid}})
	}
	for name, c := range map[string]struct {
		change  func(b *Model, r *remediate.Run)
		now     time.Time
		counts  int
		overdue int
	}{
		"both are gone":          {func(*Model, *remediate.Run) {}, after(1), 0, 0},
		"the Machine exists":     {func(b *Model, _ *remediate.Run) { machine(b, "uid-1", true) }, after(1), 1, 0},
		"not shown yet":          {func(b *Model, _ *remediate.Run) { machine(b, "uid-1", false) }, after(1).Add(-1), 1, 0},
		"taken back":             {func(b *Model, _ *remediate.Run) { machine(b, "uid-1", false) }, after(1), 0, 0},
		"a Machine of that name": {func(b *Model, _ *remediate.Run) { machine(b, "uid-2", false) }, after(1), 0, 0},
		"the Node exists":        {func(b *Model, _ *remediate.Run) { node(b, "node-1") }, after(1), 1, 0},
		"a Node of that name":    {func(b *Model, _ *remediate.Run) { node(b, "node-2") }, after(1), 0, 0},
		"the Node after a power cycle": {func(b *Model, r *remediate.Run) {
			r.Strategy, r.NewNodeUID = remediate.PowerCycle, "node-2"
			node(b, "node-2")
		}, after(1), 1, 0},
		"just in time":     {func(b *Model, _ *remediate.Run) { node(b, "node-1") }, after(30).Add(-1), 1, 0},
		"overdue":          {func(b *Model, _ *remediate.Run) { node(b, "node-1") }, after(30), 0, 1},
		"of another check": {func(b *Model, r *remediate.Run) { r.CheckID = "another"; node(b, "node-1") }, after(1), 0, 0},
		"by hand":          {func(b *Model, r *remediate.Run) { r.Manual = &remediate.Order{}; node(b, "node-1") }, after(1), 0, 0},
		"open":             {func(_ *Model, r *remediate.Run) { r.Step = remediate.Reprovision }, after(1), 1, 0},
		"Held":             {func(b *Model, r *remediate.Run) { r.Step = remediate.Held; machine(b, "uid-1", false) }, after(1), 0, 0},
		"an open power cycle": {func(_ *Model, r *remediate.Run) {
			r.Step, r.Strategy = remediate.Reprovision, remediate.PowerCycle
		}, after(1), 0, 0},
		"no answer, and it is being deleted": {func(b *Model, r *remediate.Run) { r.Step = remediate.Aborted; machine(b, "uid-1", true) }, after(1), 1, 0},
		"no answer, and it was refused":      {func(b *Model, r *remediate.Run) { r.Step = remediate.Aborted; machine(b, "uid-1", false) }, after(1), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(Options{Name: "c", Limits: NewLimits(guard.Limits{DeletionTimeout: 30 * time.Minute}, remediate.Limits{})}, noon)
			r := deleted(1, after(0), noon.Add(-time.Hour), false)
			c.change(b, &r)
			b.runs.byID[r.ID] = &r
			a := Candidate{Draft: remediate.Run{CheckID: "check", Strategy: remediate.DeleteMachine}}
			assert.Equal(t, c.counts, b.runs.countDeletions(b.ledger, b.replacements, b.Options.Limits.Guards(), a, c.now).InProgress)
			_, overdue := b.runs.disappearing(b.ledger, b.Options.Limits.Guards().DeletionTimeout, c.now)
			assert.Len(t, overdue, c.overdue)
		})
	}
}

// A power cycle waits for no deletion, and a deletion for no power cycle: each has a bucket,
// a limit and places of its own. Two deletions of one check exclude each other. // I11
func TestReserveKeepsDeletionsApart(t *testing.T) {
	for name, c := range map[string]struct {
		first, second remediate.Strategy
		check         string // of the second
		limits        guard.Limits
		want          reason.Code
	}{
		"a power cycle beside a deletion":    {remediate.DeleteMachine, remediate.PowerCycle, "one", guard.Limits{MaxInFlight: 1, MaxInFlightTotal: 1, MaxInFlightPerZone: 1, StartsPerHour: 1, DeletionsPerHour: 1}, ""},
		"a deletion beside a power cycle":    {remediate.PowerCycle, remediate.DeleteMachine, "one", guard.Limits{MaxInFlight: 1, MaxInFlightTotal: 1, MaxInFlightPerZone: 1, StartsPerHour: 1, DeletionsPerHour: 1}, ""},
		"a second deletion of the check":     {remediate.DeleteMachine, remediate.DeleteMachine, "one", guard.Limits{MaxDeletions: 1}, reason.DeletionLimit},
		"a second deletion of another check": {remediate.DeleteMachine, remediate.DeleteMachine, "two", guard.Limits{MaxDeletions: 1}, ""},
		"no token for a second deletion":     {remediate.DeleteMachine, remediate.DeleteMachine, "two", guard.Limits{MaxDeletions: 1, DeletionsPerHour: 1}, reason.DeletionRate},
		"two at a time":                      {remediate.DeleteMachine, remediate.DeleteMachine, "one", guard.Limits{MaxDeletions: 2, DeletionsPerHour: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := c.limits
			l.MaxInFlightPercent, l.MaxFencesPerDay, l.ZoneBreakerMin, l.ZoneKey = 100, 5, 9, "zone"
			b := New(Options{Name: "c", Limits: NewLimits(l, remediate.Limits{})}, noon)
			node := &policy.Node{Name: "n-1", UID: "u-1", Labels: map[string]string{"zone": "z"}}
			b.ledger.Apply(noon, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: node.Name}, Value: node})
			reserve := func(n int, strategy remediate.Strategy, check string) error {
				r := remediate.Begin(remediate.Run{ID: fmt.Sprint("r", n), Strategy: strategy, CheckID: check, Target: remediate.Target{Cluster: "c", Node: fmt.Sprint("n-", n)}}, noon)
				slots := 0
				for _, open := range b.OpenRuns() {
					if !DeletesOnly(&open) {
						slots++
					}
				}
				return b.Reserve(Candidate{Draft: r, Node: node}, r, slots, time.Time{}, noon)
			}
			require.NoError(t, reserve(1, c.first, "one"))
			err := reserve(2, c.second, c.check)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			refusal, ok := errors.AsType[*reason.Refusal](err)
			require.True(t, ok, "%v", err)
			assert.Equal(t, c.want, refusal.Reason)
		})
	}
}

// A Machine was Ready if its Node was Ready at any time since it was first seen.
func TestWhichMachinesWereNeverReady(t *testing.T) {
	b := New(Options{Name: "c", Rules: policy.Rules{Namespaces: []string{"ns"}}}, noon)
	put := func(changes ...policy.Change) { b.Follow(noon, changes, time.Time{}) }
	machine := func(n int, node string) policy.Change {
		m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: fmt.Sprint("m-", n), UID: fmt.Sprint("uid-", n), NodeName: node,
			Created: after(n), ControllerOwner: policy.Owner{Kind: "MachineSet", Name: "s", UID: "u"}}
		return policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: m.Name}, Value: m}
	}
	node := func(name, ready string) policy.Change {
		return policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name},
			Value: &policy.Node{Name: name, UID: "u-" + name, Conditions: []policy.Condition{{Type: "Ready", Status: ready}}}}
	}
	neverReady := func(n int) bool {
		return b.replacements.originOf(b.ledger.MachineIn(policy.OpenShiftMachineAPI, "ns", fmt.Sprint("m-", n))).NeverReady
	}
	put(machine(1, "n-1"), node("n-1", "True"), machine(2, "n-2"), node("n-2", "Unknown"), machine(3, ""))
	assert.False(t, neverReady(1))
	assert.True(t, neverReady(2), "it was not Ready when this daemon started")
	assert.True(t, neverReady(3), "it has no Node")
	assert.Equal(t, after(1), b.replacements.lastGood["u"])

	put(node("n-1", "Unknown"), machine(1, "n-1"))
	assert.False(t, neverReady(1), "it was Ready before")
	put(node("n-3", "True"))
	assert.True(t, neverReady(3), "the Node is not known to be its Node")
	put(machine(3, "n-3"))
	assert.False(t, neverReady(3))
	assert.Equal(t, after(3), b.replacements.lastGood["u"])
	put(node("n-2", "True"))
	assert.False(t, neverReady(2))
	assert.Equal(t, after(3), b.replacements.lastGood["u"], "the newest that was Ready")

	old := node("n-5", "True")
	old.Value.(*policy.Node).Conditions[0].LastTransition = after(4)
	put(old, machine(5, "n-5"))
	assert.True(t, neverReady(5), "the Node was Ready before the Machine was created")
	assert.Equal(t, after(3), b.replacements.lastGood["u"])
	again := node("n-5", "True")
	again.Value.(*policy.Node).Conditions[0].LastTransition = after(5)
	put(again)
	assert.False(t, neverReady(5))

	put(machine(4, ""), policy.Change{ID: machine(4, "").ID})
	b.Forget(noon, noon)
	assert.Empty(t, b.replacements.neverReady)
}
