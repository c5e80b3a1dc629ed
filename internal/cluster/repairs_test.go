package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/test/must"
)

// Nobody knows whether a record that cannot be read is about a control-plane host: while it is there, no
// other host of the control plane is remediated. // I12
func TestUnreadableRecordMayBeOfTheControlPlane(t *testing.T) {
	a := newAsking(manyLimits())
	a.node("cp", "Unknown", func(n *policy.Node) { n.ControlPlane = true })
	a.node("n", "Unknown")
	a.b.Runs.SetRepairs([]Repair{{ID: "9", By: "what record 9 asks for, which cannot be read", ControlPlane: true, Target: remediate.Target{Cluster: "c", Node: "cp-2"}}})
	for node, want := range map[string]string{"cp": "9", "n": ""} {
		f := guard.Facts{AsksOther: true, ControlPlane: node == "cp"}
		a.b.Count(Candidate{Draft: remediate.Run{Target: remediate.Target{Node: node}}}, "", &f, time.Time{}, a.now)
		assert.Equal(t, want, f.ControlPlaneRun, node)
	}
	assert.Equal(t, []policy.OpenRun{{ID: "of the remediator of what record 9 asks for, which cannot be read", Node: "cp-2", ControlPlane: true}}, a.b.Runs.openTargets())
}

// The cluster's Lease is kept while another remediator that fenced asked may be at work, as while a run is open: else another
// installation would act on the host. // I22
func TestRepairKeepsTheClusterOpen(t *testing.T) {
	rs := newAsking(manyLimits()).b.Runs
	assert.False(t, rs.AnyOpen())
	rs.PutRepair(Repair{ID: "1", Check: "c"})
	assert.False(t, rs.AnyOpen(), "nothing is at work")
	rs.PutRepair(Repair{ID: "2", By: "Reboot ns/n of record 2"})
	assert.True(t, rs.AnyOpen())
	rs.DropRepair("2")
	assert.False(t, rs.AnyOpen())
}

// A run on a host of which only its kubelet says that it is of the control plane does not make others of it wait, and
// neither does a request to another remediator. // I12
func TestRunThatTakesNoTurn(t *testing.T) {
	a := newAsking(manyLimits())
	for _, node := range []string{"cp", "worker"} {
		a.node(node, "Unknown", func(n *policy.Node) {
			n.Labels = policy.LabelsOf(map[string]string{"node-role.kubernetes.io/control-plane": ""})
			if n.ControlPlane = true; node == "worker" {
				n.Labels = policy.LabelsOf(map[string]string{"node.kubernetes.io/microk8s-controlplane": ""})
			}
		})
	}
	for _, node := range []string{"cp", "worker"} {
		x := must.Do(a.b.CandidateForOrder(wire.Order{Node: node, Actor: "x", Reason: "x"}))(t)
		r, busy := x.Draft, map[string]string{"cp": "1", "worker": ""}[node]
		assert.True(t, r.ControlPlane, node)
		assert.Equal(t, node == "worker", r.TakesNoTurn)
		r.ID, r.Step = "1", remediate.PowerOff
		for _, run := range []bool{true, false} {
			a.b.Runs.byID, a.b.Runs.repairs = map[string]*remediate.Run{}, map[string]Repair{}
			if run {
				a.b.Runs.byID["1"] = &r
			} else {
				a.b.Runs.repairs["1"] = Repair{ID: "1", By: "K", Target: r.Target, ControlPlane: true, TakesNoTurn: r.TakesNoTurn}
			}
			f := guard.Facts{NeedsHost: true, ControlPlane: true}
			a.b.Count(Candidate{Draft: remediate.Run{Target: remediate.Target{Node: "cp-2"}}}, "", &f, time.Time{}, a.now)
			assert.Equal(t, busy, f.ControlPlaneRun, node)
		}
	}
}

var (
	reboot  = policy.Template{APIVersion: "example.com/v1", Kind: "RebootTemplate", Namespace: "ns", Name: "reboot"}
	replace = policy.Template{APIVersion: "example.com/v1", Kind: "ReplaceTemplate", Namespace: "ns", Name: "replace"}
)

