package policy

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/law"
)

// The paused Machine of a Node turns unreadable: it is not absent, and neither is
// what nobody can tell the kind of.
func TestUnreadMachineIsNotAbsent(t *testing.T) {
	m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", UID: "u", NodeName: "n", Paused: true}
	id := put(m).ID
	l := ledgerWith(Rules{Namespaces: []string{"ns"}}, put(nodePolicy()), put(silentNode("n")), put(m))
	require.Empty(t, acts(t, l), "the Machine is paused")
	l.Apply(ledgerEpoch, Change{ID: id, Err: errors.New("spec.providerID is a number")})
	require.Empty(t, acts(t, l))
	x := l.Report(ledgerEpoch).Checks[0].Targets[0]
	assert.Equal(t, reason.Undecodable, x.Reason)
	assert.Equal(t, reason.Undecodable, l.Doubt(nil, l.Node("n")).Reason)
	assert.Equal(t, reason.Undecodable, l.Doubt(nil, nil).Reason)
	l.Apply(ledgerEpoch, Change{ID: id})
	assert.Equal(t, []string{"n "}, acts(t, l), "now it is gone")
	assert.Zero(t, l.Doubt(nil, l.Node("n")))
	l.Apply(ledgerEpoch, Change{ID: ObjectID{Name: "x"}, Err: errors.New("it has no kind")})
	assert.Empty(t, acts(t, l))
}

// A Node that a Machine claims needs no other Machine to be read.
func TestUnreadMachineSparesTheOthers(t *testing.T) {
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	l.Apply(ledgerEpoch, put(nodePolicy()), put(silentNode("n")), put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", NodeName: "n"}),
		Change{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: "Machine", Namespace: "ns", Name: "o"}, Err: errors.New("x")})
	assert.Equal(t, []string{"n ns/m"}, acts(t, l))
}

// A Node of another cluster has the name that a Machine gives. // I4
func TestNodeOfTheSameName(t *testing.T) {
	c := &Check{Kind: MachineHealthCheckKind, APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "c", ClusterName: "c", Selector: labels.Everything(),
		Strategy: MarkOwners, Conditions: nodePolicy().Conditions}
	n := silentNode("n")
	n.ProviderID = "metal3://other/host-7/n"
	m := &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "m", UID: "u", NodeName: "n", ProviderID: "metal3://ns/host-1/m", ClusterName: "c",
		ControllerOwner: Owner{Kind: "MachineSet", Name: "s", UID: "s"}}
	l := ledgerWith(Rules{Namespaces: []string{"ns"}}, put(c), put(n), put(m))
	require.Empty(t, acts(t, l))
	assert.Equal(t, reason.NodeMismatch, l.Doubt(m, n).Reason)
	fresh := Evaluate(c, CheckContext{}, Subject{Machine: m, Node: n}, ledgerEpoch)
	assert.Equal(t, reason.NodeMismatch, fresh.Reason, "the engine asks with fresh objects")
	assert.Equal(t, None, fresh.Action)

	same := *n
	same.ProviderID, same.UID = m.ProviderID, "registered anew"
	l.Apply(ledgerEpoch, put(&same))
	assert.Equal(t, []string{"n ns/m"}, acts(t, l))
}

// Two Machines name one Node: only the one whose host it is may be touched.
func TestOneNodeOfTwoMachines(t *testing.T) {
	own := Owner{Kind: "MachineSet", Name: "s", UID: "u"}
	wrong := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "a-wrong", NodeName: "n", ProviderID: "baremetalhost:///ns/h1/1", ControllerOwner: own}
	right := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "b-right", NodeName: "n", ProviderID: "baremetalhost:///ns/h2/2", ControllerOwner: own}
	nodes := nodePolicy()
	nodes.Strategy = DeleteMachines
	machines := *nodes
	machines.Name, machines.SelectsNodes = "m", false
	for _, c := range []*Check{nodes, &machines} {
		for providerID, want := range map[string][]string{
			"baremetalhost:///ns/h2/2": {"n ns/b-right"},
			"baremetalhost:///ns/h2":   {"n ns/b-right"}, // as it was once written
			"baremetalhost:///ns/h3/3": nil,
			"":                         nil,
		} {
			l := NewLedger(Rules{Namespaces: []string{"ns"}})
			n := silentNode("n")
			n.ProviderID = providerID
			l.Apply(ledgerEpoch, put(c), put(n), put(wrong), put(right))
			assert.Equal(t, want, acts(t, l), "%s %s", c.Name, providerID)
			if want == nil {
				assert.Equal(t, reason.NodeMismatch, l.Doubt(l.MachineOf("n"), n).Reason)
			} else {
				assert.Same(t, right, l.MachineOf("n"))
			}
		}
	}
}

