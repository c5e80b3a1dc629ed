package engine

import (
	"context"
	"fmt"
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
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/stop"
	"github.com/fenced/fenced/internal/suspend"
	"github.com/fenced/fenced/internal/wire"
)

// Kube does the uncached reads and the few writes of one cluster.
type Kube interface {
	run.Kube
	hosts.Secrets
	lead.Announcer
}

// ClusterOptions configures one cluster.
type ClusterOptions struct {
	Name         string
	Mode         string
	Reprovision  bool
	Isolation    remediate.Isolation
	IdentityMode string
	Watch        admit.Watch
	Kube         Kube
	Checks       Checks // nil: no status of checks is written
	// Pods lists the pods on a Node, for people; nil: nobody is told of them.
	Pods func(ctx context.Context, node string) (wire.Pods, error)
	// Requests writes to the remediation requests; nil: none is carried out.
	Requests Requests
	// FileChecks and FileBudgets are from policies.d.
	FileChecks  []policy.Check
	FileBudgets []policy.DisruptionBudget
	// RequestScope is what the configuration allows remediation requests beyond the default.
	RequestScope []string
	// Rules are the administrator's settings for all checks.
	Rules policy.Rules
	// ControlPlaneIsolation is that of control-plane hosts: one of remediate's; empty: the
	// default for the kind of cluster.
	ControlPlaneIsolation remediate.Isolation
}

// Options configures the engine.
type Options struct {
	Clusters []ClusterOptions
	Store    state.Store
	// Owners says which clusters this instance owns; nil: all, because the store is locked
	// for this instance alone.
	Owners state.Owners
	// StoreID and Instance identify this installation and this daemon to other installations.
	StoreID, Instance string
	Hosts             hosts.Inventory
	// Escalation asks other remediators; nil: nobody does.
	Escalation Escalation
	// Metal says what fenced accepts from BareMetalHosts.
	Metal  hosts.MetalRules
	Open   bmc.Opener
	Own    hosts.Own
	Guards guard.Limits
	Run    remediate.Limits // a check's start-up timeout may enlarge ReadyTimeout
	Power  power.ReadTiming
	Events *event.Stream
	// Record makes an event durable before the action that it announces. While it fails,
	// nothing destructive is done. After context.DeadlineExceeded the event may still become
	// durable later. nil: nothing is recorded. // I24
	Record func(event.Event) error
	// PauseFile is the path of a file that pauses everything while it exists; empty: none. // I23
	PauseFile string
	// LastChecks returns what the BMC health check knows of a host, for explanations, and for requests whose run
	// is lost; nil: nothing.
	LastChecks func(cluster, host string) []hosts.LastCheck
	// Suspended is how long this host was suspended since it was booted; nil: the kernel's
	// answer.
	Suspended func() time.Duration
}

// Engine runs the daemon's work for all clusters. Create it with New, and call Run once.
type Engine struct {
	opt      Options
	clusters live.Map[*clusterParts]
	tasks    live.Tasks // what each cluster runs
	hosts    *hosts.Hosts
	slots    *lead.Slots
	limits   *cluster.Limits
	stop     *stop.Stop
	pulse    *pulse

	Arming Arming
	TakeIn TakeIn
	// LockOut knows which accounts a BMC has refused.
	LockOut *power.LockOut
}

