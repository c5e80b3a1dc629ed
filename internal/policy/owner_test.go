package policy

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/fenced/fenced/internal/reason"
)

// prod is Machine prod/w-2 and its Node w-2, which is silent and names it. forged is a tenant's
// Machine that names the same Node, with a copy of the providerID.
func prod() (m *Machine, n *Node, forged *Machine) {
	n = silentNode("w-2")
	n.OpenShiftMachine, n.ProviderID = "prod/w-2", "baremetalhost:///prod/h-2/u"
	m = &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "prod", Name: "w-2", UID: "m", NodeName: "w-2", ProviderID: n.ProviderID, Phase: "Running"}
	forged = &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "tenant", Name: "x", UID: "x", NodeName: "w-2", ProviderID: n.ProviderID, Phase: "Running",
		ControllerOwner: Owner{Kind: "MachineSet", Name: "s", UID: "s"}}
	return m, n, forged
}

// checkIn is a MachineHealthCheck of everything in a namespace.
func checkIn(namespace string, do Strategy) *Check {
	return &Check{Kind: MachineHealthCheckKind, APIVersion: OpenShiftMachineAPI, Namespace: namespace, Name: "c", Selector: labels.Everything(), Strategy: do,
		Conditions: nodePolicy().Conditions}
}

// resultIn returns the target of the only Machine of a namespace under its check.
func resultIn(t *testing.T, l *Ledger, namespace string) TargetReport {
	t.Helper()
	require.Equal(t, Decide(l.Snapshot(), ledgerEpoch), l.Report(ledgerEpoch))
	for _, c := range l.Report(ledgerEpoch).Checks {
		if c.Namespace == namespace && len(c.Targets) == 1 {
			return c.Targets[0]
		}
	}
	t.Fatalf("no check of %s has one target", namespace)
	return TargetReport{}
}

// Whose word says that a Machine owns the Node that it names.
func TestMachineOwnsItsNode(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *Machine, n *Node)
		rules  Rules
		says   string // "" if it owns it
	}{
		"the annotation of OpenShift":        {func(_ *Machine, n *Node) { n.OpenShiftMachine = "ns/m" }, Rules{}, ""},
		"the annotations of the Cluster API": {func(m *Machine, n *Node) { m.APIVersion, n.ClusterMachine = ClusterAPIV1Beta1, "ns/m" }, Rules{}, ""},
		"those of another API":               {func(_ *Machine, n *Node) { n.ClusterMachine = "ns/m" }, Rules{}, "it lacks the annotation machine.openshift.io/machine: ns/m;"},
		"a providerID of its own namespace": {func(m *Machine, n *Node) {
			m.ProviderID, n.ProviderID = "baremetalhost:///ns/h", "baremetalhost:///ns/h/u"
		}, Rules{}, ""},
		"a copy of another's providerID": {func(m *Machine, n *Node) {
			m.ProviderID, n.ProviderID = "baremetalhost:///prod/h", "baremetalhost:///prod/h"
		}, Rules{}, "add namespace ns to clusters[].namespaces"},
		"a copy of a cloud's": {func(m *Machine, n *Node) { m.ProviderID, n.ProviderID = "aws:///a/i-1", "aws:///a/i-1" }, Rules{}, "the Node does not name it"},
		"nothing":             {func(*Machine, *Node) {}, Rules{}, "Machine ns/m names Node n, and the Node does not name it"},
		"another is named":    {func(_ *Machine, n *Node) { n.OpenShiftMachine = "prod/o" }, Rules{}, "(it names prod/o)"},
		"nothing of the Cluster API": {func(m *Machine, _ *Node) { m.APIVersion = ClusterAPIV1Beta2 }, Rules{},
			"it lacks the annotations cluster.x-k8s.io/cluster-namespace: ns and cluster.x-k8s.io/machine: m"},
		"the administrator":                        {func(*Machine, *Node) {}, Rules{Namespaces: []string{"a", "ns"}}, ""},
		"the administrator, of another namespace":  {func(*Machine, *Node) {}, Rules{Namespaces: []string{"a"}}, "does not name it"},
		"the administrator, of the management API": {func(m *Machine, _ *Node) { m.APIVersion = ClusterAPIV1Beta2 }, Rules{ManagementNamespace: "ns"}, ""},
		"the same, of OpenShift's":                 {func(*Machine, *Node) {}, Rules{ManagementNamespace: "ns"}, "does not name it"},
		"saved objects":                            {func(*Machine, *Node) {}, Rules{TrustNames: true}, ""},
	} {
		m, n := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "ns", Name: "m", NodeName: "n"}, silentNode("n")
		c.change(m, n)
		l := ledgerWith(c.rules, put(n), put(m))
		why := l.NotOwned(m, n).Why
		assert.Equal(t, c.says == "", why == "", "%s: %s", name, why)
		assert.Contains(t, why, c.says, name)
		assert.Equal(t, c.says == "", l.MachineOf("n") == m, name)
	}
}