// Both API families may show one Machine; within one API family no two are one.
func TestOneNodeOfTwoMachinesAlike(t *testing.T) {
	a := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "a", NodeName: "n", ProviderID: "baremetalhost:///ns/h1/1"}
	b := *a
	b.Name = "b"
	n := silentNode("n")
	n.ProviderID = a.ProviderID
	c := nodePolicy()
	c.SelectsNodes = false
	nodes := nodePolicy()
	nodes.Name = "nodes"
	l := ledgerWith(Rules{Namespaces: []string{"ns"}}, put(c), put(nodes), put(n), put(a), put(&b))
	require.Empty(t, acts(t, l))
	assert.Equal(t, reason.NodeMismatch, l.Doubt(a, n).Reason)
	other := b
	other.APIVersion = ClusterAPIV1Beta2
	l.Apply(ledgerEpoch, Change{ID: put(&b).ID}, put(&other))
	assert.Equal(t, []string{"n ns/a", "n ns/b"}, acts(t, l), "by the check that selects Machines")
}

// The Node is gone, and nobody can say any more whose it was.
func TestGoneNodeOfTwoMachines(t *testing.T) {
	c := nodePolicy()
	c.SelectsNodes = false
	a := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "a", NodeName: "n", ProviderID: "baremetalhost:///ns/h1"}
	b := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "b", NodeName: "n"}
	l := ledgerWith(Rules{Namespaces: []string{"ns"}}, put(c), put(a))
	require.Equal(t, []string{"n ns/a"}, acts(t, l))
	l.Apply(ledgerEpoch, put(b))
	require.Empty(t, acts(t, l))
	l.Apply(ledgerEpoch, Change{ID: put(b).ID})
	require.Equal(t, []string{"n ns/a"}, acts(t, l))
	twin := *a
	twin.APIVersion = ClusterAPIV1Beta2
	l.Apply(ledgerEpoch, put(&twin))
	assert.Len(t, acts(t, l), 2, "one Machine that both API families show")
}

// A doubt does not come and go with the clocks of the check.
func TestDoubtDoesNotFollowTheClock(t *testing.T) {
	c := &Check{Kind: NodeHealthCheckKind, APIVersion: Medik8sAPI, Name: "c", UID: "u", Selector: labels.Everything(), SelectsNodes: true,
		Strategy: CreateRequests, Template: &worldTemplate, MinHealthy: new(intstr.FromInt32(0)), Conditions: []UnhealthyCondition{{"Ready", "Unknown", 2 * time.Hour}}}
	rival := &Check{Kind: MachineHealthCheckKind, APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "spot", Selector: labels.Everything(),
		Conditions: []UnhealthyCondition{{terminating, "True", 0}}}
	n := silentNode("n")
	n.Conditions = append(n.Conditions, ConditionsOf([]Condition{{Type: terminating, Status: "False"}})...)
	q := &Request{APIVersion: "remediation.example/v1", Kind: "Fix", Namespace: "a", Name: "n", Owners: []Owner{{Kind: NodeHealthCheckKind, Name: "c", UID: "u"}}}
	l := NewLedger(Rules{Namespaces: []string{"ns"}})
	l.Apply(ledgerEpoch, put(c), put(rival), put(n), put(q),
		Change{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: "Machine", Namespace: "ns", Name: "m"}, Err: errors.New("x")})
	for _, now := range []time.Time{ledgerEpoch, ledgerEpoch.Add(3 * time.Hour)} {
		assert.Equal(t, reason.Undecodable, Decide(l.Snapshot(), now).Checks[0].Targets[0].Reason, now)
	}
}

