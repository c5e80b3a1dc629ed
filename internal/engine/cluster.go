package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/internal/suspend"
)

// cluster is what the engine knows about one cluster. Its mutex guards
// everything below it; no I/O happens while it is held.
type cluster struct {
	e      *Engine
	opt    ClusterOptions
	poke   chan struct{} // something changed that the watch does not show
	news   chan struct{} // there may be something to tell about the checks
	lead   *lead.Lead
	hosts  *hosts.Cluster
	runner *run.Runner

	mu        sync.Mutex
	runs      map[string]remediate.Run // by ID, ended ones too
	probes    map[string]*probe        // by target key
	refused   map[string]reason.Code   // last refusal told, by target key
	ledger    *policy.Ledger
	storms    map[checkKey]policy.Storm
	evidence  map[string]*evidence // by Node
	sought    time.Time            // when targets were last searched for evidence
	moved     bool                 // runs changed since the ledger was told
	seen      uint64               // version of the ledger that the candidates were asked about
	judged    bool                 // the ledger has seen the cluster whole
	quiet     time.Time            // no new run before
	viewBad   string
	outage    time.Time                    // the recovery that quiet already reflects
	awake     suspend.Awake                // since the last suspend that quiet reflects,
	suspend   string                       // what is told of it,
	woken     time.Time                    // and when it was noticed
	labels    map[string]map[string]string // of open runs' Nodes as they began, by run ID
	well      map[string]time.Time         // by Node: until then it was Ready for an hour
	scopeKept bool                         // this process has stored its scope
}

func newCluster(ctx context.Context, e *Engine, o ClusterOptions) *cluster {
	o.Rules.ClusterRequired, o.Rules.NodesCountAsMembers = true, false // this is a live cluster
	o.Rules.ZoneKey = cmp.Or(o.Rules.ZoneKey, e.opt.Guards.ZoneKey)
	c := &cluster{
		e: e, opt: o, poke: make(chan struct{}, 1), news: make(chan struct{}, 1),
		runs:   map[string]remediate.Run{},
		probes: map[string]*probe{}, refused: map[string]reason.Code{},
		ledger: policy.NewLedger(o.Rules), storms: map[checkKey]policy.Storm{}, moved: true, evidence: map[string]*evidence{},
		labels: map[string]map[string]string{}, well: map[string]time.Time{},
		awake: e.stayAwake(),
	}
	c.lead = lead.New(lead.Options{
		Name: o.Name, Instance: e.opt.Instance, StoreID: e.opt.StoreID, Cluster: led{c}, Owners: e.opt.Owners, Store: e.opt.Store,
		Slots: e.slots, Announcer: o.Kube, Awake: e.stayAwake, Emit: e.opt.Events.Emit,
	})
	c.hosts = e.hosts.Attach(ctx, hosts.ClusterOptions{Name: o.Name, IdentityMode: o.IdentityMode, View: viewed{c}, Lead: c.lead, Secrets: o.Kube})
	c.runner = run.New(run.Options{
		Name: o.Name, Cluster: led{c}, Kube: o.Kube, Hosts: c.hosts, Lead: c.lead, Stop: e.stop, LockOut: e.lockOut,
		Open: e.opt.Open, Timing: e.opt.Power, Emit: e.opt.Events.Emit,
	})
	c.ledger.Apply(e.started, fromFiles(o)...)
	from, told := c.quietFrom(later(c.record().ResumedAt, e.stop.Record(state.AllClusters).ResumedAt))
	c.quiet = from.Add(e.opt.Guards.QuietPeriod)
	for _, ev := range told {
		c.emit(ev)
	}
	return c
}

func (c *cluster) emit(ev event.Event) {
	ev.Cluster = c.opt.Name
	c.e.opt.Events.Emit(ev)
}

// wake asks for a decision soon, and for an announcement where there was none to make.
func (c *cluster) wake() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
	c.lead.Stir()
}

func (c *cluster) openRuns() []remediate.Run {
	c.mu.Lock()
	defer c.mu.Unlock()
	var open []remediate.Run
	for _, id := range slices.Sorted(maps.Keys(c.runs)) {
		if c.runs[id].Open() {
			open = append(open, c.runs[id])
		}
	}
	return open
}

// save stores a run by compare-and-set and then makes it what others see. // I19
func (c *cluster) save(ctx context.Context, r remediate.Run) (remediate.Run, error) {
	c.mu.Lock()
	frozen := hosts.Lied(c.runs[r.ID])
	c.mu.Unlock()
	if hosts.Lied(r) && !frozen {
		if err := c.hosts.Freeze(ctx, r); err != nil {
			return r, err
		}
	}
	saved, err := state.SaveRun(ctx, c.lead.Store(), r)
	if err != nil {
		return r, err
	}
	c.mu.Lock()
	c.runs[saved.ID], c.moved = saved, true
	c.mu.Unlock()
	return saved, nil
}