// Only the BareMetalHost of a Machine, or an open run, shows whose a Node was that is gone.
func TestMachineOfANodeThatIsGone(t *testing.T) {
	m, n, forged := prod()
	l := ledgerWith(Rules{}, put(checkIn("prod", PowerCycleHosts)), put(checkIn("tenant", PowerCycleHosts)), put(n), put(m), put(forged))
	require.Equal(t, []string{"w-2 prod/w-2"}, acts(t, l))
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "w-2", Machine: "prod/w-2", MachineAPI: m.APIVersion}})
	l.Apply(ledgerEpoch, Change{ID: put(n).ID})
	assert.Empty(t, l.NotOwned(m, nil).Why, "the run of this Machine has deleted the Node")
	assert.NotEmpty(t, l.NotOwned(forged, nil).Why)
	assert.Same(t, m, l.MachineOf("w-2"))
	l.SetRuns(ledgerEpoch, nil)
	assert.Empty(t, acts(t, l))
	x := resultIn(t, l, "prod")
	assert.Equal(t, []reason.Code{reason.NodeNotOwned}, x.Refusals)
	assert.Contains(t, x.Message, "Machine prod/w-2 names Node w-2, which does not exist")
	host := &Host{Namespace: "prod", Name: "h-2", UID: "u", Online: true, ConsumerRef: "prod/w-2", ConsumerKind: machineKind, State: "provisioned"}
	l.Apply(ledgerEpoch, Change{ID: ObjectID{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Namespace: "prod", Name: "h-2"}, Value: host})
	assert.Equal(t, []string{"w-2 prod/w-2"}, acts(t, l), "the BareMetalHost names the Machine")
}

// A change of one BareMetalHost concerns the Machines that name it: whoever may write one has not all others evaluated again. // I18
func TestBareMetalHostConcernsItsMachines(t *testing.T) {
	l := ledgerWith(Rules{}, put(checkIn("tenant", PowerCycleHosts)))
	lone := func(name, provider, host string) {
		m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "tenant", Name: name, UID: name, NodeName: "gone-" + name, Phase: "Running", ProviderID: provider}
		if host != "" {
			m.Annotations = map[string]string{HostAnnotation: host}
		}
		l.Apply(ledgerEpoch, put(m))
	}
	lone("by-provider", "baremetalhost:///tenant/h/u", "")
	lone("by-annotation", "", "tenant/h")
	for i := range 100 {
		lone(fmt.Sprint("other-", i), "baremetalhost:///tenant/other/o", "")
		lone(fmt.Sprint("none-", i), "", "")
	}
	l.setHost(ObjectID{Kind: "BareMetalHost", Namespace: "tenant", Name: "h"}, &Host{Namespace: "tenant", Name: "h", UID: "u", ConsumerRef: "tenant/by-annotation", ConsumerKind: machineKind, State: "provisioned"})
	var touched []string
	for _, e := range l.dirty {
		touched = append(touched, e.machine.Name)
	}
	assert.ElementsMatch(t, []string{"by-provider", "by-annotation"}, touched)
	assert.Equal(t, Decide(l.Snapshot(), ledgerEpoch), l.Report(ledgerEpoch))
}

// A Machine whose Node is gone is deleted where Nodes of the cluster name Machines: that is done to the Machine alone.
func TestDeletionOfAMachineWhoseNodeIsGone(t *testing.T) {
	_, n, forged := prod()
	forged.NodeName = "gone"
	l := ledgerWith(Rules{}, put(checkIn("tenant", DeleteMachines)), put(n), put(forged))
	assert.Equal(t, []reason.Code{reason.NodeNotOwned}, resultIn(t, l, "tenant").Refusals, "a run would keep the name")
	other := silentNode("w-3")
	other.OpenShiftMachine = "tenant/other"
	l.Apply(ledgerEpoch, put(other))
	assert.Empty(t, resultIn(t, l, "tenant").Refusals)
}

