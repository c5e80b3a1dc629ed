package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/wire"
)

// ClusterStatus is the state of one cluster now.
type ClusterStatus struct {
	Name, Mode string
	// Owner: this instance owns the cluster. Otherwise OwnerName owns it, in Epoch; no
	// instance does if Epoch is 0.
	Owner     bool
	OwnerName string
	Epoch     uint64
	// Idle is why no instance of this installation acts in the cluster, "" if one does:
	// another installation acts there, or no instance owns it.
	Idle string
	// HeldBy is which other installation holds the Lease of the cluster, "" if none is known to.
	HeldBy string
	// Aside is why this instance leaves the cluster to the others, and to whom, "" if it does
	// not: its own host is to be fenced.
	Aside   string
	Armed   bool   // fenced acts here without orders from people: on what checks find, or on requests
	Paused  string // why the cluster is paused, "" if it is not,
	Resume  string // and the command that ends the pause
	View    admit.View
	ViewBad string // the problem of the view, "" for none,
	// ViewReason is its code, if it has one.
	ViewReason reason.Code
	Nodes      int
	Checks     []policy.CheckReport // with counters, without targets
	Runs       []remediate.Run      // open ones, by ID
	// Deleting and Overdue count the Machines whose deletion fenced asked for and that still
	// exist, or whose Nodes do: within guards.deletionTimeout, and for longer.
	Deleting, Overdue int
	// FilesRefused says why nothing begins: a file of policies.d or hosts.d has an error; "" if none has.
	FilesRefused string
	// Hint is what a person should change in the configuration, "" for nothing.
	Hint string
	// Refused are the targets that a check wants remediated, and the Waiting runs, that something
	// refuses now.
	Refused []admit.Refused
}

// Status is the state of every cluster, by name. It is cheap at any size.
func (e *Engine) Status() []ClusterStatus {
	var all []ClusterStatus
	clusters := e.clusters.All()
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		all = append(all, clusters[name].status())
	}
	return all
}

func (c *clusterParts) status() ClusterStatus {
	e, name := c.e, c.opt.Name
	o := e.opt.Owners.Owner(name)
	s := ClusterStatus{
		Name: name, Mode: c.opt.Mode, Armed: c.admit.MayBegin(), View: c.view.View(), Runs: c.model.Runs.Open(),
		Owner: c.lead.Leads(), OwnerName: o.Instance, Epoch: o.Epoch,
	}
	if s.Owner || s.Epoch == 0 || s.OwnerName == e.opt.Instance {
		s.Idle, s.HeldBy = c.lead.WhyNotAct(time.Now()), c.lead.HeldBy()
	}
	s.Paused, s.Resume = e.stop.PausedBy(name)
	s.ViewReason, s.ViewBad = c.view.Problem()
	s.Aside, s.FilesRefused = c.admit.OwnHost.Aside(), c.model.Objects.FilesRefused()
	s.Checks, s.Nodes = c.model.Objects.Counters()
	s.Hint = strings.Join(slices.DeleteFunc([]string{c.escalationHint(s.Checks), labelHint(c.model.Objects.Unlabelled())},
		func(hint string) bool { return hint == "" }), "; ")
	inProgress, overdue := c.model.Disappearing(time.Now())
	s.Deleting, s.Overdue, s.Refused = len(inProgress), len(overdue), c.admit.Refused()
	if !s.Owner && s.Epoch != 0 && s.OwnerName != e.opt.Instance { // a standby refuses nothing by being one
		s.Refused = slices.DeleteFunc(s.Refused, func(r admit.Refused) bool { return r.Gate.Reason == reason.NotOwner })
	}
	return s
}

