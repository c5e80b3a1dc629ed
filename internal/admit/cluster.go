package admit

import (
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/lead"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/run"
	"github.com/fenced/fenced/internal/stop"
)

// Options is what the admission of one cluster is made from.
type Options struct {
	Name   string
	Mode   string // one of guard's
	Guards guard.Limits
	// Files are the checks of policies.d.
	Files []policy.Check // from policies.d

	Book  *Book
	View  *Freshness
	Kube  run.Kube
	Hosts *hosts.Cluster
	Lead  *lead.Lead
	Slots *lead.Slots
	Stop  *stop.Stop

	LockOut *power.LockOut
	Open    bmc.Opener
	Timing  power.ReadTiming

	// Record makes an event durable before what it announces is done; nil: nothing is
	// recorded. // I24
	Record func(event.Event) error
	Emit   func(event.Event)
	Beat   func() // the deciding goroutine is alive
	// Decided is called after the candidates were asked about: the checks may have changed.
	Decided func()
}

// Cluster admits runs in one cluster. Its parts each have a lock of their own, and none is
// held while another part is called.
type Cluster struct {
	opt      Options
	book     *Book
	view     *Freshness
	Runner   *run.Runner
	poke     chan struct{} // something changed that the watch does not show
	probes   *probes
	evidence *evidenceReader
	refused  refusals
	runs     *runCluster
	scope    scopeKeeper
}

// New prepares the admission of one cluster. It decides nothing until Run is called.
func New(opt Options) *Cluster {
	c := &Cluster{
		opt: opt, book: opt.Book, view: opt.View, poke: make(chan struct{}, 1),
		refused: refusals{byKey: map[string]reason.Code{}},
	}
	c.probes = newProbes(opt, c.Wake)
	c.evidence = newEvidenceReader(opt, c.Wake)
	c.runs = &runCluster{opt: opt, probes: c.probes, wake: c.Wake, recorder: recorder{failed: map[string]string{}}}
	c.Runner = run.New(run.Options{
		Name: opt.Name, Cluster: c.runs, Kube: opt.Kube, Hosts: opt.Hosts, Lead: opt.Lead, Stop: opt.Stop, LockOut: opt.LockOut,
		Open: opt.Open, Timing: opt.Timing, Emit: opt.Emit,
	})
	c.scope = scopeKeeper{opt: opt}
	for _, ev := range c.scope.begin(opt.Book.started) {
		c.emit(ev)
	}
	return c
}

func (c *Cluster) emit(ev event.Event) {
	ev.Cluster = c.opt.Name
	c.opt.Emit(ev)
}

// Wake asks for a decision soon, and for an announcement where there was none to make.
func (c *Cluster) Wake() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
	c.opt.Lead.Stir()
}

// Release ends the BMC sessions of probes.
func (c *Cluster) Release() { c.probes.keep(nil) }

// Armed says whether fenced acts on its own judgement in the cluster.
func (c *Cluster) Armed() bool {
	return c.opt.Mode == guard.ModeEvaluate || c.opt.Mode == guard.ModeObserve && c.opt.Stop.Record(c.opt.Name).Armed
}

// candidate drafts the run of one target of a check; false when the target has changed
// since it was judged.
func (c *Cluster) candidate(check *policy.Check, t *policy.TargetReport) (candidate, bool) {
	a, ok := c.book.candidate(check, t)
	a.protected = ok && c.opt.Hosts.Protected(t.Node)
	return a, ok
}