// New loads the records of the store and prepares every cluster. It connects to no cluster
// and no BMC.
func New(ctx context.Context, opt Options) (*Engine, error) {
	e := &Engine{opt: opt, pulse: newPulse(), limits: cluster.NewLimits(opt.Guards, opt.Run)}
	e.Arming, e.TakeIn = Arming{e}, TakeIn{e}
	if opt.Escalation == nil {
		e.opt.Escalation = noEscalation{}
	}
	var err error
	if e.LockOut, err = power.NewLockOut(ctx, opt.Store, opt.Instance); err != nil {
		return nil, err
	}
	e.opt.Open = e.LockOut.Guard(opt.Open)
	if opt.Owners == nil {
		e.opt.Owners = state.Sole(opt.Store, opt.Instance)
	}
	e.slots = lead.NewSlots(e.slotsFreed)
	if opt.Suspended == nil {
		e.opt.Suspended = suspend.Total
	}
	if e.stop, err = stop.New(ctx, stop.Options{Store: opt.Store, Emit: opt.Events.Emit, PauseFile: opt.PauseFile}); err != nil {
		return nil, err
	}
	if e.hosts, err = hosts.New(ctx, hosts.Options{
		Inventory: opt.Hosts, Metal: opt.Metal, Own: opt.Own, Instance: opt.Instance, Open: e.opt.Open, Timing: opt.Power,
		LockOut: e.LockOut, Emit: opt.Events.Emit,
	}, opt.Store); err != nil {
		return nil, err
	}
	if err := e.stop.NoteUnread(state.KindFreeze, e.hosts.Freezes.Load(ctx, opt.Store)); err != nil {
		return nil, err
	}
	runs, aside, err := state.LoadAllRuns(ctx, opt.Store)
	if err != nil {
		return nil, fmt.Errorf("load runs: %w", err)
	}
	if len(aside) > 0 {
		opt.Events.Emit(asideEvent(aside))
	}
	for _, o := range opt.Clusters {
		newCluster(e, o, false).attach(ctx, runs)
	}
	if _, err := e.opt.Escalation.Load(ctx); err != nil {
		return nil, err
	}
	missing := func(cluster string) bool { // another instance may have a cluster that only that one knows
		return e.clusters.Get(cluster) == nil && e.opt.Owners.Owner(cluster).Instance == opt.Instance
	}
	for _, r := range runs {
		if r.Open() && missing(r.Target.Cluster) {
			return nil, fmt.Errorf("run %s on %s is open in cluster %q, which the configuration no longer names; add the cluster again until the run has ended", r.ID, r.Target.Node, r.Target.Cluster)
		}
	}
	if err := e.opt.Escalation.WhyNotStart(missing); err != nil {
		return nil, err
	}
	return e, nil
}

// slotsFreed wakes the other clusters, which may be waiting for a slot.
func (e *Engine) slotsFreed(by string) {
	for name, c := range e.clusters.All() {
		if name != by {
			c.admit.Wake()
		}
	}
}

func (e *Engine) stayAwake() suspend.Awake { return suspend.StayAwake(e.opt.Suspended) }

// Run evaluates all clusters, and continues open runs and acts in the clusters that this
// instance owns, until ctx ends. It calls beat at least once a second while the deciding loop
// of every cluster makes progress, and not while one of them hangs. It returns after the last
// worker has stopped at a save point.
func (e *Engine) Run(ctx context.Context, beat func()) error {
	e.pulse.pass = beat
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.tasks.Run(ctx) })
	g.Go(func() error { return e.opt.Owners.Run(ctx, e.guard) })
	g.Go(func() error { return e.runResync(ctx) })
	g.Go(func() error { return e.runReread(ctx) })
	g.Go(func() error { return e.runPrune(ctx) })
	var unsaved event.Told[bool]
	g.Go(func() error {
		return e.LockOut.Run(ctx, func(err error) {
			if unsaved.News(err != nil) {
				e.opt.Events.Emit(event.Event{Type: event.Internal, Message: err.Error()})
			}
		})
	})
	g.Go(func() error { return e.stop.Run(ctx) })
	return g.Wait()
}

func (e *Engine) cluster(name string) (*clusterParts, error) {
	clusters := e.clusters.All()
	if name == "" && len(clusters) == 1 {
		for _, c := range clusters {
			return c, nil
		}
	}
	if c := clusters[name]; c != nil {
		return c, nil
	}
	if name == "" {
		return nil, &reason.Refusal{Reason: reason.ClusterRequired, Message: "several clusters are configured; name one with --cluster"}
	}
	return nil, &reason.Refusal{Reason: reason.NoSuchCluster, Message: fmt.Sprintf("no cluster %q is configured", name)}
}