// Whoever may write a Machine and a check in one namespace has no host of others power-cycled, and no Node deleted.
func TestForgedNodeRefActsOnNothing(t *testing.T) {
	m, n, forged := prod()
	for _, do := range []Strategy{PowerCycleHosts, DeleteMachines} {
		l := ledgerWith(Rules{}, put(checkIn("tenant", do)), put(n), put(m), put(forged))
		require.Empty(t, acts(t, l))
		x := resultIn(t, l, "tenant")
		assert.Equal(t, []string{"tenant/x", "w-2", string(Unhealthy)}, []string{x.Machine, x.Node, string(x.Verdict)}, "which target a check has is up to its API family")
		assert.Equal(t, []reason.Code{reason.NodeNotOwned}, x.Refusals)
		assert.Contains(t, x.Message, "Machine tenant/x names Node w-2, and the Node does not name it: it lacks the annotation machine.openshift.io/machine: tenant/x (it names prod/w-2)")
	}
}

// Nor do they keep the hosts of others from being fenced: not with one Machine, not with many, not with one that cannot be read.
func TestForgedMachineRaisesNoDoubt(t *testing.T) {
	m, n, forged := prod()
	plain := silentNode("plain") // a Node without a Machine
	nodes, machines := nodePolicy(), checkIn("prod", PowerCycleHosts)
	for name, attack := range map[string][]Change{
		"one that names the Node":     {put(forged)},
		"one with another providerID": {put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "tenant", Name: "y", NodeName: "w-2", ProviderID: "baremetalhost:///tenant/h/1"})},
		"one of the other API":        {put(&Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "tenant", Name: "x", NodeName: "w-2", ProviderID: m.ProviderID})},
		"two that name a Node without a Machine": {put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "tenant", Name: "a", NodeName: "plain", Paused: true}),
			put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "tenant", Name: "b", NodeName: "plain"})},
		"one that cannot be read": {{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: "Machine", Namespace: "tenant", Name: "bad"}, Err: errors.New("spec.providerID is a number")}},
		"a check whose limit is exceeded": {put(forged), put(func() *Check {
			c := checkIn("tenant", PowerCycleHosts)
			c.MaxUnhealthy = new(intstr.FromInt32(0))
			return c
		}())},
		"a check that is gentler": {put(forged), put(checkIn("tenant", PowerCycleHosts))},
	} {
		l := ledgerWith(Rules{}, put(nodes), put(machines), put(n), put(plain), put(m))
		before := acts(t, l)
		require.Equal(t, []string{"plain ", "w-2 prod/w-2", "w-2 prod/w-2"}, before)
		l.Apply(ledgerEpoch, attack...)
		assert.Equal(t, before, acts(t, l), name)
		assert.Zero(t, l.Doubt(m, n), name)
		assert.Zero(t, l.Doubt(nil, plain), name)
		assert.Same(t, m, l.MachineOf("w-2"), name)
		assert.Nil(t, l.MachineOf("plain"), name)
	}
}

// One that cannot be read is the Machine of a Node that names it, and of no other. The message names it.
func TestUnreadMachineOfTheNodeThatNamesIt(t *testing.T) {
	m, n, _ := prod()
	l := ledgerWith(Rules{}, put(nodePolicy()), put(n), put(silentNode("plain")), put(m))
	require.Len(t, acts(t, l), 2)
	l.Apply(ledgerEpoch, Change{ID: put(m).ID, Err: errors.New("spec.providerID is a number")})
	assert.Equal(t, []string{"plain "}, acts(t, l))
	assert.Equal(t, Doubt{reason.Undecodable, "Machine prod/w-2 could not be decoded, and it may be this Node's"}, l.Doubt(nil, n))
	l.Apply(ledgerEpoch, Change{ID: put(m).ID})
	assert.Equal(t, []string{"plain ", "w-2 "}, acts(t, l))
}

