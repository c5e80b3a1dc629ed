package policy

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/reason"
)

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
		l := NewLedger(Rules{})
		l.Apply(ledgerEpoch, put(nodePolicy()), put(n), put(o), put(m))
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
	l := NewLedger(Rules{})
	l.Apply(ledgerEpoch, put(nodePolicy()), put(checkIn("mapi", PowerCycleHosts)), put(n), put(o))
	assert.Equal(t, []string{"w-2 mapi/w-2"}, acts(t, l), "its host is still found by it")
	x := resultIn(t, l, "mapi")
	assert.Equal(t, Skipped, x.Verdict)
	assert.Equal(t, reason.Paused, x.Reason)
	assert.Equal(t, o.Suspended, x.Message)
	m, n, forged := prod()
	forged.Suspended = "x"
	l = NewLedger(Rules{})
	l.Apply(ledgerEpoch, put(nodePolicy()), put(n), put(m), put(forged))
	assert.Equal(t, []string{"w-2 prod/w-2"}, acts(t, l))
}

// A request that a mirror owns asks for nothing; one for its Node does.
func TestRequestOfAMirror(t *testing.T) {
	o, m, n := mirrored()
	o.Suspended = "the Cluster API is authoritative"
	l := NewLedger(Rules{RequestNamespaces: []string{"mapi"}})
	l.Apply(ledgerEpoch, put(n), put(o), put(m))
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
	l := NewLedger(Rules{Namespaces: []string{"prod"}})
	l.Apply(ledgerEpoch, put(checkIn("prod", PowerCycleHosts)), put(n), put(m))
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
	l.SetRuns(ledgerEpoch, []OpenRun{{ID: "r", Node: "w-2", Machine: "prod/w-2"}})
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