// asking is a cluster with a FencePolicy that asks another remediator for each Node that is not ready.
type asking struct {
	b     *Model
	check policy.Check
	now   time.Time
}

func newAsking(limits guard.Limits) *asking {
	a := &asking{now: time.Now(), check: policy.Check{
		Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p", Selector: labels.Everything(), SelectsNodes: true, Source: "cluster",
		Strategy: policy.CreateRequests, Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}}, Template: &reboot,
	}}
	a.b = New(Options{Name: "c", Limits: NewLimits(limits, remediate.Limits{RunTimeout: time.Hour})}, a.now)
	a.b.Objects.complete = true
	a.put()
	return a
}

// manyLimits are limits that nothing here reaches.
func manyLimits() guard.Limits {
	return guard.Limits{MaxInFlight: 50, MaxInFlightPercent: 100, MaxInFlightPerZone: 50, MaxInFlightTotal: 50, MaxFencesPerDay: 50, ZoneBreakerMin: 50, ZoneKey: "zone"}
}

// put makes the ledger have the check as it is now.
func (a *asking) put() {
	check := a.check
	a.b.Objects.ledger.Apply(a.now, policy.Change{ID: checkObject(&check), Value: &check})
}

func (a *asking) node(name, ready string, change ...func(*policy.Node)) *policy.Node {
	n := &policy.Node{Name: name, UID: "uid-" + name, Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: ready, LastTransition: a.now.Add(-time.Hour)}})}
	for _, f := range change {
		f(n)
	}
	a.b.Objects.ledger.Apply(a.now, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}, Value: n})
	return n
}

// machine puts a Machine of OpenShift, named like its Node.
func (a *asking) machine(name, uid string) *policy.Machine {
	m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: name, UID: uid, NodeName: name}
	a.b.Objects.ledger.Apply(a.now, policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: name}, Value: m})
	return m
}

// candidate is that of a Node as the deciding loop sees it now.
func (a *asking) candidate(t *testing.T, node string) Candidate {
	t.Helper()
	unlock := a.b.lock()
	a.b.applyOpenRuns(a.now)
	targets := a.b.Objects.ledger.ActingOn(a.check.ID(), node, a.now)
	unlock()
	require.Len(t, targets, 1)
	c, ok := a.b.CandidateForCheck(a.b.Objects.Check(a.check.ID()), &targets[0])
	require.True(t, ok)
	return c
}

// reserve is what package escalate does: one record for a target, with a try from a template.
func (a *asking) reserve(c Candidate, from policy.Template) (Repair, error) {
	p := Repair{ID: NewRunID(a.now), Check: c.Check.Mark()}
	for _, other := range a.b.Runs.repairs {
		if other.Check == p.Check && other.Target.Overlaps(c.Draft.Target) {
			p = other
		}
	}
	kind := strings.TrimSuffix(from.Kind, "Template")
	p.Target, p.ControlPlane, p.NodeLabels, p.NodeNames, p.InFlight = c.Draft.Target, c.Draft.ControlPlane, c.Draft.NodeLabels, c.Draft.NodeNames, true
	p.By = kind + " of record " + p.ID
	p.Tries = append(slices.Clone(p.Tries), Try{Open: true, Attempt: policy.Attempt{APIVersion: from.APIVersion, Kind: kind, TemplateName: from.Name, Started: a.now}})
	c.Template = &from
	return p, a.b.ReserveRepair(c, p, 0, time.Time{}, a.now)
}

func refusedFor(t *testing.T, err error) reason.Code {
	t.Helper()
	r, is := reason.AsRefusal(err)
	require.True(t, is, "%v", err)
	return r.Reason
}

