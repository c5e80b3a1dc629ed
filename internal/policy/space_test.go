package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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

// apartWorld is a cluster whose Machines are in the namespace prod of a management API apart. Whoever may write in the
// namespace prod of the cluster itself is somebody else.
func apartWorld(managementNamespace string) (l *Ledger, m *Machine, n *Node) {
	n = silentNode("w-2")
	n.ClusterMachine, n.ProviderID = "prod/w-2", "metal3://prod/h-2/w-2"
	m = &Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "prod", Name: "w-2", UID: "m", NodeName: "w-2", ProviderID: n.ProviderID, Phase: "Running", Labels: labels.Set{"pool": "metal"}}
	l = ledgerWith(Rules{ManagementApart: true, ManagementNamespace: managementNamespace}, put(nodePolicy()), put(n), put(m), put(silentNode("plain")))
	return l, m, n
}

// tenantMachine is one in the namespace prod of the cluster.
func tenantMachine(change func(*Machine)) *Machine {
	m := &Machine{APIVersion: OpenShiftMachineAPI, Namespace: "prod", Name: "w-2", UID: "t", Phase: "Running", Labels: labels.Set{"pool": "metal"},
		Created: ledgerEpoch.Add(-time.Hour), LastUpdated: ledgerEpoch.Add(-time.Hour)}
	change(m)
	return m
}

// A namespace of the cluster with the name of one on the management API says nothing about the Machines there: neither
// with a copy of their providerID, nor with an object that cannot be read, nor with a run on one of their name. // I4, I8
func TestNamespacesOfTwoAPIsAreTwo(t *testing.T) {
	for _, managementNamespace := range []string{"", "prod"} {
		for name, attack := range map[string]func(l *Ledger){
			"a copy of the providerID": func(l *Ledger) {
				l.Apply(ledgerEpoch, put(checkIn("prod", CountOnly)), put(tenantMachine(func(m *Machine) { m.NodeName, m.ProviderID = "w-2", "metal3://prod/h-2/w-2" })))
			},
			"one of the name cannot be read": func(l *Ledger) {
				l.Apply(ledgerEpoch, Change{ID: put(tenantMachine(func(*Machine) {})).ID, Err: errors.New("spec.providerID is a number")})
			},
			"a run on one of the name": func(l *Ledger) {
				l.Apply(ledgerEpoch, put(tenantMachine(func(*Machine) {})))
				l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Machine: "prod/w-2", MachineAPI: OpenShiftMachineAPI}})
			},
		} {
			l, m, n := apartWorld(managementNamespace)
			before := acts(t, l)
			require.Equal(t, []string{"plain ", "w-2 prod/w-2"}, before)
			attack(l)
			assert.Equal(t, before, acts(t, l), "%s %q", name, managementNamespace)
			assert.Same(t, m, l.MachineOf("w-2"), name)
			assert.Zero(t, l.Doubt(m, n), name)
			l.Apply(ledgerEpoch, Change{ID: put(m).ID})
			assert.Zero(t, l.Doubt(nil, n), "%s: nor when its Machine is gone", name)
		}
	}
}

// A Machine there counts in no limit, and takes no role: the Nodes name those of the management API. // I11, I12
func TestMachinesOfTheOtherAPIDoNotCount(t *testing.T) {
	budget := &DisruptionBudget{Name: "b", SelectsMachines: true, Selector: labels.SelectorFromSet(labels.Set{"pool": "metal"}), MaxUnavailable: intstr.FromInt32(1)}
	for _, managementNamespace := range []string{"", "prod"} {
		l, _, n := apartWorld(managementNamespace)
		n.ControlPlane = true
		l.Apply(ledgerEpoch, put(n), put(budget))
		before, size := l.Report(ledgerEpoch).Budgets, l.tables.controlPlaneSize()
		for i := range 3 {
			l.Apply(ledgerEpoch, put(tenantMachine(func(m *Machine) { m.Name, m.ControlPlane = fmt.Sprint("t-", i), true })))
		}
		assert.Equal(t, before, l.Report(ledgerEpoch).Budgets)
		assert.Equal(t, size, l.tables.controlPlaneSize())
		assert.Equal(t, Decide(l.Snapshot(), ledgerEpoch), l.Report(ledgerEpoch))
	}
}