// TestLawsDoubtfulIsLeftAlone: what the engine is told before it drafts a run is
// what the checks have gone by.
func TestLawsDoubtfulIsLeftAlone(t *testing.T) {
	found := map[reason.Code]bool{}
	law.CheckTested(t, func() bool { return found[reason.NodeMismatch] && found[reason.Undecodable] }, func(t *rapid.T) {
		rules := Rules{NodesCountAsMembers: true, TrustNames: true}
		w := &trial{model: newModel(rules), l: NewLedger(rules), now: ledgerEpoch}
		w.populate(t)
		w.apply(drawActing(t)...)
		w.apply(drawMismatch(t)...)
		if odds(t, "unread", 2) {
			w.apply(Change{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: "Machine", Namespace: "a", Name: of(t, "unread", worldMachines...)}, Err: errors.New("it is broken")})
		}
		for _, c := range w.l.Report(w.now).Checks {
			for _, x := range c.Targets {
				namespace, name := splitKey(x.Machine)
				d := w.l.Doubt(w.l.MachineIn(x.MachineAPIVersion, namespace, name), w.l.Node(x.Node))
				if d != (Doubt{}) {
					require.Equal(t, None, x.Action, "%+v: %+v", d, x)
					found[x.Reason] = true
				} else if !w.l.Check(c.ID()).SelectsNodes { // which API family's Machine a Node is of is not known, either
					require.NotEqual(t, reason.NodeMismatch, x.Reason, "%+v", x)
				}
			}
		}
	})
}

// drawMismatch draws, every other time, a Machine whose Node is another host's, and a
// check of all Machines.
func drawMismatch(t *rapid.T) []Change {
	if !rapid.Bool().Draw(t, "mismatch") {
		return nil
	}
	m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "a", Name: "m-0", NodeName: "n-0", ProviderID: "p://1", Phase: "Running"}
	n := &Node{Name: m.NodeName, ProviderID: "p://2", Conditions: ConditionsOf([]Condition{{"Ready", "Unknown", ledgerEpoch.Add(-time.Hour)}})}
	c := &Check{APIVersion: OpenShiftMachineAPI, Kind: MachineHealthCheckKind, Namespace: m.Namespace, Name: "all", Source: "cluster",
		Selector: labels.Everything(), Strategy: PowerCycleHosts, Conditions: []UnhealthyCondition{{"Ready", "Unknown", time.Minute}}}
	return []Change{
		{ID: ObjectID{APIVersion: "v1", Kind: "Node", Name: n.Name}, Value: n}, {ID: ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, Value: m},
		{ID: ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}, Value: c},
	}
}

// TestLawsOneMoreDoubt: another Machine that claims a Node, or one that cannot be
// read, lets nobody act on what was left alone before.
func TestLawsOneMoreDoubt(t *testing.T) {
	acted := false
	law.CheckTested(t, func() bool { return acted }, func(t *rapid.T) {
		m := newModel(Rules{NodesCountAsMembers: true, TrustNames: true})
		for _, c := range append(drawCluster(t, ledgerEpoch), drawActing(t)...) {
			m.apply(c)
		}
		s := m.snapshot()
		before, isDoubt := Decide(s, ledgerEpoch), true
		if odds(t, "unread", 2) {
			s.Undecoded = append(s.Undecoded, ObjectKey{Kind: of(t, "kind", "", "Machine"), Namespace: "a", Name: "unread"})
		} else if at := slices.IndexFunc(s.Machines, func(m Machine) bool { return m.NodeName != "" }); at >= 0 {
			s.Machines = append(s.Machines, Machine{APIVersion: of(t, "another's API", OpenShiftMachineAPI, ClusterAPIV1Beta2), Namespace: of(t, "another's namespace", "0", "a", "z"), Name: "another",
				NodeName: s.Machines[at].NodeName, ProviderID: of(t, "another", "", "p://another", s.Machines[at].ProviderID)})
			x := tablesOf(&s).machineSubject(&s.Machines[len(s.Machines)-1])
			isDoubt = x.doubt() != Doubt{}
		}
		after := Decide(s, ledgerEpoch)
		if !isDoubt && (opened(before, after) || settled(s.Machines)) {
			return // the only Machine of a Node, or a copy in the other API: one more target of a limit
		}
		require.Empty(t, newlyActing(before, after))
		acted = acted || before.Acts()
	})
}

// opened reports whether the limit of a check of before opened.
func opened(before, after Report) bool {
	return slices.ContainsFunc(after.Checks, func(a CheckReport) bool {
		return a.Allowed && slices.ContainsFunc(before.Checks, func(b CheckReport) bool { return b.ID() == a.ID() && !b.Allowed })
	})
}

