package admit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

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
			b := NewBook(BookOptions{Name: "c", Limits: NewLimits(l, remediate.Limits{})}, time.Now())
			b.complete = true
			m := &policy.Machine{APIVersion: policy.OpenShiftMachineAPI, Namespace: "ns", Name: "m-1", UID: "1", NodeName: "n-1"}
			b.ledger.Apply(b.started, policy.Change{ID: policy.ObjectID{APIVersion: m.APIVersion, Kind: "Machine", Namespace: "ns", Name: m.Name}, Value: m})
			for name, zone := range map[string]string{"n-8": "a", "n-9": "b"} {
				n := &policy.Node{Name: name, UID: name}
				if c.zones {
					n.Labels = map[string]string{"zone": zone}
				}
				b.ledger.Apply(b.started, policy.Change{ID: policy.ObjectID{APIVersion: "v1", Kind: "Node", Name: name}, Value: n})
			}
			for _, r := range c.records {
				b.put(r)
			}
			a, err := b.candidateForOrder(order.Order{Machine: "ns/m-1"})
			require.NoError(t, err)
			f := guard.Facts{NeedsHost: true}
			b.count(a, "", &f, time.Time{}, time.Now())
			gate := reason.Gate{Pass: true} // there is none without zones
			for _, g := range guard.StartGates(l, f, time.Now()) {
				if g.Name == "zoneInFlight" {
					gate = g
				}
			}
			assert.Equal(t, c.value, gate.Value)
			assert.Equal(t, c.refused, !gate.Pass)
			assert.Equal(t, a.draft.NodeLabels["zone"] == "a", f.Zone == "a", "the record of the run has it")
		})
	}
}

// Of two Waiting runs that are due at once, with one start left, one begins: what was admitted counts
// as a start before its record says so. // I11
func TestAdmittedRunTakesItsStart(t *testing.T) {
	l := manyLimits()
	l.MaxInFlight, l.StartsPerHour = 3, 3
	a := newAsking(l)
	due := waitingRuns{a.b.Book}
	for _, id := range []string{"r-1", "r-2"} {
		a.node(id, "Unknown")
		a.b.Book.put(remediate.Run{ID: id, Step: remediate.Waiting, Wait: &remediate.Wait{Due: true}, Strategy: remediate.PowerCycle, Attempt: 1, Started: a.now.Add(-time.Minute),
			Target: remediate.Target{Cluster: "c", Node: id}})
	}
	begin := func(id string) error {
		r, _ := a.b.Run(id)
		return due.reserve(due.candidate(r), 0, time.Time{}, a.now)
	}
	require.NoError(t, begin("r-1"))
	assert.Equal(t, reason.StartRate, refusedFor(t, begin("r-2")))

	r, _ := a.b.Run("r-1") // the order is on record, and not carried out yet
	r.Retry = &remediate.Order{Actor: remediate.SelfActor}
	a.b.Book.put(r)
	due.end("r-1")
	assert.Equal(t, reason.StartRate, refusedFor(t, begin("r-2")))

	r.Retry = nil // it was dropped, because the run was not due any more
	a.b.Book.put(r)
	require.NoError(t, begin("r-2"))
}