// A check there does not overlap with one of the management API, although two Machines without a Node have one name.
func TestChecksOfTheOtherAPIDoNotOverlap(t *testing.T) {
	l, _, _ := apartWorld("")
	theirs := checkIn("prod", MarkOwners)
	theirs.APIVersion, theirs.StartupTimeout = ClusterAPIV1Beta2, time.Minute
	lone := tenantMachine(func(m *Machine) {
		m.APIVersion, m.Name, m.ControllerOwner, m.InfrastructureReadySince = ClusterAPIV1Beta2, "lone", Owner{Kind: "MachineSet", Name: "s", UID: "s"}, ledgerEpoch.Add(-time.Hour)
	})
	l.Apply(ledgerEpoch, put(theirs), put(lone))
	before := acts(t, l)
	require.Contains(t, before, "prod/lone prod/lone")
	closed := checkIn("prod", DeleteMachines)
	closed.StartupTimeout, closed.MaxUnhealthy = time.Minute, new(intstr.FromInt32(0))
	l.Apply(ledgerEpoch, put(closed), put(tenantMachine(func(m *Machine) { m.Name = "lone" })))
	assert.Equal(t, before, acts(t, l))
}

// The Machine of a run counts after its deletion, whatever has its name on the other API. // I11
func TestMachineOfARunThatIsGoneCounts(t *testing.T) {
	l, m, _ := apartWorld("")
	budget := &DisruptionBudget{Name: "b", SelectsMachines: true, Selector: labels.SelectorFromSet(labels.Set{"pool": "metal"}), MaxUnavailable: intstr.FromInt32(1)}
	l.Apply(ledgerEpoch, put(budget), Change{ID: put(m).ID})
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "w-2", Machine: "prod/w-2", MachineAPI: m.APIVersion}})
	before := l.Report(ledgerEpoch).Budgets
	require.Equal(t, 1, before[0].Unavailable)
	l.Apply(ledgerEpoch, put(tenantMachine(func(*Machine) {})))
	assert.Equal(t, before, l.Report(ledgerEpoch).Budgets)
}

// On the management API a namespace with the name of one in the cluster, where a template is or that the administrator lists for requests, is
// not that one either. // I2, I22
func TestRequestsOfTheOtherAPIStandInNobodysWay(t *testing.T) {
	check := nodePolicy()
	check.Strategy, check.Template = CreateRequests, &worldTemplate
	for _, there := range []bool{false, true} {
		l := ledgerWith(Rules{ManagementApart: true, RequestNamespaces: []string{"admins"}}, put(check), put(silentNode("w-2")))
		before := resultsOf(t, l)
		for _, namespace := range []string{worldTemplate.Namespace, "admins"} {
			q := &Request{APIVersion: "remediation.example/v1", Kind: "Fix", Namespace: namespace, Name: "w-2", ControlPlane: true, OnManagementAPI: there}
			id := ObjectID{APIVersion: q.APIVersion, Kind: q.Kind, Namespace: q.Namespace, Name: q.Name, OnManagementAPI: there}
			l.Apply(ledgerEpoch, Change{ID: id, Value: q})
			assert.Equal(t, there, assert.ObjectsAreEqual(before, resultsOf(t, l)), "%t %s", there, namespace)
			assert.Equal(t, there, len(l.tables.controlPlaneInFlight()) == 0, "%t %s", there, namespace)
			assert.Equal(t, !there, assert.ObjectsAreEqual([]string{"a", "admins"}, l.tables.rules.RequestSpaces([]*Check{check}, there, nil, nil)), "%t: what a look reads", there)
			l.Apply(ledgerEpoch, Change{ID: id})
		}
	}
}

// Nor do the two share the seats of requests, or the limit of targets.
func TestTwoAPIsShareNoLimit(t *testing.T) { // I18
	var requests []Request
	for i := range maxRequestsIn {
		requests = append(requests, Request{Name: fmt.Sprint("q-", i), UID: fmt.Sprint(i), NodeName: "n-2", Created: requestedAt.Add(-time.Hour)})
	}
	l := askedLedgerWith(t, Rules{ManagementApart: true, RequestNamespaces: []string{"ns"}},
		append(requests, Request{Name: "m-1", Owners: owner("mu"), Created: requestedAt, OnManagementAPI: true})...)
	over := 0
	for _, q := range l.Requested(false, requestedAt) {
		if q.Target.Reason == reason.RequestLimit {
			over++
		}
	}
	assert.Zero(t, over)

	there := checkIn("prod", CountOnly)
	there.APIVersion = ClusterAPIV1Beta2
	for _, rules := range []Rules{{MaxTargets: 1}, {MaxTargets: 1, ManagementNamespace: "prod"}} {
		rules.ManagementApart = true
		l := ledgerWith(rules, put(there), put(checkIn("prod", CountOnly)), put(&Machine{APIVersion: ClusterAPIV1Beta2, Namespace: "prod", Name: "w-2"}))
		for i := range 2 {
			l.Apply(ledgerEpoch, put(tenantMachine(func(m *Machine) { m.Name = fmt.Sprint("t-", i) })))
		}
		states := map[string]State{}
		for _, c := range l.Report(ledgerEpoch).Checks {
			states[c.APIVersion] = c.State
		}
		assert.Equal(t, map[string]State{ClusterAPIV1Beta2: StateActive, OpenShiftMachineAPI: StateInvalid}, states)
		assert.Equal(t, Decide(l.Snapshot(), ledgerEpoch), l.Report(ledgerEpoch))
	}
	assert.Equal(t, maxTargets, (&Rules{ManagementApart: true, ManagementNamespace: "prod"}).targetLimit(space{true, "prod"}))
	assert.Equal(t, maxTargetsOfNamespace, (&Rules{ManagementApart: true, ManagementNamespace: "prod"}).targetLimit(space{false, "prod"}))
}

