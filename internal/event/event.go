// Package event holds what happened: log, metrics, audit log and the control API read one
// stream of events.
package event

import (
	"context"
	"crypto/rand"
	"errors"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// Event is one thing that happened. Log, metrics and the control API are
// subscribers of the one stream of them.
type Event struct {
	Seq     uint64
	At      time.Time
	Type    string // one of the Event* constants
	Cluster string
	Node    string
	Machine string // "namespace/name" of a target that has no Node
	Run     string
	Step    remediate.Step
	Action  remediate.Action
	Reason  reason.Code
	Message string

	// What follows is for the record: the decision with all that it was made on. // I24

	Actor  string // of an order; from the kernel
	Why    string // an order's reason, as the person gave it
	Check  string // the check that asked for a run, or that changed
	Inputs string // what was seen when an action was decided
	Gates  []reason.Gate
	// Began is when the run began, and Left the stay in a step that is over with this event: both for
	// Stepped alone, from the record of the run, which outlives restarts.
	Began time.Time
	Left  remediate.Visit
	// Recorded: Options.Record has made it durable already.
	Recorded bool

	// About is the object of a check, for Refused and RefusalEnded, CheckChanged, LimitClosed and
	// LimitOpened; zero if no check is concerned.
	About Check
}

// Check names the object of a check.
type Check struct {
	APIVersion, Kind, Namespace, Name string
	// UID is empty for a check from a file: the cluster has no object of it.
	UID string
	// OnManagementAPI: the object is on a separate management API, where its kind alone does not say so.
	OnManagementAPI bool
}

// The types of event. Each is sent on transitions only. docs/alerts.md has a row for each.
const (
	Started      = "Started"      // a run began
	Stepped      = "Step"         // a run entered a step or an end
	Acting       = "Action"       // a run is about to act; the intent is saved
	Waited       = "Wait"         // a run has waited for something, which is over
	Failed       = "Failed"       // an action or a save failed; it is tried again
	Refused      = "Refused"      // a check, a limit or a gate forbids an action, for a new reason
	RefusalEnded = "RefusalEnded" // a check no longer asks for what was refused, and no run began
	CheckChanged = "CheckChanged" // a check has another state; Reason is empty when it is Active
	LimitClosed  = "LimitClosed"  // more targets of a check are not healthy than its limit allows
	LimitOpened  = "LimitOpened"  // the limit of a check allows remediation again
	LimitNear    = "LimitNear"    // one or few more targets that are not healthy will close the limit of a check
	ModeChanged  = "Mode"         // the mode of a cluster at the start, and each change: armed, paused, no longer configured
	Requested    = "Requested"    // fenced asks another remediator, gives up on its request, or deletes it
	Ordered      = "Order"        // a person changed something or, with a Reason, was refused to
	ViewChanged  = "View"         // the view of a cluster became good or bad
	OwnerChanged = "Owner"        // this instance took a cluster or gave it up
	Reloaded     = "Reload"       // a reload took changed files in or, with a Reason, was refused
	Internal     = "Internal"     // the daemon itself
)

const (
	ringSize = 2048
	maxText  = 4096 // bytes of a text: much of it was written by others
)

// Stream keeps the newest events and lets readers follow.
type Stream struct {
	id   string
	mu   sync.Mutex
	ring []Event // at most ringSize, oldest first
	seq  uint64
	more chan struct{} // closed and replaced at each event
	subs []func(Event)
}

// NewStream makes a stream; each subscriber is called in order with every
// event, from the goroutine that emitted it, and must not block.
func NewStream(subscribers ...func(Event)) *Stream {
	return &Stream{id: rand.Text(), more: make(chan struct{}), subs: subscribers}
}

// ID names this stream: another start of the daemon has another one, whose sequence numbers begin anew.
func (s *Stream) ID() string { return s.id }

// Emit adds an event.
func (s *Stream) Emit(e Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range []*string{&e.Message, &e.Why, &e.Inputs} {
		if len(*text) > maxText {
			*text = strings.ToValidUTF8((*text)[:maxText], "") + "..."
		}
	}
	s.seq++
	e.Seq, e.At = s.seq, time.Now().UTC()
	if len(s.ring) == ringSize {
		s.ring = append(s.ring[:0], s.ring[1:]...)
	}
	s.ring = append(s.ring, e)
	for _, f := range s.subs {
		f(e)
	}
	close(s.more)
	s.more = make(chan struct{})
}

// After gives the events kept with a higher sequence number, waiting for one
// when there is none; an error only when ctx ends.
func (s *Stream) After(ctx context.Context, seq uint64) ([]Event, error) {
	for {
		s.mu.Lock()
		var out []Event
		for _, e := range s.ring {
			if e.Seq > seq {
				out = append(out, e)
			}
		}
		more := s.more
		s.mu.Unlock()
		if len(out) > 0 {
			return out, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Follow gives the events kept with a higher sequence number, then each new one as it happens, until ctx is done.
func (s *Stream) Follow(ctx context.Context, seq uint64) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		for {
			batch, err := s.After(ctx, seq)
			if err != nil {
				return // ctx ended: the reader went away
			}
			for _, e := range batch {
				if seq = e.Seq; !yield(e) {
					return
				}
			}
		}
	}
}

// KubeEvent is a Kubernetes Event about one object: internal/report words it, and
// internal/k8swatch writes it.
type KubeEvent struct {
	// The object. One without a Namespace is of the whole cluster.
	APIVersion, Kind, Namespace, Name, UID string
	// OnManagementAPI: it is on a separate management API, where its kind alone does not say so.
	OnManagementAPI bool

	At      time.Time
	Warning bool
	// Reason is a CamelCase word, Message a sentence.
	Reason, Message string
	// Action is what fenced was doing, a CamelCase word, and Instance the daemon that tells it.
	Action, Instance string
}

// RunMark says on a Node or a Machine which run is open on it, as annotations.
type RunMark struct {
	// The object.
	APIVersion, Kind, Namespace, Name, UID string

	// Run is the ID of the run; if it is empty, the object carries no mark, or is to carry
	// none.
	Run string
	// Step is the step that the run was in when the mark was written, and Instance the
	// daemon that carries it out.
	Step, Instance string
}

// ModeIn begins the Inputs of a ModeChanged, before the mode. NoMode is the whole of a cluster that is not configured any more.
const (
	ModeIn = "mode="
	NoMode = ModeIn
)

// NotStarted begins the message of a Failed which says that a run was not started, although the audit log may have its Started.
const NotStarted = "not started: "

// PerhapsRecorded says whether a record may become durable although its writer has stopped
// waiting for it. Then the caller reports each time what was not done, or the log would say
// more than was done. // I24
func PerhapsRecorded(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// Told is what was told last about one thing, so that it is told once until it changes. The zero
// value of V stands for nothing to tell: no error, no reason.
type Told[V comparable] struct{ last V }

// News stores what is to be told now, and returns whether it is news.
func (t *Told[V]) News(now V) bool {
	var nothing V
	was := t.last
	t.last = now
	return now != was && now != nothing
}

// ToldOf is Told for each of several things.
type ToldOf[K, V comparable] struct{ last map[K]V }

// News is Told.News about one of them.
func (t *ToldOf[K, V]) News(about K, now V) bool {
	told := Told[V]{t.last[about]}
	news := told.News(now)
	var nothing V
	switch {
	case now == nothing:
		delete(t.last, about)
	case t.last == nil:
		t.last = map[K]V{about: now}
	default:
		t.last[about] = now
	}
	return news
}
