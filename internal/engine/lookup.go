package engine

import (
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// Lookup finds single records and objects of an engine, for package report and for answers to
// people. It reads what is in memory.
type Lookup struct{ e *Engine }

// NewLookup returns the Lookup of an engine.
func NewLookup(e *Engine) Lookup { return Lookup{e} }

// Status is the state of one cluster; false if there is none of that name.
func (l Lookup) Status(cluster string) (ClusterStatus, bool) {
	c := l.e.clusters.Get(cluster)
	if c == nil {
		return ClusterStatus{}, false
	}
	return c.status(), true
}

// Run returns a run of one cluster, open or ended; false if there is none.
func (l Lookup) Run(cluster, id string) (remediate.Run, bool) {
	c := l.e.clusters.Get(cluster)
	if c == nil {
		return remediate.Run{}, false
	}
	return c.model.Run(id)
}

// Target returns the objects of a Node or, without one, of a Machine ("namespace/name") as the
// view has them now; false if there are none.
func (l Lookup) Target(cluster, node, machine string) (remediate.Target, bool) {
	c := l.e.clusters.Get(cluster)
	switch {
	case c == nil:
		return remediate.Target{}, false
	case node != "":
		return c.model.Objects().TargetOn(node)
	}
	return c.model.Objects().TargetOf(machine)
}

// Present returns the UID of the Node that has the name of a target's Node now, "" if there is
// none, and whether the target's Machine exists.
func (l Lookup) Present(cluster string, t remediate.Target) (nodeUID string, machine bool) {
	c := l.e.clusters.Get(cluster)
	if c == nil {
		return "", false
	}
	if n := c.model.Objects().Node(t.Node); n != nil {
		nodeUID = n.UID
	}
	return nodeUID, c.model.Objects().MachineOf(t) != nil
}

// maxListed is how many open requests of a cluster Requests lists.
const maxListed = 100

// Requests lists the oldest remediation requests of a cluster for which something is left to do, and
// says how many more there are. It evaluates their gates, so call it only when a person asks.
func (l Lookup) Requests(cluster string, now time.Time) (open []admit.RequestState, more int) {
	c := l.e.clusters.Get(cluster)
	if c == nil || c.opt.Requests == nil {
		return nil, 0
	}
	for _, s := range c.admit.Requested.States(now) {
		phase := s.Status.Phase
		switch {
		case !s.HasFinalizer && (phase == request.Succeeded || phase == request.Failed):
		case len(open) == maxListed:
			more++
		default:
			open = append(open, s)
		}
	}
	return open, more
}
