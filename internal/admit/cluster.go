package admit

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/stop"
	"github.com/fenced/fenced/internal/wire"
)

// Options configures the admission of one cluster.
type Options struct {
	Name   string
	Mode   string // one of the modes in guard
	Limits *cluster.Limits
	// Files and Budgets are from policies.d.
	Files   []policy.Check
	Budgets []policy.DisruptionBudget
	// RequestScope is what the configuration allows remediation requests beyond the default.
	RequestScope []string
	// Added: a reload adds the cluster, so it begins with the quiet period, whatever is on record
	// about the time before.
	Added bool

	Model *cluster.Model
	View  *Freshness
	Kube  run.Kube
	Hosts *hosts.Cluster
	// Requests holds the remediation requests that runs carry out; nil: none is carried out.
	Requests Requests
	// StoreID names this installation on the requests that it makes for other remediators.
	StoreID string
	Lead    *lead.Lead
	Slots   *lead.Slots
	Stop    *stop.Stop

	LockOut *power.LockOut
	// LastChecks returns what the BMC health check knows of a host, for explanations, and for requests whose run
	// is lost; nil: nothing.
	LastChecks func(cluster, host string) []hosts.LastCheck
	Open       bmc.Opener
	Timing     power.ReadTiming

	// Record makes an event durable before the action that it announces; nil: nothing is
	// recorded. // I24
	Record func(event.Event) error
	// AuditTrouble says why the audit log cannot be written, "" if it can.
	AuditTrouble func() string
	// Pods lists the pods on a Node, for people; nil: nobody is told of them.
	Pods func(ctx context.Context, node string) (wire.Pods, error)
	Emit func(event.Event)
	Beat func() // called while the deciding goroutine is alive
	// Saved is called after a run was saved: what its request is to be told may have changed.
	Saved func()
	// TellRequests has the requests of a run told what its record says, and waits for that, but not for long.
	TellRequests func(ctx context.Context, run string)
	// Decided is called after each round of decisions: the status of checks may have changed.
	Decided func()
}

// Cluster admits runs in one cluster. Each of its parts has its own lock, and holds it while
// no other part is called.
type Cluster struct {
	opt       Options
	model     *cluster.Model
	view      *Freshness
	Runner    *run.Runner
	wakeup    chan struct{} // something changed that is not in the watch
	probes    *probes
	evidence  *evidenceReader
	refused   *refusals
	checks    checkStates
	resumer   *resumer
	runs      *runCluster
	scope     scopeKeeper
	deletions *deletions
	mode      modeReporter

	Requested *RequestedRuns
	// Escalation asks other remediators. It is set before Run.
	Escalation Escalation
	OwnHost    *OwnHost
	ByHand     *ByHand
	Policies   *Policies
}

// New prepares the admission of one cluster. It decides nothing until Run is called.
func New(opt Options) *Cluster {
	c := &Cluster{
		opt: opt, model: opt.Model, view: opt.View, wakeup: make(chan struct{}, 1),
	}
	c.refused, c.checks = newRefusals(c.emit), newCheckStates()
	c.probes = newProbes(opt, c.Wake)
	c.evidence = &evidenceReader{opt: opt, wake: c.Wake, byNode: map[string]*evidence{}}
	c.Requested = &RequestedRuns{c: c, model: opt.Model, notHeld: map[string]time.Time{}, unknown: map[string]time.Time{}}
	c.Escalation = NoEscalation{}
	c.OwnHost, c.deletions, c.ByHand = &OwnHost{opt: opt}, &deletions{opt: opt, wake: c.Wake}, &ByHand{c: c, dryRuns: semaphore.NewWeighted(maxDryRuns), viewerDryRuns: semaphore.NewWeighted(maxViewerDryRuns)}
	c.Policies = &Policies{c: c}
	c.runs = &runCluster{Freshness: opt.View, opt: opt, probes: c.probes, wake: c.Wake, recorder: recorder{failed: map[string]string{}}}
	c.Runner = run.New(run.Options{
		Name: opt.Name, Cluster: c.runs, Kube: opt.Kube, Hosts: opt.Hosts, Lead: opt.Lead, Stop: opt.Stop, LockOut: opt.LockOut,
		Open: opt.Open, Timing: opt.Timing, LastChecks: opt.LastChecks, Emit: opt.Emit,
	})
	c.resumer = &resumer{c: c, refused: newRefusals(c.emit)}
	c.scope = scopeKeeper{opt: opt}
	for _, ev := range c.scope.startQuiet(opt.Model.Started) {
		c.emit(ev)
	}
	return c
}

// Options returns the options of the cluster.
func (c *Cluster) Options() Options { return c.opt }

func (c *Cluster) emit(ev event.Event) {
	ev.Cluster = c.opt.Name
	c.opt.Emit(ev)
}

// Wake requests a decision soon. It also wakes the leadership, which may have to take the
// cluster's Lease now.
func (c *Cluster) Wake() {
	select {
	case c.wakeup <- struct{}{}:
	default:
	}
	c.opt.Lead.TakeLeaseSoon()
}

// CloseProbes drops the finished probes and closes their BMC sessions.
func (c *Cluster) CloseProbes() { c.probes.dropAllBut(nil) }

// Armed says whether fenced acts in the cluster on what its checks find.
func (c *Cluster) Armed() bool {
	return c.opt.Mode == guard.ModeEvaluate || c.opt.Mode == guard.ModeObserve && c.opt.Stop.Record(c.opt.Name).Armed
}

// MayBegin says whether a run may begin in the cluster without an order from a person: on what a
// check finds, or in mode respond on a request.
func (c *Cluster) MayBegin() bool { return c.Armed() || c.opt.Mode == guard.ModeRespond }

// candidate drafts the run of one target of a check; false when the target has changed
// since it was evaluated.
func (c *Cluster) candidate(check *policy.Check, t *policy.TargetReport) (cluster.Candidate, bool) {
	a, ok := c.model.CandidateForCheck(check, t)
	a.Protected = ok && c.opt.Hosts.Protected(a.Draft.Target)
	return a, ok
}
