package engine

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/stop"
	"github.com/fenced/fenced/internal/suspend"
)

// Kube is the uncached reads and the few writes of one cluster.
type Kube interface {
	run.Kube
	hosts.Secrets
	lead.Announcer
}

// ClusterOptions is one cluster to guard.
type ClusterOptions struct {
	Name         string
	Mode         string
	Reprovision  bool
	Isolation    remediate.Isolation
	IdentityMode string
	Watch        admit.Watch
	Kube         Kube
	Checks       Checks // nil: nothing is told there
	// FileChecks and FileBudgets are from policies.d.
	FileChecks  []policy.Check
	FileBudgets []policy.DisruptionBudget
	// Rules is what the administrator decided for all checks.
	Rules policy.Rules
	// ControlPlaneIsolation is that of control-plane hosts: one of remediate's, or
	// empty for what fits the cluster.
	ControlPlaneIsolation remediate.Isolation
}

// Options is everything the engine is built from.
type Options struct {
	Clusters []ClusterOptions
	Store    state.Store
	// Owners says which clusters are this instance's; nil: all, for the store is
	// locked for it alone.
	Owners state.Owners
	// StoreID and Instance tell other installations who acts here.
	StoreID, Instance string
	Hosts             hosts.Inventory
	// Metal is what BareMetalHosts are believed.
	Metal  hosts.MetalRules
	Open   bmc.Opener
	Own    hosts.Own
	Guards guard.Limits
	Run    remediate.Limits // a check's start-up timeout may enlarge ReadyTimeout
	Power  power.ReadTiming
	Events *event.Stream
	// Record makes an event durable before what it announces is done; while it
	// fails nothing that hurts is done. After context.DeadlineExceeded the event may
	// come to be durable all the same. nil: nothing is recorded. // I24
	Record func(event.Event) error
	// PauseFile pauses everything while it exists; empty: none is looked for. // I23
	PauseFile string
	// Suspended is how long this host was suspended since it was booted; nil: as its
	// kernel says.
	Suspended func() time.Duration
}

// Engine guards clusters. Make it with New; run it once.
type Engine struct {
	opt      Options
	clusters map[string]*cluster
	hosts    *hosts.Hosts
	lockOut  *power.LockOut
	slots    *lead.Slots
	stop     *stop.Stop
	started  time.Time
	beat     func() // tells the watchdog that decisions are made
}

// New loads what the store holds and prepares every cluster. It talks to no
// cluster and no BMC.
func New(ctx context.Context, opt Options) (*Engine, error) {
	e := &Engine{opt: opt, clusters: map[string]*cluster{}, started: time.Now(), beat: func() {}}
	var err error
	if e.lockOut, err = power.NewLockOut(ctx, opt.Store, opt.Instance); err != nil {
		return nil, err
	}
	e.opt.Open = e.lockOut.Guard(opt.Open)
	if opt.Owners == nil {
		e.opt.Owners = state.Sole(opt.Store, opt.Instance, namesOf(opt.Clusters))
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
		LockOut: e.lockOut, Emit: opt.Events.Emit,
	}, opt.Store); err != nil {
		return nil, err
	}
	if err := e.stop.NoteUnread(state.KindFreeze, e.hosts.LoadFreezes(ctx, opt.Store)); err != nil {
		return nil, err
	}
	runs, err := state.LoadRuns(ctx, opt.Store)
	if err != nil {
		return nil, fmt.Errorf("load runs: %w", err)
	}
	for _, o := range opt.Clusters {
		c := newCluster(ctx, e, o)
		c.book.Adopt(runs)
		e.clusters[o.Name] = c
		e.stop.Attach(o.Name, stopped{c})
	}
	for _, r := range runs {
		if e.clusters[r.Target.Cluster] == nil && r.Open() && e.opt.Owners.Owner(r.Target.Cluster).Instance == opt.Instance { // else others know it
			return nil, fmt.Errorf("run %s on %s is open in cluster %q, which the configuration no longer names; add it back until the run has ended", r.ID, r.Target.Node, r.Target.Cluster)
		}
	}
	return e, nil
}

func namesOf(clusters []ClusterOptions) []string {
	var list []string
	for _, o := range clusters {
		list = append(list, o.Name)
	}
	return list
}

// slotsFreed wakes the clusters that may have waited for a slot.
func (e *Engine) slotsFreed(by string) {
	for name, c := range e.clusters {
		if name != by {
			c.admit.Wake()
		}
	}
}

func (e *Engine) stayAwake() suspend.Awake { return suspend.StayAwake(e.opt.Suspended) }

// Run judges the clusters, resumes every open run of those that are this instance's
// and acts on them, until ctx ends; beat is called after every decision and at least
// every second. It returns after the last worker has stopped at a save point.
func (e *Engine) Run(ctx context.Context, beat func()) error {
	e.beat = beat
	g, ctx := errgroup.WithContext(ctx)
	for _, c := range e.clusters {
		g.Go(func() error { return c.admit.Run(ctx) })
		if c.opt.Checks != nil {
			t := &statusWriter{c: c, written: map[checkKey]written{}, controllers: map[string]controller{}}
			g.Go(func() error { return t.loop(ctx) })
		}
	}
	g.Go(func() error { return e.opt.Owners.Run(ctx, e.guard) })
	g.Go(func() error { return e.keepReloaded(ctx) })
	g.Go(func() error { return e.keepReread(ctx) })
	g.Go(func() error { return e.prune(ctx) })
	g.Go(func() error {
		return e.lockOut.Run(ctx, func(err error) { e.opt.Events.Emit(event.Event{Type: event.Internal, Message: err.Error()}) })
	})
	g.Go(func() error { return e.stop.Run(ctx) })
	return g.Wait()
}

func (e *Engine) cluster(name string) (*cluster, error) {
	if name == "" && len(e.clusters) == 1 {
		for _, c := range e.clusters {
			return c, nil
		}
	}
	if c := e.clusters[name]; c != nil {
		return c, nil
	}
	if name == "" {
		return nil, &reason.Refusal{Reason: reason.ClusterRequired, Message: "several clusters are configured; name one with --cluster"}
	}
	return nil, &reason.Refusal{Reason: reason.NoSuchCluster, Message: fmt.Sprintf("no cluster %q is configured", name)}
}