// Machines of anybody, with the role of the control plane, take neither its turn nor its quorum. // I12
func TestForgedControlPlane(t *testing.T) {
	var cluster []Change
	for i := range 3 {
		name := fmt.Sprint("cp-", i)
		n := &Node{Name: name, UID: name, ControlPlane: true, OpenShiftMachine: "prod/" + name,
			Conditions: ConditionsOf([]Condition{{Type: "Ready", Status: "True", LastTransition: ledgerEpoch.Add(-time.Hour)}})}
		if i == 2 {
			n.Conditions = silentNode(name).Conditions
		}
		p := &Pod{Namespace: "openshift-etcd", Name: name, Node: name, Member: true, Ready: i != 2}
		cluster = append(cluster, put(n), put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "prod", Name: name, NodeName: name, Phase: "Running", ControlPlane: true}),
			put(p))
	}
	cluster = append(cluster, put(checkIn("prod", PowerCycleHosts)), put(checkIn("tenant", MarkOwners)))
	role := func(name string, change func(m *Machine)) Change {
		m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "tenant", Name: name, UID: name, ControlPlane: true, Phase: "Failed",
			ControllerOwner: Owner{Kind: "KubeadmControlPlane", Name: "k", UID: "k"}}
		change(m)
		return put(m)
	}
	for name, attack := range map[string][]Change{
		"remediation is requested":       {role("a", func(m *Machine) { m.ExternalRemediationRequested = true })},
		"deleted, with a finalizer":      {role("a", func(m *Machine) { m.Deleting = true })},
		"on a Node of the control plane": {role("a", func(m *Machine) { m.Deleting, m.NodeName = true, "cp-1" })},
		"on a Node that is gone":         {role("a", func(m *Machine) { m.Deleting, m.NodeName = true, "cp-9" })},
		"failed, first in line":          {role("a", func(*Machine) {})},
		"many":                           {role("a", func(*Machine) {}), role("b", func(*Machine) {}), role("c", func(*Machine) {}), role("d", func(*Machine) {}), role("e", func(*Machine) {})},
	} {
		l := ledgerWith(Rules{}, append(cluster, attack...)...)
		assert.Equal(t, []string{"cp-2 prod/cp-2"}, acts(t, l), name)
		assert.Equal(t, 3, l.tables.controlPlaneSize(), name)
	}
}

// Machines of anybody use up no budget: neither of Machines, nor of all Nodes. // I11
func TestForgedMachinesUseUpNoBudget(t *testing.T) {
	m, n, _ := prod()
	for name, b := range map[string]*DisruptionBudget{
		"of Machines": {Name: "b", SelectsMachines: true, Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(1)},
		"of Nodes":    {Name: "b", Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(1)},
	} {
		l := ledgerWith(Rules{}, put(b), put(checkIn("prod", PowerCycleHosts)), put(n), put(m))
		require.Equal(t, []string{"w-2 prod/w-2"}, acts(t, l), name)
		for i, node := range []string{"", "gone", "w-2"} {
			l.Apply(ledgerEpoch, put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "tenant", Name: fmt.Sprint(i), NodeName: node}))
		}
		l.Apply(ledgerEpoch, Change{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: "Machine", Namespace: "tenant", Name: "bad"}, Err: errors.New("x")})
		assert.Equal(t, []string{"w-2 prod/w-2"}, acts(t, l), name)
		l.Apply(ledgerEpoch, put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "prod", Name: "new"}))
		assert.Empty(t, acts(t, l), "%s: one where Nodes name their Machines counts", name)
	}
}

// What counts in no limit is not acted on: otherwise any number would be at once. // I11
func TestNothingUncountedIsActedOn(t *testing.T) {
	lone := func(i int) *Machine {
		return &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "new", Name: fmt.Sprint("m-", i), UID: fmt.Sprint(i), Phase: "Running", Created: ledgerEpoch.Add(-time.Hour)}
	}
	rule := func() *Check {
		return &Check{APIVersion: FencedAPI, Kind: FencePolicyKind, Name: "p", Source: "p.yaml:1", Strategy: PowerCycleHosts, Selector: labels.Everything(),
			StartupTimeout: time.Minute, MaxUnhealthy: new(intstr.FromInt32(1)), Conditions: nodePolicy().Conditions}
	}
	for name, world := range map[string][]Change{
		"Machines that never had a Node": {put(lone(0)), put(lone(1)), put(lone(2))},
		"Machines whose Nodes are gone": func() (list []Change) {
			for i := range 3 {
				m, h := lone(i), fmt.Sprint("h-", i)
				m.NodeName, m.ProviderID = fmt.Sprint("gone-", i), "baremetalhost:///new/"+h
				list = append(list, put(m), Change{ID: ObjectID{APIVersion: "metal3.io/v1alpha1", Kind: "BareMetalHost", Namespace: "new", Name: h},
					Value: &Host{Namespace: "new", Name: h, Online: true, ConsumerRef: m.Key(), ConsumerKind: machineKind, State: "provisioned"}})
			}
			return list
		}(),
	} {
		l := ledgerWith(Rules{}, append(world, put(rule()))...)
		require.Empty(t, acts(t, l), name)
		x := l.Report(ledgerEpoch).Checks[0].Targets[0]
		assert.Equal(t, []reason.Code{reason.NodeNotOwned}, x.Refusals, name)
		assert.Contains(t, x.Message, "add the namespace to clusters[].namespaces", name)
		l = ledgerWith(Rules{Namespaces: []string{"new"}}, append(world, put(rule()))...)
		require.Empty(t, acts(t, l), name)
		assert.Equal(t, []reason.Code{reason.ShortCircuit}, l.Report(ledgerEpoch).Checks[0].Targets[0].Refusals, "%s: there they count", name)
	}
}