// settled reports whether a Machine yields to the last one: that shows whose the Node is.
func settled(list []Machine) bool {
	last := &list[len(list)-1]
	return slices.ContainsFunc(list, func(m Machine) bool { return m.NodeName == last.NodeName && m.yieldsTo(last) })
}

// A run whose Machine is of an API that nobody knows is on the Machines of that name in both: of what another remediator was
// asked, and whose record cannot be read, the key does not say it. // I11, I22
func TestRunOnAMachineOfAnUnknownAPI(t *testing.T) {
	now := time.Unix(0, 0)
	for _, api := range []string{OpenShiftMachineAPI, ClusterAPIV1Beta2} {
		l := NewLedger(Rules{})
		m := &Machine{APIVersion: api, Namespace: "ns", Name: "m", UID: "u"}
		l.Apply(now, Change{ID: ObjectID{APIVersion: api, Kind: "Machine", Namespace: "ns", Name: "m"}, Value: m})
		assert.False(t, l.counts(m), api)
		l.SetRuns(now, []OpenRun{{ID: "1", Machine: "ns/m", ControlPlane: true}})
		assert.Equal(t, "1", l.machineSubject(m).Run, api)
		assert.True(t, l.counts(m), api)
		l.SetRuns(now, []OpenRun{{ID: "1", Machine: "ns/m", MachineAPI: "other.example/v1"}})
		assert.Empty(t, l.machineSubject(m).Run, api)
	}
}

// TestOneMoreDoubtKeepsTheOverlap: what a check refuses to another one stays refused where the first one comes
// into doubt, under whichever name the two know the Machine. // I4, I22
func TestOneMoreDoubtKeepsTheOverlap(t *testing.T) {
	const host = "p://1"
	own := Owner{Kind: "MachineSet", Name: "s", UID: "u"}
	failed := Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", NodeName: "n", ProviderID: host, Phase: "Failed", ControllerOwner: own}
	running := failed
	running.Phase = "Running"
	// twin is the same Machine in the Cluster API.
	twin := func(name string) *Machine {
		return &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: name, NodeName: "n", ProviderID: host, Labels: labels.Set{"twin": ""}, ControllerOwner: own}
	}
	machines := func(strategy Strategy) *Check {
		return &Check{Kind: MachineHealthCheckKind, APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "machines", Selector: labels.Everything(),
			Strategy: strategy, Conditions: nodePolicy().Conditions}
	}
	twins := nodePolicy()
	twins.SelectsNodes, twins.Selector = false, labels.SelectorFromSet(labels.Set{"twin": ""})
	asks := nodePolicy()
	asks.Strategy, asks.Template = CreateRequests, &worldTemplate
	asked := &Request{APIVersion: "remediation.example/v1", Kind: "Fix", Namespace: "a", Name: "n"}

	for name, c := range map[string]struct {
		world   []Change
		doubt   Change
		besides []reason.Code // of the power cycle, beside Overlap
	}{
		"the Node of both cannot be read": {
			[]Change{put(&failed), put(twin("other")), put(machines(DeleteMachines)), put(twins)},
			Change{ID: ObjectID{Name: "x"}, Err: errors.New("it has no kind")}, nil,
		},
		"of the two Machines of the Node, the check of Nodes names the other": {
			[]Change{put(silentNode("n")), put(&running), put(machines(DeleteMachines)), put(nodePolicy())},
			put(twin("a-other")), nil,
		},
		"the other remediator is at work": {
			[]Change{put(silentNode("n")), put(&running), put(machines(PowerCycleHosts)), put(asks),
				{ID: ObjectID{APIVersion: asked.APIVersion, Kind: asked.Kind, Namespace: asked.Namespace, Name: asked.Name}, Value: asked}},
			put(twin("other")),
			[]reason.Code{reason.Contested},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := ledgerWith(Rules{Namespaces: []string{"ns"}, RequestNamespaces: []string{"a"}}, c.world...)
			onMachine := func() *TargetReport {
				r := l.Report(ledgerEpoch)
				at := slices.IndexFunc(r.Checks, func(c CheckReport) bool { return c.Name == "machines" })
				return &r.Checks[at].Targets[0]
			}
			want := append([]reason.Code{reason.Overlap}, c.besides...)
			require.Equal(t, want, onMachine().Refusals)
			l.Apply(ledgerEpoch, c.doubt)
			require.Equal(t, Decide(l.Snapshot(), ledgerEpoch), l.Report(ledgerEpoch))
			x := onMachine()
			assert.Equal(t, want, x.Refusals)
			require.Len(t, x.overlaps, 1, "it says why")
			assert.Equal(t, "check p", x.overlaps[0].Source)
		})
	}
}