// Between the gates of a target and the object, the check may have changed its mind.
func TestReserveAsksTheCheckAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*asking)
		from   policy.Template
		code   reason.Code
	}{
		"as before":        {func(*asking) {}, reboot, ""},
		"recovered":        {func(a *asking) { a.node("n", "True") }, reboot, reason.NotUnhealthy},
		"another template": {func(a *asking) { a.check.Template = &replace; a.put() }, reboot, reason.NotUnhealthy},
		"fenced itself":    {func(a *asking) { a.check.Strategy = policy.PowerCycleHosts; a.put() }, reboot, reason.NotUnhealthy},
		"over the limit": {func(a *asking) {
			a.check.MaxUnhealthy = &intstr.IntOrString{IntVal: 1}
			a.put()
			a.node("second", "Unknown")
		}, reboot, reason.ShortCircuit},
		"no check": {func(a *asking) {
			a.b.Objects.ledger.Apply(a.now, policy.Change{ID: checkObject(&a.check)})
		}, reboot, reason.NotUnhealthy},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAsking(manyLimits())
			a.node("n", "Unknown")
			before := a.candidate(t, "n")
			c.change(a)
			_, err := a.reserve(before, c.from)
			if c.code == "" {
				require.NoError(t, err)
				return
			}
			assert.Equal(t, c.code, refusedFor(t, err))
			assert.Empty(t, a.b.Runs.repairs)
		})
	}
}

// A host that has registered under another name, with the system UUID in another byte order, is still
// the one that another remediator works on: no run begins there, nobody else is asked, and nobody is
// asked while a run is open on it. // I6, I22
func TestRenamedNodeIsBlocked(t *testing.T) {
	a := newAsking(manyLimits())
	a.node("old", "Unknown", func(n *policy.Node) { n.SystemUUID = "00112233-4455-6677-8899-aabbccddeeff" })
	r := must.Do(a.reserve(a.candidate(t, "old"), reboot))(t)
	a.b.Objects.ledger.Apply(a.now, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "old"}})
	a.node("new", "Unknown", func(n *policy.Node) { n.SystemUUID = "33221100-5544-7766-8899-aabbccddeeff" })
	c := a.candidate(t, "new")
	_, err := a.reserve(c, reboot)
	assert.Equal(t, reason.AlreadyRequested, refusedFor(t, err))
	run := remediate.Run{ID: "run", Step: remediate.PowerOff, Started: a.now, Strategy: remediate.PowerCycle, Target: c.Draft.Target, Manual: &remediate.Order{}}
	err = a.b.Reserve(Candidate{Draft: run}, run, 0, time.Time{}, a.now)
	assert.Equal(t, reason.AlreadyRequested, refusedFor(t, err))
	f := guard.Facts{AsksOther: true}
	a.b.Count(c, "", &f, time.Time{}, a.now)
	assert.Contains(t, f.OpenRun, r.ID)

	a.end(r, false)
	open := run
	open.Target = r.Target
	a.b.Runs.Put(open)
	_, err = a.reserve(c, reboot)
	assert.Equal(t, reason.UnderRemediation, refusedFor(t, err))
}

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
			s := rs.deletionsOf(controllerOf(policy.OpenShiftMachineAPI, "ns", "u"), c.lastGood, after(99))
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
		b.Objects.ledger.Apply(noon, policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: m.Name}, Value: m})
	}
	node := func(b *Model, uid string) {
		b.Objects.ledger.Apply(noon, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "n-1"}, Value: &policy.Node{Name: "n-1", UID: uid}})
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
			b.Runs.byID[r.ID] = &r
			a := Candidate{Draft: remediate.Run{CheckID: "check", Strategy: remediate.DeleteMachine}}
			assert.Equal(t, c.counts, b.Runs.countDeletions(b.Objects.ledger, b.Objects.replacements, b.Options.Limits.Now().Guards, a, c.now).InProgress)
			_, overdue := b.Runs.disappearing(b.Objects.ledger, b.Options.Limits.Now().Guards.DeletionTimeout, c.now)
			assert.Len(t, overdue, c.overdue)
		})
	}
}

