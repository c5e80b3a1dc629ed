package engine

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
)

// clusterParts joins the parts of one cluster. Each part has its own lock.
type clusterParts struct {
	e             *Engine
	opt           ClusterOptions
	model         *cluster.Model
	view          *admit.Freshness
	lead          *lead.Lead
	hosts         *hosts.Cluster
	admit         *admit.Cluster
	checksChanged chan struct{} // signals that the status of checks may have changed
	// requestsChanged signals that the status of remediation requests may have changed.
	requestsChanged chan struct{}
	// runsToTell are the runs whose requests are told before their hosts are switched off.
	runsToTell chan runToTell
	// toResume are the runs that were open in the store when the leadership began. Only its own goroutine uses it.
	toResume []remediate.Run
}

// newCluster makes the parts. added: a reload adds the cluster.
func newCluster(e *Engine, o ClusterOptions, added bool) *clusterParts {
	c := &clusterParts{e: e, opt: o, checksChanged: make(chan struct{}, 1), requestsChanged: make(chan struct{}, 1), runsToTell: make(chan runToTell)}
	c.view = admit.NewFreshness(admit.FreshnessOptions{
		Watch: o.Watch, Limits: e.limits, Awake: e.stayAwake,
	})
	c.model = cluster.New(cluster.Options{
		Name: o.Name, Limits: e.limits, Rules: o.Rules, FileChecks: o.FileChecks, FileBudgets: o.FileBudgets, FilesRefused: o.FilesRefused, AnnotatedMachines: o.Mode == guard.ModeRespond,
		Draft: cluster.Drafter{
			Isolation: o.Isolation, ControlPlaneIsolation: o.ControlPlaneIsolation, Reprovision: o.Reprovision, Limits: e.limits,
		},
	}, time.Now())
	c.lead = lead.New(lead.Options{
		Name: o.Name, Instance: e.opt.Instance, StoreID: e.opt.StoreID, Cluster: leadCluster{c.model.Runs, c}, Owners: e.opt.Owners, Store: e.opt.Store,
		Slots: e.slots, Announcer: o.Kube, Awake: e.stayAwake, Emit: e.opt.Events.Emit,
	})
	c.hosts = e.hosts.NewCluster(hosts.ClusterOptions{Name: o.Name, IdentityMode: o.IdentityMode, View: hostsView{c.model, c.model.Objects, c}, Lead: c.lead, Secrets: o.Kube})
	c.admit = admit.New(admit.Options{
		Name: o.Name, Mode: o.Mode, Limits: e.limits, Files: o.FileChecks, Budgets: o.FileBudgets, RequestScope: o.RequestScope, Added: added, Model: c.model, View: c.view, Kube: o.Kube, Requests: o.Requests, Hosts: c.hosts,
		StoreID: e.opt.StoreID, Lead: c.lead, Slots: e.slots, Stop: e.stop, LockOut: e.LockOut, Open: e.opt.Open, Timing: e.opt.Power, LastChecks: e.opt.LastChecks,
		Record: e.opt.Record, AuditTrouble: e.opt.AuditTrouble, Pods: o.Pods, Emit: e.opt.Events.Emit, Beat: func() { e.pulse.beat(o.Name) },
		Saved: func() { live.Signal(c.requestsChanged) }, TellRequests: c.reportRequests,
		Decided: func() { live.Signal(c.checksChanged); live.Signal(c.requestsChanged) },
	})
	return c
}

// runToTell is a run that is about to switch its host off. done is closed when its requests were told.
type runToTell struct {
	run  string
	done chan struct{}
}

// reportTimeout is how long a run waits at most until its requests are told that they are processed. A host is not left
// as it is because a status cannot be written: nobody begins for a status that is missing.
const reportTimeout = 3 * time.Second

// reportRequests has the writer tell the requests of a run, and waits for that. // I22
func (c *clusterParts) reportRequests(ctx context.Context, run string) {
	if c.opt.Requests == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	r := runToTell{run: run, done: make(chan struct{})}
	select {
	case c.runsToTell <- r:
	case <-ctx.Done():
		return
	}
	select {
	case <-r.done:
	case <-ctx.Done():
	}
}

