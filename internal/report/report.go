package report

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/live"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// Cluster is what is written to.
type Cluster interface {
	// QueueEvent queues a Kubernetes Event. It never waits.
	QueueEvent(e event.KubeEvent)
	// Marked lists the objects of the view that carry a mark.
	Marked() []event.RunMark
	// Mark writes a mark, or removes it if it names no run. It takes a few seconds at most.
	Mark(ctx context.Context, m event.RunMark) error
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
	// Course is what a run did between two times, and what it waited for, as far as that is known; nil: nothing is.
	Course func(run string, from, to time.Time) []string
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
	m := &marker{r: r, name: name, c: c, changed: make(chan struct{}, 1), retry: map[markKey]times.Backoff{}}
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

const (
	// tickEvery is how often events are looked at that this instance may not report yet.
	tickEvery = 2 * time.Second
	// waitFor is how long they wait. A check that is found with a closed limit at the start
	// is told before this instance owns the cluster. After that time another instance owns
	// it, and reports.
	waitFor = time.Minute
	// maxWaiting is of how many events that is done; the oldest are dropped.
	maxWaiting = 256
)

// runEvents follows the stream of events. The stream keeps the newest events, so a reader
// never delays who emits one.
func (r *Report) runEvents(ctx context.Context) error {
	for ctx.Err() == nil {
		tick, cancel := context.WithTimeout(ctx, tickEvery)
		news, _ := r.opt.Events.After(tick, r.seq) // the error is the end of the tick
		cancel()
		if len(news) == 0 && len(r.waiting) == 0 {
			continue
		}
		r.readEvents(news, time.Now())
		live.Sleep(ctx, gather)
	}
	return nil
}

// gather is how long what follows is collected, so that many runs at once cost little.
const gather = 200 * time.Millisecond

// readEvents reports new events, and those that waited.
func (r *Report) readEvents(news []event.Event, now time.Time) {
	states := map[string]State{} // one for all events of a cluster
	stateOf := func(cluster string) State {
		s, asked := states[cluster]
		if !asked {
			s = r.opt.State(cluster)
			states[cluster] = s
		}
		return s
	}
	r.waiting = slices.DeleteFunc(r.waiting, func(e event.Event) bool {
		s := stateOf(e.Cluster)
		if s.Acts {
			r.note(e, s)
		}
		return s.Acts || now.Sub(e.At) > waitFor
	})
	for _, e := range news {
		r.lost.Add(e.Seq - r.seq - 1)
		r.seq = e.Seq
		r.readEvent(e, stateOf(e.Cluster))
	}
}

func (r *Report) readEvent(e event.Event, s State) {
	m := r.markers.Get(e.Cluster)
	if m == nil {
		return
	}
	if e.Type == event.Started || e.Type == event.Stepped {
		m.wake()
	}
	if isOfRun(e) || s.Acts { // only the instance that carries a run out emits events of it
		r.note(e, s)
		return
	}
	if !isOfPolicy(e) {
		return
	}
	if len(r.waiting) == maxWaiting {
		r.waiting = slices.Delete(r.waiting, 0, 1)
	}
	r.waiting = append(r.waiting, e)
}

// isOfRun reports whether an event is of the course of a run.
func isOfRun(e event.Event) bool {
	switch e.Type {
	case event.Started, event.Stepped, event.Failed:
		return e.Run != ""
	}
	return false
}

// isOfPolicy reports whether an event is one of those that ofPolicy reports.
func isOfPolicy(e event.Event) bool {
	switch e.Type {
	case event.Refused, event.LimitClosed, event.LimitOpened, event.CheckChanged:
		return true
	}
	return false
}

// addCourse adds to what says that a host is off, or on, how it came to be so.
func (r *Report) addCourse(found []news, e event.Event, run remediate.Run) {
	if r.opt.Course == nil {
		return
	}
	before := visitBefore(run, e)
	for i := range found {
		if n := &found[i]; n.reason == hostPoweredOff || n.reason == hostPoweredOn {
			if course := r.opt.Course(run.ID, before.Started, before.Ended); len(course) > 0 {
				n.message += "; " + strings.Join(course, "; ")
			}
		}
	}
}

// The actions of Events.
const (
	remediates = "Remediate" // it is about a run
	evaluates  = "Evaluate"  // it is about what a check asks for, or about the check
)

// note writes the Events for an event. While fenced only observes, it writes none about
// what it would not do; nor in mode respond about what nobody has requested.
func (r *Report) note(e event.Event, s State) {
	var found []news
	action := evaluates
	if isOfRun(e) {
		action = remediates
		if run, known := r.opt.Run(e.Cluster, e.Run); known {
			found = ofRun(e, run, s.Checks)
			r.addCourse(found, e, run)
		}
	} else if s.Armed && e.Reason != reason.Observing {
		target, _ := r.opt.Target(e.Cluster, e.Node, e.Machine)
		found = ofPolicy(e, target)
	}
	m := r.markers.Get(e.Cluster)
	if m == nil { // the cluster was removed meanwhile
		return
	}
	for _, n := range found {
		for _, subject := range rows[n.reason].On {
			if o, there := n.about[subject]; there {
				m.c.QueueEvent(event.KubeEvent{
					APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID, OnManagementAPI: o.OnManagementAPI,
					At: e.At, Warning: rows[n.reason].Warning, Reason: n.reason, Message: n.message,
					Action: action, Instance: r.opt.Instance,
				})
			}
		}
	}
}