// A deletion that a wrong clock dated a year ahead, as its order or only as the end of a run that found its Machine being deleted, counts
// from when it was seen, or, where nobody saw it, from when this instance began to lead: it keeps no other deletion waiting for
// the year, and hides no replacement that failed. // I15, L4
func TestDeletionAtATimeToComeCountsFromWhenItWasSeen(t *testing.T) {
	year := time.Now().AddDate(1, 0, 0)
	ordered := deleted(1, year, noon, false)
	found := ordered
	found.Intent = remediate.Intent{}
	for name, ended := range map[string]remediate.Run{"ordered": ordered, "found being deleted": found} {
		begun := ended
		begun.Step, begun.Ended = remediate.Reprovision, time.Time{}
		for when, before := range map[string]remediate.Run{"seen": begun, "not seen": ended} {
			b := New(Options{Name: "c", Limits: NewLimits(guard.Limits{DeletionTimeout: 30 * time.Minute}, remediate.Limits{})}, noon)
			b.Objects.ledger.Apply(noon, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "n-1"}, Value: &policy.Node{Name: "n-1", UID: "node-1"}})
			require.NoError(t, b.Runs.BeginLeadership([]remediate.Run{before}))
			b.Runs.Put(ended)
			replacement := Candidate{Draft: remediate.Run{CheckID: "check", Strategy: remediate.DeleteMachine,
				Target: remediate.Target{Namespace: "ns", MachineAPI: policy.OpenShiftMachineAPI}, Origin: &remediate.Origin{Controller: "u", Created: time.Now(), NeverReady: true}}}
			for since, inProgress := range map[time.Duration]int{0: 1, time.Hour: 0} {
				now := time.Now().Add(since)
				d := b.Runs.countDeletions(b.Objects.ledger, b.Objects.replacements, b.Options.Limits.Now().Guards, replacement, now)
				assert.Equal(t, []int{inProgress, 1}, []int{d.InProgress, d.FailedReplacements}, "%s, %s, %s later", name, when, since)
				assert.InDelta(t, since, now.Sub(d.Last), float64(time.Minute), name)
				_, overdue := b.Runs.disappearing(b.Objects.ledger, b.Options.Limits.Now().Guards.DeletionTimeout, now)
				assert.Len(t, overdue, 1-inProgress, name)
			}
		}
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
			node := &policy.Node{Name: "n-1", UID: "u-1", Labels: policy.LabelsOf(map[string]string{"zone": "z"})}
			b.Objects.ledger.Apply(noon, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: node.Name}, Value: node})
			reserve := func(n int, strategy remediate.Strategy, check string) error {
				r := remediate.Begin(remediate.Run{ID: fmt.Sprint("r", n), Strategy: strategy, CheckID: check, Target: remediate.Target{Cluster: "c", Node: fmt.Sprint("n-", n)}}, noon)
				slots := 0
				for _, open := range b.Runs.Open() {
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
	u := controllerOf(policy.OpenShiftMachineAPI, "ns", "u")
	b := New(Options{Name: "c", Rules: policy.Rules{Namespaces: []string{"ns"}}}, noon)
	put := func(changes ...policy.Change) { b.Follow(noon, changes, time.Time{}) }
	machine := func(n int, node string) policy.Change {
		m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: fmt.Sprint("m-", n), UID: fmt.Sprint("uid-", n), NodeName: node,
			Created: after(n), ControllerOwner: policy.Owner{Kind: "MachineSet", Name: "s", UID: "u"}}
		return policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: m.Name}, Value: m}
	}
	node := func(name, ready string) policy.Change {
		return policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name},
			Value: &policy.Node{Name: name, UID: "u-" + name, Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: ready}})}}
	}
	neverReady := func(n int) bool {
		return b.Objects.replacements.originOf(b.Objects.ledger.MachineIn(policy.OpenShiftMachineAPI, "ns", fmt.Sprint("m-", n))).NeverReady
	}
	put(machine(1, "n-1"), node("n-1", "True"), machine(2, "n-2"), node("n-2", "Unknown"), machine(3, ""))
	assert.False(t, neverReady(1))
	assert.True(t, neverReady(2), "it was not Ready when this daemon started")
	assert.True(t, neverReady(3), "it has no Node")
	assert.Equal(t, after(1), b.Objects.replacements.lastGood[u])

	put(node("n-1", "Unknown"), machine(1, "n-1"))
	assert.False(t, neverReady(1), "it was Ready before")
	put(node("n-3", "True"))
	assert.True(t, neverReady(3), "the Node is not known to be its Node")
	put(machine(3, "n-3"))
	assert.False(t, neverReady(3))
	assert.Equal(t, after(3), b.Objects.replacements.lastGood[u])
	put(node("n-2", "True"))
	assert.False(t, neverReady(2))
	assert.Equal(t, after(3), b.Objects.replacements.lastGood[u], "the newest that was Ready")

	old := node("n-5", "True")
	old.Value.(*policy.Node).Conditions = policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "True", LastTransition: after(4)}})
	put(old, machine(5, "n-5"))
	assert.True(t, neverReady(5), "the Node was Ready before the Machine was created")
	assert.Equal(t, after(3), b.Objects.replacements.lastGood[u])
	again := node("n-5", "True")
	again.Value.(*policy.Node).Conditions = policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "True", LastTransition: after(5)}})
	put(again)
	assert.False(t, neverReady(5))

	put(machine(4, ""), policy.Change{ID: machine(4, "").ID})
	b.Forget(noon, noon)
	assert.Empty(t, b.Objects.replacements.neverReady)
}

