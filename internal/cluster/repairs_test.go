package cluster

import (
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
			n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
			if n.ControlPlane = true; node == "worker" {
				n.Labels = map[string]string{"node.kubernetes.io/microk8s-controlplane": ""}
			}
		})
	}
	for _, node := range []string{"cp", "worker"} {
		x, err := a.b.CandidateForOrder(wire.Order{Node: node, Actor: "x", Reason: "x"})
		require.NoError(t, err)
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
	n := &policy.Node{Name: name, UID: "uid-" + name, Conditions: []policy.Condition{{Type: "Ready", Status: ready, LastTransition: a.now.Add(-time.Hour)}}}
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
	r, err := a.reserve(a.candidate(t, "old"), reboot)
	require.NoError(t, err)
	a.b.Objects.ledger.Apply(a.now, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: "old"}})
	a.node("new", "Unknown", func(n *policy.Node) { n.SystemUUID = "33221100-5544-7766-8899-aabbccddeeff" })
	c := a.candidate(t, "new")
	_, err = a.reserve(c, reboot)
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