// Once no file has a check with a template there, requests of that namespace count no longer. // I2
func TestRequestsWhereATemplateOfAFileWas(t *testing.T) {
	check := nodePolicy()
	check.Strategy, check.Template, check.Source = CreateRequests, &worldTemplate, "policies.d/a.yaml:1"
	other := nodePolicy()
	other.Name = "other"
	l := ledgerWith(Rules{}, put(other), put(silentNode("w-2")))
	q := &Request{APIVersion: "remediation.example/v1", Kind: "Fix", Namespace: worldTemplate.Namespace, Name: "w-2", ControlPlane: true}
	l.Apply(ledgerEpoch, put(q))
	require.Empty(t, l.tables.controlPlaneInFlight())
	l.SetFiles(ledgerEpoch, []Check{*check}, nil)
	require.NotEmpty(t, l.tables.controlPlaneInFlight())
	l.SetFiles(ledgerEpoch, nil, nil)
	assert.Empty(t, l.tables.controlPlaneInFlight())
	assert.Equal(t, Decide(l.Snapshot(), ledgerEpoch), l.Report(ledgerEpoch))
}

// The law below gives an attacker a namespace of the cluster that has the name of one on the management API, where the
// Machines of the cluster are.

const sameName = "b"

var inTheOtherAPI = attacker{
	may: func(apiVersion, namespace string) bool {
		return namespace == sameName && group(apiVersion) == group(OpenShiftMachineAPI)
	},
	made: func(q *Request) bool { return q.Namespace == sameName && !q.OnManagementAPI },
}

// attacksFromTheOtherAPI draw what the attacker may write.
var attacksFromTheOtherAPI = map[string]func(t *rapid.T) Change{
	"Machine": func(t *rapid.T) Change {
		m := drawWorldMachine(t, ledgerEpoch)
		m.APIVersion, m.Namespace = OpenShiftMachineAPI, sameName
		return put(m)
	},
	"undecodable Machine": func(t *rapid.T) Change {
		return Change{ID: ObjectID{APIVersion: OpenShiftMachineAPI, Kind: "Machine", Namespace: sameName, Name: of(t, "name", worldMachines...)}, Err: errors.New("status.nodeRef: is wrong")}
	},
	"check": func(t *rapid.T) Change {
		c := drawWorldCheck(t, ledgerEpoch)
		c.APIVersion, c.Kind, c.SelectsNodes, c.Escalation, c.Namespace, c.Source = OpenShiftMachineAPI, MachineHealthCheckKind, false, nil, sameName, "cluster"
		return put(c)
	},
	"request": func(t *rapid.T) Change {
		q := drawWorldRequest(t, ledgerEpoch)
		q.Namespace = sameName
		return put(q)
	},
	"FencedRemediation": func(t *rapid.T) Change { return put(drawPowerRequest(t, sameName)) },
}

// onTwoAPIs is a world whose Machines, with their checks and BareMetalHosts, are on the management API.
func onTwoAPIs(world []Change) (list []Change) {
	for _, c := range world {
		if c.ID.kind() == "Machine" || c.ID.kind() == MachineHealthCheckKind {
			if c.ID.kind() == MachineHealthCheckKind && group(c.ID.APIVersion) == group(OpenShiftMachineAPI) {
				continue
			}
			c.ID.APIVersion = ClusterAPIV1Beta2
		}
		switch v := c.Value.(type) {
		case *Machine:
			v.APIVersion = ClusterAPIV1Beta2
		case *Check:
			if c.ID.kind() == MachineHealthCheckKind {
				v.APIVersion = ClusterAPIV1Beta2
			}
		case *Node:
			v.OpenShiftMachine = ""
			if strings.HasPrefix(v.ProviderID, openShiftScheme) {
				v.ProviderID = ""
			}
		case *Host:
			v.OnManagementAPI = true
		case *Request:
			v.OnManagementAPI = v.Namespace == sameName
			c.ID.OnManagementAPI = v.OnManagementAPI
		}
		list = append(list, c)
	}
	return list
}

// ofMedik8s: the checks of OpenShift put it out of force.
func ofMedik8s(c Change) bool { return c.ID.Kind == NodeHealthCheckKind }