// An owner is in the namespace of its Machine. So a Machine elsewhere that names the owner of others says nothing about its replacements,
// neither that one works nor that one has failed; and owners that are gone are forgotten. // I11
func TestOwnerOfMachinesIsOfTheirNamespace(t *testing.T) {
	b := New(Options{Name: "c", Limits: NewLimits(guard.Limits{MaxDeletions: 5}, remediate.Limits{}), Rules: policy.Rules{Namespaces: []string{"ns", "tenant"}}}, noon)
	machine := func(namespace string, n int, node string) policy.Change {
		m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: namespace, Name: fmt.Sprint("m-", n), UID: fmt.Sprint("uid-", n), NodeName: node,
			Created: after(n), ControllerOwner: policy.Owner{Kind: "MachineSet", Name: "s", UID: "u"}}
		return policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: namespace, Name: m.Name}, Value: m}
	}
	ready := policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "n-9"},
		Value: &policy.Node{Name: "n-9", UID: "u-9", Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "True"}})}}
	failed := func() int {
		f := guard.Facts{}
		b.Count(Candidate{Draft: remediate.Run{ID: "new", Strategy: remediate.DeleteMachine, Origin: &remediate.Origin{Controller: "u", Created: after(5)},
			Target: remediate.Target{Cluster: "c", MachineAPI: policy.OpenShiftMachineAPI, Namespace: "ns", Machine: "m-5", MachineUID: "uid-5"}}}, "", &f, time.Time{}, after(6))
		return f.Deletion.FailedReplacements
	}
	b.Runs.Put(deleted(1, after(0), noon.Add(-24*time.Hour), false))
	b.Runs.Put(deleted(2, after(2), after(1), true))
	before := failed()
	require.Positive(t, before)
	other := deleted(3, after(4), after(3), true)
	other.Target.Namespace = "tenant"
	b.Runs.Put(other)
	assert.Equal(t, before, failed(), "another owner's Machine has failed")
	b.Follow(noon, []policy.Change{machine("tenant", 9, "n-9"), ready}, time.Time{})
	assert.Equal(t, before, failed(), "another owner's Machine works")

	require.Len(t, b.Objects.replacements.lastGood, 1)
	b.Forget(noon, noon)
	assert.Len(t, b.Objects.replacements.lastGood, 1)
	b.Follow(noon, []policy.Change{{ID: machine("tenant", 9, "n-9").ID}}, time.Time{})
	b.Forget(noon, noon)
	assert.Empty(t, b.Objects.replacements.lastGood)
}