// A run that deletes the only Node that names a Machine of the namespace makes no room for others. // I11
func TestRunKeepsItsNamespaceCounted(t *testing.T) {
	m, n, _ := prod()
	never := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "prod", Name: "never", UID: "n", Phase: "Running", Created: ledgerEpoch.Add(-time.Hour)}
	c := &Check{APIVersion: FencedAPI, Kind: FencePolicyKind, Name: "p", Source: "p.yaml:1", Strategy: PowerCycleHosts, Selector: labels.Everything(),
		StartupTimeout: time.Minute, MaxUnhealthy: new(intstr.FromInt32(1)), Conditions: nodePolicy().Conditions}
	b := &DisruptionBudget{Name: "b", SelectsMachines: true, Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(1)}
	l := ledgerWith(Rules{}, put(c), put(n), put(m), put(never), put(b))
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "w-2", Machine: "prod/w-2", MachineAPI: m.APIVersion}})
	before := l.Report(ledgerEpoch)
	l.Apply(ledgerEpoch, Change{ID: put(n).ID})
	after := l.Report(ledgerEpoch)
	assert.Equal(t, Decide(l.Snapshot(), ledgerEpoch), after)
	assert.Equal(t, []int{2, 0}, []int{after.Checks[0].Expected, after.Checks[0].Healthy})
	assert.Equal(t, before.Budgets, after.Budgets)
	l.SetRuns(ledgerEpoch, nil)
	assert.Equal(t, Decide(l.Snapshot(), ledgerEpoch), l.Report(ledgerEpoch))
}

// A Node that a run has deleted registers again before a controller annotates it: the run still has its Machine. Without the
// run, nothing says so until the Node names the Machine.
func TestNodeOfARunRegistersWithoutItsAnnotation(t *testing.T) {
	m, n, _ := prod()
	bare := silentNode("w-2")
	bare.UID = "another"
	l := ledgerWith(Rules{}, put(checkIn("prod", PowerCycleHosts)), put(n), put(m))
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "w-2", Machine: "prod/w-2", MachineAPI: m.APIVersion}})
	l.Apply(ledgerEpoch, Change{ID: put(n).ID})
	l.Apply(ledgerEpoch, put(bare))
	assert.Empty(t, l.NotOwned(m, bare).Why)
	assert.Same(t, m, l.MachineOf("w-2"))
	assert.Equal(t, reason.UnderRemediation, resultIn(t, l, "prod").Reason)
	l.SetRuns(ledgerEpoch, nil)
	assert.Equal(t, []reason.Code{reason.NodeNotOwned}, resultIn(t, l, "prod").Refusals)
	l.Apply(ledgerEpoch, put(n))
	assert.Equal(t, []string{"w-2 prod/w-2"}, acts(t, l))
}