// labelHint says that control-plane Nodes may have lost their labels: then others do not wait for them, and their members
// of etcd do not count. A kubelet may also have made up that it is one of them. // I12
func labelHint(nodes []string) string {
	if len(nodes) == 0 {
		return ""
	}
	const most = 5
	named, others := nodes[:min(len(nodes), most)], ""
	if more := len(nodes) - most; more > 0 {
		others = fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("Pods of etcd or of an API server, or the label of MicroK8s, say that these Nodes are of the control plane, and no label that a kubelet cannot set does: %s%s. "+
		"No other control-plane host waits for them, and members of etcd there do not count. A kubelet can make this up, so look at each first; one that is of the control plane gets its label back with "+
		"kubectl label node %s %s=", strings.Join(named, ", "), others, named[0], policy.ControlPlaneLabels[0])
}

// escalationHint says that a NodeHealthCheck never goes on to its next template: fenced deletes the Node, and the controller
// of the check does not count a Node that is gone.
func (c *clusterParts) escalationHint(checks []policy.CheckReport) string {
	if c.opt.Mode != guard.ModeRespond || c.opt.Isolation != remediate.IsolateDelete {
		return ""
	}
	for i := range checks {
		if checks[i].Kind != policy.NodeHealthCheckKind {
			continue
		}
		if k := c.model.Objects.Check(checks[i].ID()); k != nil && policy.GoesOnAfterFenced(k) {
			return "NodeHealthCheck " + k.Name + " does not go on to its next template once fenced has deleted the Node (isolation: deleteNode): " +
				"its controller does not count a Node that is gone. Set isolation: outOfServiceTaint in fenced.yaml"
		}
	}
	return ""
}

// Overview is what the checks find in a cluster now, and what they cover.
func (e *Engine) Overview(cluster string) (policy.Overview, error) {
	return inCluster(e, cluster, func(c *clusterParts) (policy.Overview, error) { return c.model.Objects.Overview() })
}

// Coverage is what every check and budget of one cluster selects and allows. Its cost grows with the
// size of the cluster, so call it only when a person asks.
func (e *Engine) Coverage(cluster string) ([]policy.Coverage, error) {
	return inCluster(e, cluster, func(c *clusterParts) ([]policy.Coverage, error) { return c.model.Objects.Coverage() })
}

// Explain lists every gate of a Node in the order in which the daemon evaluates them. It
// calls the functions that decide.
func (e *Engine) Explain(ctx context.Context, cluster, node string) (admit.Explanation, error) {
	return inCluster(e, cluster, func(c *clusterParts) (admit.Explanation, error) { return c.admit.Explain(ctx, wire.Order{Node: node}) })
}

// ExplainMachine is Explain for a Machine, which may have no Node. machine is its
// "namespace/name".
func (e *Engine) ExplainMachine(ctx context.Context, cluster, machine string) (admit.Explanation, error) {
	return inCluster(e, cluster, func(c *clusterParts) (admit.Explanation, error) {
		return c.admit.Explain(ctx, wire.Order{Machine: machine})
	})
}

// Plan is what fenced would do now in one cluster. It reads no BMC: results of a probe are
// included once the daemon has probed the target.
func (e *Engine) Plan(ctx context.Context, cluster string) (admit.Plan, error) {
	return inCluster(e, cluster, func(c *clusterParts) (admit.Plan, error) { return c.admit.Plan(ctx, false) })
}

// Names lists the Nodes of a cluster and its Machines ("namespace/name") whose names begin with a
// prefix, in no order.
func (e *Engine) Names(cluster, prefix string) (nodes, machines []string) {
	if c := e.clusters.Get(cluster); c != nil {
		nodes, machines = c.model.Objects.Names(prefix)
	}
	return nodes, machines
}

// Runs lists the runs of one cluster (or of all, with no name), newest first.
func (e *Engine) Runs(cluster string) []remediate.Run {
	var all []remediate.Run
	for name, c := range e.clusters.All() {
		if cluster != "" && cluster != name {
			continue
		}
		all = append(all, c.model.Runs.All()...)
	}
	slices.SortFunc(all, func(a, b remediate.Run) int { return strings.Compare(b.ID, a.ID) })
	return all
}

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
	return c.model.Runs.Get(id)
}

// OffReads are the reads on which the proof of a run of one cluster stands; none if this process did not carry it out.
func (l Lookup) OffReads(cluster, id string) []run.OffRead {
	if c := l.e.clusters.Get(cluster); c != nil {
		return c.admit.Runner.OffReads(id)
	}
	return nil
}

// Target returns the objects of a Node or, without one, of a Machine ("namespace/name") as the
// view has them now; false if there are none.
func (l Lookup) Target(cluster, node, machine string) (remediate.Target, bool) {
	c := l.e.clusters.Get(cluster)
	switch {
	case c == nil:
		return remediate.Target{}, false
	case node != "":
		return c.model.Objects.TargetOn(node)
	}
	return c.model.Objects.TargetOf(machine)
}

// Present returns the UID of the Node that has the name of a target's Node now, "" if there is
// none, and whether the target's Machine exists.
func (l Lookup) Present(cluster string, t remediate.Target) (nodeUID string, machine bool) {
	c := l.e.clusters.Get(cluster)
	if c == nil {
		return "", false
	}
	if n := c.model.Objects.Node(t.Node); n != nil {
		nodeUID = n.UID
	}
	return nodeUID, c.model.Objects.MachineOf(t) != nil
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