// The ledger gets the open runs anew when one opens, ends or gets another target, and not at each
// save.
func TestOnlySavesThatMatterReachTheLedger(t *testing.T) {
	b := New(Options{Name: "c"}, time.Now())
	r := remediate.Run{ID: "1", Step: remediate.PowerOff, Target: remediate.Target{Cluster: "c", Node: "n", Namespace: "ns", Machine: "m"}}
	put := func(change func(*remediate.Run)) bool {
		b.Runs.changed = false
		change(&r)
		b.Runs.Put(r)
		return b.Runs.changed
	}
	assert.True(t, put(func(*remediate.Run) {}), "it opens")
	assert.False(t, put(func(r *remediate.Run) { r.Version++ }))
	assert.False(t, put(func(r *remediate.Run) { r.Step = remediate.DeleteNode }))
	assert.True(t, put(func(r *remediate.Run) { r.Target.Node = "other" }))
	assert.True(t, put(func(r *remediate.Run) { r.ControlPlane = true }))
	assert.True(t, put(func(r *remediate.Run) { r.Step = remediate.Done }), "it ends")
	assert.False(t, put(func(r *remediate.Run) { r.Version++ }))

	b.Runs.changed = true // by another run
	b.Runs.Put(r)
	assert.True(t, b.Runs.changed)
}

// TestFewestFirst: who has many targets in one namespace comes after the others, whatever the names.
func TestFewestFirst(t *testing.T) {
	check := func(source, namespace, name string, targets int) policy.CheckReport {
		return policy.CheckReport{Source: source, Namespace: namespace, Name: name, Targets: make([]policy.TargetReport, targets)}
	}
	list := []policy.CheckReport{
		check("cluster", "aaa", "a", 1), check("cluster", "aaa", "b", 9), check("cluster", "racks", "d", 2), check("cluster", "racks", "e", 3),
		check("", "", "nhc", 20), check("policies.d/a.yaml:1", "aaa", "file", 20),
	}
	fewestFirst(list)
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	assert.Equal(t, []string{"nhc", "file", "d", "e", "a", "b"}, names)
}

// Of the Machines that name a Node, the one that owns it says which BMC shows that the host is off: another one may have a BMC of anybody's
// choice, and would end the wait of others, or keep it. // I8
func TestEvidenceIsOfTheOwnersBMC(t *testing.T) {
	for _, namespaces := range [][]string{{"ns", "tenant"}, {"tenant", "ns"}} {
		b := New(Options{Name: "c", Limits: NewLimits(guard.Limits{}, remediate.Limits{})}, noon)
		check := policy.Check{Kind: policy.FencePolicyKind, APIVersion: policy.FencedAPI, Name: "p", Selector: labels.Everything(), Source: "p.yaml:1", Strategy: policy.PowerCycleHosts,
			ShortenOnEvidence: true, Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Hour}}}
		n := &policy.Node{Name: "n", UID: "u", OpenShiftMachine: "ns/m", Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: noon}})}
		changes := []policy.Change{{ID: checkObject(&check), Value: &check}, {ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "n"}, Value: n}}
		for _, namespace := range namespaces {
			m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: namespace, Name: "m", UID: namespace, NodeName: "n"}
			changes = append(changes, policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: namespace, Name: m.Name}, Value: m})
		}
		b.Follow(after(1), changes, time.Time{})
		wanted, shortens := b.Objects.DraftPending(nil)
		assert.True(t, shortens)
		assert.Equal(t, "ns", wanted["n"].Target.Namespace, "%v", namespaces)
	}
}