// A Node that names another Machine is not that of a run which began while the Node did not exist.
func TestRunOwnsNoNodeThatNamesAnother(t *testing.T) {
	m, n, forged := prod()
	l := NewLedger(Rules{})
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "w-2", Machine: "tenant/x", MachineAPI: forged.APIVersion}})
	l.Apply(ledgerEpoch, put(n), put(m), put(forged))
	assert.NotEmpty(t, l.NotOwned(forged, n).Why)
	assert.Same(t, m, l.MachineOf("w-2"))
	assert.Zero(t, l.Doubt(m, n))
	n.OpenShiftMachine, m.APIVersion, forged.Namespace, forged.Name = "", ClusterAPIV1Beta2, "prod", "w-2" // of its name, on the other API
	n.ClusterMachine = "prod/w-2"
	for _, of := range []*Machine{m, forged} {
		l = NewLedger(Rules{})
		l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "w-2", Machine: "prod/w-2", MachineAPI: of.APIVersion}})
		n.ProviderID = ""
		l.Apply(ledgerEpoch, put(n), put(m), put(forged))
		assert.Equal(t, of == m, l.NotOwned(forged, n).Why != "")
		assert.Empty(t, l.NotOwned(m, n).Why)
	}
}

// Nor is what a budget would count if it were of this cluster. // I11
func TestNothingUncountedPassesABudget(t *testing.T) {
	for name, b := range map[string]*DisruptionBudget{
		"of Machines": {Name: "b", SelectsMachines: true, Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(1)},
		"of Nodes":    {Name: "b", Selector: labels.Everything(), MaxUnavailable: intstr.FromInt32(1)},
	} {
		c := checkIn("new", PowerCycleHosts)
		c.StartupTimeout = time.Minute
		l := ledgerWith(Rules{}, put(c), put(b))
		for i := range 3 {
			l.Apply(ledgerEpoch, put(&Machine{APIVersion: OpenShiftMachineAPI, Namespace: "new", Name: fmt.Sprint("m-", i), UID: "u", Phase: "Running",
				Created: ledgerEpoch.Add(-time.Hour), LastUpdated: ledgerEpoch.Add(-time.Hour)}))
		}
		require.Empty(t, acts(t, l), name)
		x := l.Report(ledgerEpoch).Checks[0].Targets[0]
		assert.Equal(t, []reason.Code{reason.Budget}, x.Refusals, name)
		assert.Contains(t, x.budgets[0].Value, "add the namespace to clusters[].namespaces", name)
	}
}

// mirrored is the Machine of Node w-2 in both APIs of an OpenShift cluster, whose providerIDs differ.
func mirrored() (openShift, clusterAPI *Machine, n *Node) {
	n = silentNode("w-2")
	n.OpenShiftMachine, n.ClusterMachine = "mapi/w-2", "capi/w-2"
	openShift = &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "mapi", Name: "w-2", UID: "m", NodeName: "w-2", ProviderID: "baremetalhost:///mapi/h/u"}
	clusterAPI = &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "capi", Name: "w-2", UID: "c", NodeName: "w-2", ProviderID: "metal3://capi/h/w-2"}
	return openShift, clusterAPI, n
}

// openshift/enhancements#1465: one Machine in two APIs. The controllers of one of them leave it alone.
func TestMirrorClaimsNothing(t *testing.T) { // I4
	for name, c := range map[string]struct {
		change func(openShift, clusterAPI *Machine)
		owner  string // the API group; "" if nobody knows
	}{
		"no word of an authority": {func(_, _ *Machine) {}, ""},
		"the Cluster API":         {func(o, _ *Machine) { o.Suspended = "x" }, group(ClusterAPIV1Beta2)},
		"OpenShift's":             {func(o, c *Machine) { o.Authoritative, c.Paused = true, true }, group(OpenShiftMachineAPI)},
		"OpenShift's, by the condition": {func(o, c *Machine) {
			o.Authoritative, c.Conditions = true, []Condition{{Type: "Paused", Status: "True"}}
		},
			group(OpenShiftMachineAPI)},
		"neither, on the way":                      {func(o, c *Machine) { o.Suspended, c.Paused = "x", true }, ""},
		"a person paused the Cluster API's":        {func(_, c *Machine) { c.Paused = true }, ""},
		"both say so":                              {func(o, _ *Machine) { o.Authoritative = true }, ""},
		"the Cluster API's was paused, and is not": {func(o, c *Machine) { o.Suspended, c.Conditions = "x", []Condition{{Type: "Paused", Status: "False"}} }, group(ClusterAPIV1Beta2)},
	} {
		o, m, n := mirrored()
		c.change(o, m)
		l := ledgerWith(Rules{}, put(nodePolicy()), put(n), put(o), put(m))
		found := l.MachineOf("w-2")
		doubt := l.Doubt(found, n)
		if c.owner == "" {
			assert.Equal(t, reason.NodeMismatch, doubt.Reason, name)
			assert.Empty(t, acts(t, l), name)
			continue
		}
		assert.Equal(t, c.owner, found.Group(), name)
		assert.Empty(t, doubt, name)
	}
}

