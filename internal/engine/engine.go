package engine

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/order"
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
	// FilesRefused says which of these files were not read, so that nothing begins; "" if all were.
	FilesRefused string
	// RequestScope is what the configuration allows remediation requests beyond the default.
	RequestScope []string
	// Rules are the administrator's settings for all checks.
	Rules policy.Rules
	// RackKey is the label that holds the rack of a Node.
	RackKey string
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
	// AuditTrouble says why the audit log cannot be written, "" if it can; nil: it always can.
	AuditTrouble func() string
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

	takeovers  takeovers
	pinChanges uint64 // as the store counted them when follow read the pins

	Arming      Arming
	ApplyConfig ApplyConfig
	// LockOut knows which accounts a BMC has refused.
	LockOut *power.LockOut
}

// New loads the records of the store and prepares every cluster. It connects to no cluster
// and no BMC.
func New(ctx context.Context, opt Options) (*Engine, error) {
	e := &Engine{opt: opt, pulse: &pulse{pass: func() {}, due: map[string]bool{}, each: map[string]bool{}}, limits: cluster.NewLimits(opt.Guards, opt.Run),
		takeovers: takeovers{reading: semaphore.NewWeighted(1)}}
	e.Arming, e.ApplyConfig = Arming{e}, ApplyConfig{e}
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
	e.slots = lead.NewSlots(func(freedBy string) { // the other clusters may be waiting for a slot
		for name, c := range e.clusters.All() {
			if name != freedBy {
				c.admit.Wake()
			}
		}
	})
	if opt.AuditTrouble == nil {
		e.opt.AuditTrouble = func() string { return "" }
	}
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

func (e *Engine) stayAwake() suspend.Awake { return suspend.StayAwake(e.opt.Suspended) }

// Run evaluates all clusters, and continues open runs and acts in the clusters that this
// instance owns, until ctx ends. It calls beat at least once a second while the deciding loop
// of every cluster makes progress, and not while one of them hangs. It returns after the last
// worker has stopped at a save point.
func (e *Engine) Run(ctx context.Context, beat func()) error {
	e.pulse.pass = beat
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return e.tasks.Run(ctx) })
	g.Go(func() error {
		return e.opt.Owners.Run(ctx, func(ctx context.Context, claim state.Claim) { // acts until the claim ends
			if c := e.clusters.Get(claim.Cluster); c != nil {
				c.lead.Serve(ctx, claim)
			}
		})
	})
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

// inCluster answers for one cluster. An error is a *reason.Refusal: no such cluster is configured, or that of the answer.
func inCluster[T any](e *Engine, name string, answer func(*clusterParts) (T, error)) (none T, err error) {
	c, err := e.cluster(name)
	if err != nil {
		return none, err
	}
	return answer(c)
}

// Escalation asks other remediators in all clusters; package escalate does. Its parts beside this are admit.Escalation, for
// one cluster, and cluster.Repair, by which the limits count what was asked.
type Escalation interface {
	// Add joins a cluster. controllerAlive says whether the controller of checks of a kind is alive.
	Add(c *admit.Cluster, controllerAlive func(context.Context, policy.CheckID) (remediate.Answer, error)) admit.Escalation
	Remove(cluster string)
	// Load reads the records of all clusters, for those that this instance does not lead. begin lets a leadership begin
	// with them.
	Load(ctx context.Context) (begin func(cluster string), err error)
	// WhyNotStart refuses a configuration without a cluster in which an object that fenced made may exist, as one without
	// a cluster in which a run is open is refused; and WhyNotRemove to remove such a cluster.
	WhyNotStart(missing func(cluster string) bool) error
	WhyNotRemove(cluster string) error
	// Prune deletes the records that ended before a time, of whatever cluster.
	Prune(ctx context.Context, store state.Store, before time.Time) error
	// Abort gives up the record that an order names in place of a run. known: there is such a record.
	Abort(ctx context.Context, o wire.Order) (out order.Outcome, known bool, err error)
}

// noEscalation asks nobody.
type noEscalation struct{}

func (noEscalation) Add(_ *admit.Cluster, _ func(context.Context, policy.CheckID) (remediate.Answer, error)) admit.Escalation {
	return admit.NoEscalation{}
}
func (noEscalation) Remove(string) {}
func (noEscalation) Load(context.Context) (begin func(string), err error) {
	return func(string) {}, nil
}
func (noEscalation) WhyNotStart(func(string) bool) error                 { return nil }
func (noEscalation) WhyNotRemove(string) error                           { return nil }
func (noEscalation) Prune(context.Context, state.Store, time.Time) error { return nil }
func (noEscalation) Abort(context.Context, wire.Order) (out order.Outcome, known bool, err error) {
	return out, false, nil
}

// pulse joins the beats of the deciding loops, one for each cluster: it passes one on when each loop has beaten since the
// one before. So a loop that hangs is noticed, whatever the loops of other clusters do.
type pulse struct {
	pass func() // resets the watchdogs: decisions are being made in every cluster

	mu   sync.Mutex
	due  map[string]bool // the clusters whose loops have not beaten since
	each map[string]bool
}

// add expects the beats of a cluster from now on.
func (p *pulse) add(cluster string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.each[cluster], p.due[cluster] = true, true
}

// remove expects them no more.
func (p *pulse) remove(cluster string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.each, cluster)
	delete(p.due, cluster)
}

// beat is called by the deciding loop of a cluster.
func (p *pulse) beat(cluster string) {
	p.mu.Lock()
	delete(p.due, cluster)
	last := len(p.due) == 0
	if last {
		p.due = maps.Clone(p.each)
	}
	p.mu.Unlock()
	if last {
		p.pass()
	}
}
