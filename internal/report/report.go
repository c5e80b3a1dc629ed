package report

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/remediate"
)

// Note is a Kubernetes Event: what happened to one object.
type Note struct {
	// The object. One without a Namespace is of the whole cluster.
	APIVersion, Kind, Namespace, Name, UID string
	// OnManagementAPI: it is on a separate management API, where its kind alone does not say so.
	OnManagementAPI bool

	At              time.Time
	Warning         bool
	Reason, Message string
}

// Mark says on a Node or a Machine which run is open on it.
type Mark struct {
	// The object.
	APIVersion, Kind, Namespace, Name, UID string

	// Run is the ID of the run; empty: the object carries no mark, or is to carry none.
	Run string
	// Step is the step that the run was in when the mark was written, and Instance the
	// daemon that carries it out.
	Step, Instance string
}

// Cluster is what is written to.
type Cluster interface {
	// Note queues an Event. It never waits.
	Note(n Note)
	// Marked lists the objects of the view that carry a mark.
	Marked() []Mark
	// Mark writes a mark, or removes it if it names no run. It takes a few seconds at most.
	Mark(ctx context.Context, m Mark) error
}

// State is what the engine knows about one cluster now.
type State struct {
	// Acts: this instance may act on the cluster. Of several, one reports. Armed: it does
	// so without orders.
	Acts, Armed bool
	// Runs are the open ones.
	Runs []remediate.Run
	// Checks are those that are objects of the cluster.
	Checks []event.Check
}

// Options is what a Report is made from.
type Options struct {
	Events *event.Stream
	// State returns the state of a cluster.
	State func(cluster string) State
	// Run returns a run of a cluster, open or ended.
	Run func(cluster, id string) (remediate.Run, bool)
	// Target returns the objects of a Node, or of a Machine ("namespace/name") without one.
	Target func(cluster, node, machine string) (remediate.Target, bool)
	// Present returns the UID of the Node that has the name of a target's Node now, "" if there
	// is none, and whether the target's Machine exists.
	Present func(cluster string, t remediate.Target) (nodeUID string, machine bool)
	// OffReadSpacing is the time between the two readings that prove an Off. If it is too short
	// for the writing of a mark, a Node is not marked in step 1.
	OffReadSpacing time.Duration
	// Instance is the name of this daemon.
	Instance string
}

// Report writes Events and marks. Create it with New, and call Run once.
type Report struct {
	opt     Options
	markers live.Map[*marker] // by cluster
	tasks   live.Tasks        // of the markers
	seq     uint64            // of the last event that was read
	waiting []event.Event     // about clusters on which this instance did not act yet
	lost    atomic.Uint64
}

// maxInstance is the longest name of an instance in a mark.
const maxInstance = 128

// New returns a Report of no cluster yet.
func New(opt Options) *Report {
	opt.Instance = bmc.Printable(opt.Instance, maxInstance) // as it is read back
	return &Report{opt: opt}
}

// Attach adds a cluster: what happens there is reported from now on or, before Run, with that.
func (r *Report) Attach(name string, c Cluster) {
	m := newMarker(r, name, c)
	r.markers.Put(name, m)
	r.tasks.Begin(name, m.run)
}

// Detach removes a cluster. Nothing is written to it any more when Detach returns.
func (r *Report) Detach(name string) {
	r.markers.Delete(name)
	r.tasks.End(name)
}

// Run reports until ctx ends.
func (r *Report) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return r.runEvents(ctx) })
	g.Go(func() error { return r.tasks.Run(ctx) })
	return g.Wait()
}

// Lost is how many events came faster than they were read. They are in no Kubernetes Event.
func (r *Report) Lost() uint64 { return r.lost.Load() }