// Whoever may write the status of a Machine takes away what the Machine asks for, and neither the
// check of an administrator nor the Machine of others.
func TestMirrorProtectsNothing(t *testing.T) {
	o, _, n := mirrored()
	o.Suspended = "the Cluster API is authoritative"
	l := ledgerWith(Rules{}, put(nodePolicy()), put(checkIn("mapi", PowerCycleHosts)), put(n), put(o))
	assert.Equal(t, []string{"w-2 mapi/w-2"}, acts(t, l), "its host is still found by it")
	x := resultIn(t, l, "mapi")
	assert.Equal(t, Skipped, x.Verdict)
	assert.Equal(t, reason.Paused, x.Reason)
	assert.Equal(t, o.Suspended, x.Message)
	m, n, forged := prod()
	forged.Suspended = "x"
	l = ledgerWith(Rules{}, put(nodePolicy()), put(n), put(m), put(forged))
	assert.Equal(t, []string{"w-2 prod/w-2"}, acts(t, l))
}

// A request that a mirror owns asks for nothing; one for its Node does.
func TestRequestOfAMirror(t *testing.T) {
	o, m, n := mirrored()
	o.Suspended = "the Cluster API is authoritative"
	l := ledgerWith(Rules{RequestNamespaces: []string{"mapi"}}, put(n), put(o), put(m))
	own := &Request{APIVersion: FencedAPI, Kind: "FencedRemediation", Namespace: "mapi", Name: "w-2", UID: "q", Power: &PowerRequest{},
		Owners: []Owner{{Kind: "Machine", Name: "w-2", UID: "m"}}}
	x := l.RequestTarget(own, ledgerEpoch)
	assert.Contains(t, x.Refusals, reason.Paused)
	assert.Equal(t, o.Suspended, x.Message)
	byNode := *own
	byNode.Owners, byNode.NodeName, byNode.Name = nil, "w-2", "x"
	x = l.RequestTarget(&byNode, ledgerEpoch)
	assert.Empty(t, x.Refusals, x.Message)
	assert.Equal(t, "capi/w-2", x.Machine)
}

// A Node that registered anew has another UID than the nodeRef of its Machine, which the Cluster API's
// v1beta1 never writes again.
func TestNodeRefOfAnotherNode(t *testing.T) { // I2
	m, n, _ := prod()
	m.NodeUID, n.OpenShiftMachine, n.ProviderID, m.ProviderID = "old", "", "", ""
	l := ledgerWith(Rules{Namespaces: []string{"prod"}}, put(checkIn("prod", PowerCycleHosts)), put(n), put(m))
	assert.Nil(t, l.MachineOf("w-2"))
	x := resultIn(t, l, "prod")
	assert.Equal(t, []reason.Code{reason.NodeNotOwned}, x.Refusals)
	assert.Contains(t, x.Message, "Machine prod/w-2 names Node w-2 with the UID old, and the Node of this name has w-2")
	require.Empty(t, acts(t, l))

	named := *n
	named.OpenShiftMachine = "prod/w-2"
	l.Apply(ledgerEpoch, put(&named))
	assert.Equal(t, []string{"w-2 prod/w-2"}, acts(t, l), "the Node names the Machine")

	l.Apply(ledgerEpoch, put(n))
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "w-2", Machine: "prod/w-2", MachineAPI: m.APIVersion}})
	assert.Same(t, m, l.MachineOf("w-2"), "the run of this Machine had the Node register anew")

	next := *m
	next.Name, next.UID, next.NodeUID = "w-2b", "m2", n.UID
	l.SetRuns(ledgerEpoch, nil)
	l.Apply(ledgerEpoch, put(&next))
	assert.Same(t, &next, l.MachineOf("w-2"))
	assert.Empty(t, l.Doubt(&next, n), "the older one is of another Node")

	gone := *m
	gone.NodeUID = "w-2"
	assert.Empty(t, l.NotOwned(&gone, n).Why)
	saved := *n
	saved.UID = ""
	assert.Empty(t, l.NotOwned(m, &saved).Why, "nothing to compare with")
}