// A file of policies.d that gets another name loses nothing: neither the deletions that its check has in progress, nor its storm. // I11
func TestCheckInARenamedFileIsTheSame(t *testing.T) {
	check := policy.Check{Kind: policy.NodeHealthCheckKind, APIVersion: policy.Medik8sAPI, Name: "k", Selector: labels.Everything(), SelectsNodes: true, Source: "policies.d/a.yaml:1",
		Strategy: policy.CreateRequests, Template: &ownTemplate, MaxUnhealthy: new(intstr.FromInt32(1)), StormCooldown: time.Hour,
		Conditions: []policy.UnhealthyCondition{{Type: "Ready", Status: "Unknown", Timeout: time.Minute}}}
	b := New(Options{Name: "c", Limits: NewLimits(guard.Limits{DeletionTimeout: time.Hour}, remediate.Limits{}), FileChecks: []policy.Check{check}}, noon)
	var changes []policy.Change
	for _, name := range []string{"n-1", "n-2"} {
		n := &policy.Node{Name: name, UID: name, Conditions: policy.ConditionsOf([]policy.Condition{{Type: "Ready", Status: "Unknown", LastTransition: noon}})}
		changes = append(changes, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}, Value: n})
	}
	b.Follow(after(120), changes, time.Time{})
	storm := func() policy.Storm { return b.Objects.ledger.Counters()[0].Storm }
	require.Equal(t, policy.Storm{Active: true}, storm())
	r := remediate.Run{ID: "1", CheckID: CheckID(check.ID()), Step: remediate.Reprovision, Strategy: remediate.DeleteMachine, Target: remediate.Target{Cluster: "c", Namespace: "ns", Machine: "m"}}
	b.Runs.Put(r)

	check.Source = "policies.d/b.yaml:7"
	b.Objects.ReplaceFiles(Files{Checks: []policy.Check{check}}, after(121))
	assert.Equal(t, policy.Storm{Active: true}, b.Objects.ledger.Check(check.ID()).Storm)
	f := guard.Facts{}
	b.Count(Candidate{Draft: remediate.Run{ID: "2", CheckID: CheckID(check.ID()), Strategy: remediate.DeleteMachine, Target: remediate.Target{Cluster: "c", Namespace: "ns", Machine: "other"}}}, "", &f, time.Time{}, after(122))
	assert.Equal(t, 1, f.Deletion.InProgress)

	withdrawn, why := b.Objects.Withdrawn(r)
	assert.Equal(t, remediate.No, withdrawn, "%s: no run is begun in the place of one that nobody asks for any more", why) // L5
	check.Source = "cluster"
	r.CheckID = CheckID(check.ID())
	withdrawn, _ = b.Objects.Withdrawn(r)
	assert.Equal(t, remediate.Yes, withdrawn, "one of the cluster is another")
}

// Others are asked for a limited number of checks. Whoever may write checks in a namespace takes the places of no other: those of
// administrators come first, then those of namespaces in turn, of which the ones that clusters[] names come first. // I18
func TestChecksOfANamespaceTakeThePlacesOfNoOther(t *testing.T) {
	b := New(Options{Name: "c", Limits: NewLimits(manyLimits(), remediate.Limits{}), Rules: policy.Rules{Namespaces: []string{"ns"}}}, time.Now())
	all := intstr.FromString("100%")
	handed := func(apiVersion, kind, namespace, name string) {
		check := policy.Check{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name, Source: "cluster", Selector: labels.Everything(), MaxUnhealthy: &all,
			SelectsNodes: namespace == "", Strategy: policy.CreateRequests, Template: &reboot, Evaluator: "here", Paused: namespace != ""}
		b.Objects.ledger.Apply(time.Now(), policy.Change{ID: checkObject(&check), Value: &check})
	}
	for i := range 60 {
		handed(policy.OpenShiftMachineAPI, policy.MachineHealthCheckKind, "aa", fmt.Sprint("a", 10+i))
	}
	for _, namespace := range []string{"ns", "zz"} {
		handed(policy.OpenShiftMachineAPI, policy.MachineHealthCheckKind, namespace, "workers")
	}
	handed(policy.Medik8sAPI, policy.NodeHealthCheckKind, "", "workers")
	var first []string
	for _, check := range b.Makers()[:5] {
		first = append(first, check.Key())
	}
	assert.Equal(t, []string{"workers", "ns/workers", "aa/a10", "zz/workers", "aa/a11"}, first)
}