// attackFromTheOtherAPI checks that nothing changes for those of the management API.
func attackFromTheOtherAPI(kinds ...string) func(*rapid.T) {
	return func(t *rapid.T) {
		rules, world := drawVictims(t)
		rules.ManagementApart, rules.ManagementNamespace = true, of(t, "management namespace", "", sameName)
		world = onTwoAPIs(world)
		var objects []Change
		used := map[string]bool{}
		for range rapid.IntRange(1, 4).Draw(t, "objects") {
			kind := of(t, "kind", kinds...)
			used[kind] = true
			objects = append(objects, attacksFromTheOtherAPI[kind](t))
		}
		before, after := decide(rules, inTheOtherAPI, nil, world), decide(rules, inTheOtherAPI, nil, world, objects)
		for _, law := range attackLaws {
			if accepted["check"][law] == "" || !used["check"] || !slices.ContainsFunc(world, ofMedik8s) {
				require.Equal(t, before[law], after[law], "%s changed by %v of the namespace of the same name", law, slices.Sorted(maps.Keys(used)))
			}
		}
	}
}

// TestLawsAttackerOfTheOtherAPI: nothing that is written in a namespace of one API changes what is decided about that of its name on
// the other one.
func TestLawsAttackerOfTheOtherAPI(t *testing.T) {
	kinds := slices.Sorted(maps.Keys(attacksFromTheOtherAPI))
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) { law.Check(t, attackFromTheOtherAPI(kind)) })
	}
	t.Run("all", func(t *testing.T) { law.Check(t, attackFromTheOtherAPI(kinds...)) })
}

// Whoever looks past the cache asks the same rule as the index: see the cases cross-request-*. Where no Node is known, a
// request that names the Machine from another namespace may be for the Node of that name.
func TestWhomARequestIsFor(t *testing.T) { // I22
	m := TargetNames{Namespace: "ns", Machine: "m-1", MachineUID: "mu1", Node: "n-1"}
	alone, nodeless := TargetNames{Node: "n-1"}, TargetNames{Namespace: "ns", Machine: "m-1", MachineUID: "mu1"}
	owned := []Owner{{Kind: "Machine", Name: "m-1", UID: "mu1"}}
	for name, c := range map[string]struct {
		of                    Request
		machine, node, noNode bool
	}{
		"owned, of any name":           {Request{Namespace: "ns", Name: "x", Owners: owned}, true, false, true},
		"owned, names another Node":    {Request{Namespace: "ns", Name: "x", Owners: owned, NodeName: "n-9"}, true, false, true},
		"of the Machine's name":        {Request{Namespace: "ns", Name: "m-1"}, true, false, true},
		"of the Machine that was":      {Request{Namespace: "ns", Name: "m-1", Owners: []Owner{{Kind: "Machine", UID: "old"}}}, true, false, true},
		"of that name elsewhere":       {Request{Namespace: "admins", Name: "m-1"}, false, false, true},
		"names the Node":               {Request{Namespace: "admins", Name: "x", NodeName: "n-1"}, true, true, false},
		"has its name, other owner":    {Request{Namespace: "ns", Name: "n-1", Owners: []Owner{{Kind: "Machine", UID: "other"}}}, true, true, false},
		"names another Node":           {Request{Namespace: "ns", Name: "m-1", NodeName: "n-9"}, false, false, false},
		"on the management API":        {Request{Namespace: "ns", Name: "m-1", NodeName: "n-9", OnManagementAPI: true}, true, false, true},
		"for a Node of another one":    {Request{Namespace: "ns", Name: "x", NodeName: "n-1", OnManagementAPI: true}, false, false, false},
		"of the Node's name, up there": {Request{Namespace: "ns", Name: "n-1", OnManagementAPI: true}, false, false, false},
	} {
		assert.Equal(t, c.machine, c.of.IsFor(m), name)
		assert.Equal(t, c.node, c.of.IsFor(alone), name)
		assert.Equal(t, c.noNode, c.of.IsFor(nodeless), name)
	}
}

// What a ledger has touched is what Decide finds, also for a request that is found by the UID of an owner.
func TestOwnedRequestIsFoundAsItComesAndGoes(t *testing.T) { // I22
	l := askedLedgerWith(t, Rules{})
	m := l.MachineOf("n-1")
	q := Request{APIVersion: "example.com/v1", Kind: "Reboot", Namespace: m.Namespace, Name: "x", UID: "q", Owners: []Owner{{Kind: "Machine", Name: m.Name, UID: m.UID}}}
	for _, there := range []bool{true, false} {
		c := put(&q)
		if !there {
			c.Value = nil
		}
		l.Apply(requestedAt, c)
		assert.Equal(t, there, len(l.Requests(TargetNames{m.Namespace, m.Name, m.UID, m.NodeName}, m, nil)) == 1)
		assert.Equal(t, Decide(l.Snapshot(), requestedAt), l.Report(requestedAt))
	}
}