// TestDoubtKeepsTheClock: a check in doubt has handed its target over from the moment on at which it would say so
// without the doubt. The ledger evaluates it then. // I22
func TestDoubtKeepsTheClock(t *testing.T) {
	c := &Check{Kind: MachineHealthCheckKind, APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "c", Selector: labels.Everything(), Strategy: MarkOwners,
		MachineConditions: []UnhealthyCondition{{Type: "Sound", Status: "False", Timeout: time.Minute}}}
	m := &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "m", NodeName: "n", ProviderID: "p://1", OwnerRemediated: "False",
		Conditions: []Condition{{Type: "Sound", Status: "False", LastTransition: ledgerEpoch}}}
	n := silentNode("n")
	n.ProviderID = "p://2"
	l := ledgerWith(Rules{}, put(c), put(m), put(n))
	target := func(r Report) *TargetReport { return &r.Checks[0].Targets[0] }
	require.Equal(t, reason.NodeMismatch, target(l.Report(ledgerEpoch)).Reason)
	require.False(t, target(l.Report(ledgerEpoch)).isHandedOver())
	require.Equal(t, ledgerEpoch.Add(time.Minute+1), l.Next)
	require.True(t, target(Decide(l.Snapshot(), l.Next)).isHandedOver())
	assert.True(t, target(l.Report(l.Next)).isHandedOver())
}

// TestDisprovedMachineFreezesNobody: the Node shows that it is not the Machine's, so the doubt about that Machine
// is none about the Machine that the Node is of.
func TestDisprovedMachineFreezesNobody(t *testing.T) {
	own := Owner{Kind: "MachineSet", Name: "s", UID: "u"}
	wrong := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "a-wrong", NodeName: "n", ProviderID: "p://1", ControllerOwner: own}
	right := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "b-right", NodeName: "n", ProviderID: "p://2", ControllerOwner: own}
	n := silentNode("n")
	n.ProviderID = right.ProviderID
	one := nodePolicy()
	one.SelectsNodes, one.Strategy = false, DeleteMachines
	two := *one
	two.Name = "two"
	l := ledgerWith(Rules{Namespaces: []string{"ns"}}, put(one), put(&two), put(n), put(wrong), put(right))
	assert.Equal(t, []string{"n ns/b-right", "n ns/b-right"}, acts(t, l))
}

// TestDoubtReachesNoMinimum: a range opens when enough targets are known to be unhealthy. // I11
func TestDoubtReachesNoMinimum(t *testing.T) {
	policies := nodePolicy()
	policies.SelectsNodes = false
	machines := &Check{Kind: MachineHealthCheckKind, APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: "c", Selector: labels.Everything(),
		Strategy: MarkOwners, Conditions: policies.Conditions}
	for _, c := range []*Check{policies, machines} {
		c.UnhealthyRange = "[2-5]"
		machine := func(name, node string) *Machine {
			return &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "ns", Name: name, NodeName: node, ControllerOwner: Owner{Kind: "MachineSet", Name: "s", UID: "u"}}
		}
		healthy := func(name string) *Node {
			n := silentNode(name)
			n.Conditions = ConditionsOf([]Condition{{Type: "Ready", Status: "True"}})
			return n
		}
		l := ledgerWith(Rules{Namespaces: []string{"ns"}}, put(c), put(silentNode("sick")), put(healthy("n")), put(machine("m-0", "sick")), put(machine("m-1", "n")))
		require.Empty(t, acts(t, l), "one is not enough")
		l.Apply(ledgerEpoch, put(machine("m-2", "n")))
		assert.Empty(t, acts(t, l), "two Machines name the same Node, which is Ready")
		r := l.Report(ledgerEpoch).Checks[0]
		assert.Equal(t, 2, r.doubtful)
		assert.Contains(t, r.Message, "3 of 3 targets are not healthy")
		assert.Contains(t, r.Message, "; 2 of them in doubt")
		assert.Contains(t, r.LimitGate().Value, "; 2 of them in doubt")
		l.Apply(ledgerEpoch, Change{ID: put(machine("m-2", "n")).ID}, put(silentNode("n")))
		assert.Len(t, acts(t, l), 2, "now two are")
	}
}