// attach adds the cluster to the engine. It runs from now on or, before Engine.Run, with that.
func (c *clusterParts) attach(ctx context.Context, runs []remediate.Run) {
	name := c.opt.Name
	c.model.Runs.Update(runs)
	c.admit.Escalation = c.e.opt.Escalation.Add(c.admit, func(ctx context.Context, id policy.CheckID) (remediate.Answer, error) {
		return c.opt.Checks.ControllerAlive(ctx, id)
	})
	c.e.stop.Attach(name, stopCluster{c.view, c}) // before the first decision // I23
	c.e.hosts.Attach(ctx, c.hosts)
	c.e.clusters.Put(name, c)
	c.e.pulse.add(name)
	c.e.tasks.Begin(name, c.run)
	c.e.opt.Owners.Add(name)
}

// detach removes the cluster, in which no run is open, as the end of the daemon does: the leadership
// ends first, and with it all that acts on the cluster. // I19
func (c *clusterParts) detach() {
	name := c.opt.Name
	c.e.opt.Owners.Remove(name)
	c.e.pulse.remove(name)
	c.e.tasks.End(name)
	c.e.clusters.Delete(name)
	c.e.opt.Escalation.Remove(name)
	c.e.hosts.Detach(name)
	c.e.stop.Detach(name)
	c.emit(event.Event{Type: event.ModeChanged, Message: "the cluster is not configured any more", Inputs: event.NoMode})
}

// run evaluates the cluster and writes to it until ctx ends.
func (c *clusterParts) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.admit.Run(ctx) })
	if c.opt.Checks != nil {
		w := &statusWriter{c: c, written: map[checkKey]written{}, controllers: map[string]controller{}}
		g.Go(func() error { return w.run(ctx) })
	}
	if c.opt.Requests != nil {
		w := &requestWriter{c: c, written: map[remediate.Request]toldRequest{}}
		g.Go(func() error { return w.run(ctx) })
	}
	g.Go(func() error { return c.admit.Escalation.Run(ctx) })
	return g.Wait()
}

func (c *clusterParts) emit(ev event.Event) {
	ev.Cluster = c.opt.Name
	c.e.opt.Events.Emit(ev)
}

// Wake implements lead.Cluster and hosts.View.
func (c *clusterParts) Wake() { c.admit.Wake() }

// leadCluster implements lead.Cluster: the cluster for its lead.Lead. EndLeadership and SlotMismatches are those of its Runs. // I11
type leadCluster struct {
	*cluster.Runs
	*clusterParts
}

// Load implements lead.Cluster. It fails if any run cannot be read, because that run may be
// open: the leadership then does not begin. // I20
func (l leadCluster) Load(ctx context.Context, s state.Store) error {
	e := l.e
	stored, err := e.takeovers.load(ctx, e.loadStored)
	if err != nil {
		return err
	}
	if err := e.hosts.Freezes.Complete(ctx, s, l.model.Runs.OfCluster(stored.runs)); err != nil {
		return err
	}
	if err := l.model.Runs.BeginLeadership(stored.runs); err != nil {
		return err
	}
	l.toResume = l.model.Runs.Open()
	stored.begin(l.opt.Name)
	return nil
}

// Resume implements lead.Cluster. A run that begins from now on, also before this is called, has its own start: it must not get a
// second worker. // I19
func (l leadCluster) Resume() {
	for _, r := range l.toResume {
		l.admit.Runner.Start(r, nil, nil)
	}
	l.toResume = nil
}

// Release implements lead.Cluster.
func (l leadCluster) Release() { l.admit.CloseProbes() }

// MayAct implements lead.Cluster.
func (l leadCluster) MayAct() bool {
	return l.admit.MayBegin() || l.model.Runs.AnyOpen() || l.admit.ByHand.Acts()
}

// hostsView implements hosts.View: the state of the cluster for package hosts.
type hostsView struct {
	*cluster.Model
	*cluster.Objects
	*clusterParts
}

// Alive implements hosts.View.
func (v hostsView) Alive(ctx context.Context, t remediate.Target, systemUUID string) (lease string, alive bool) {
	ctx, cancel := context.WithTimeout(ctx, run.LookTimeout)
	defer cancel()
	f := v.opt.Kube.Look(ctx, remediate.Run{Target: t}, nil)
	if f.Node == nil || !f.Node.Ready() || !f.Observation.Lease.Known || !bmc.UUIDsMatch(f.Node.SystemUUID, systemUUID) {
		return "", false
	}
	return f.Observation.Lease.ResourceVersion, true
}

// stopCluster implements stop.Cluster: stops apply to the view, to the deciding loop and to each run. BeQuiet and Skew are those of its Freshness. // I16
type stopCluster struct {
	*admit.Freshness
	c *clusterParts
}

// Wake implements stop.Cluster.
func (s stopCluster) Wake() {
	s.c.admit.Wake()
	s.c.admit.Runner.Kick()
}
