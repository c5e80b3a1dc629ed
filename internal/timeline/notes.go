package timeline

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/wire"
)

// Limits of what is kept for people. The audit log keeps everything.
const (
	notesOfOne  = 40   // of one Node or Machine
	noteTargets = 1000 // Nodes and Machines
	maxNote     = 500  // bytes of a message
	// recallBytes is how much of the audit log is read at the start.
	recallBytes = 4 << 20
)

// Notes is what happened to each Node and Machine beside the steps of its runs, and the last
// error of each open run. It is for timeline and status. Create it with New.
type Notes struct {
	mu     sync.Mutex
	about  map[noteKey][]wire.Note
	errors map[string]wire.RunError // by open run
	deeds  map[string][]deed        // by run
}

// noteKey is a Node, or the "namespace/name" of a Machine.
type noteKey struct{ cluster, name string }

// New returns Notes about nothing yet.
func New() *Notes {
	return &Notes{about: map[noteKey][]wire.Note{}, errors: map[string]wire.RunError{}, deeds: map[string][]deed{}}
}

// Recall reads what happened before the start of the daemon from the end of the audit log.
func (n *Notes) Recall(path string) error {
	return audit.Tail(path, recallBytes, func(e audit.Entry) {
		n.Observe(event.Event{
			At: e.At, Type: e.Type, Cluster: e.Cluster, Node: e.Node, Machine: e.Machine, Run: e.Run, Step: remediate.Step(e.Step),
			Action: remediate.Action(e.Action), Reason: reason.Code(e.Reason), Message: e.Message, Check: e.Check, Actor: e.Actor,
		})
	})
}

// Observe takes in an event. It is a subscriber of the stream of events, and never waits.
func (n *Notes) Observe(e event.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	message := bmc.Printable(e.Message, maxNote)
	if e.Run != "" {
		n.addDeed(e, message)
	}
	switch e.Type {
	case event.Stepped: // a run that stopped keeps the error for which it did
		if !e.Step.Idle() {
			delete(n.errors, e.Run)
		}
		return
	case event.Failed:
		if e.Run != "" && e.Action != "" {
			message = string(e.Action) + ": " + message
		}
		if e.Run != "" {
			n.makeRoom()
			n.errors[e.Run] = wire.RunError{At: e.At, Reason: string(e.Reason), Message: message}
		}
	case event.Ordered, event.Refused, event.RefusalEnded, sweep.EventBMC:
	default:
		return
	}
	if k := (noteKey{e.Cluster, cmp.Or(e.Node, e.Machine)}); k.name != "" {
		n.add(k, wire.Note{At: e.At, Type: e.Type, Run: e.Run, Check: e.Check, Actor: e.Actor, Reason: string(e.Reason), Message: message})
	}
}

// makeRoom drops an error if there are too many: of runs that ended at another instance. n.mu is
// held.
func (n *Notes) makeRoom() {
	for run := range n.errors {
		if len(n.errors) < noteTargets {
			return
		}
		delete(n.errors, run)
	}
}

// add adds a note, or counts it if it repeats the last one. n.mu is held.
func (n *Notes) add(k noteKey, now wire.Note) {
	list := n.about[k]
	if i := len(list) - 1; i >= 0 {
		last := &list[i]
		if last.Type == now.Type && last.Run == now.Run && last.Check == now.Check && last.Reason == now.Reason && last.Message == now.Message {
			last.Count, last.Last = max(1, last.Count)+1, now.At
			return
		}
	}
	if len(list) == notesOfOne {
		list = slices.Delete(list, 0, 1)
	}
	n.about[k] = append(list, now)
	if len(n.about) > noteTargets {
		n.forgetOldest()
	}
}

// forgetOldest drops the target about which nothing was noted for the longest time. n.mu is held.
func (n *Notes) forgetOldest() {
	var oldest noteKey
	var at time.Time
	for k, list := range n.about {
		last := list[len(list)-1]
		if newest := cmp.Or(last.Last, last.At); at.IsZero() || newest.Before(at) {
			oldest, at = k, newest
		}
	}
	delete(n.about, oldest)
}

// Of lists the notes on some names of one cluster, or of all if cluster is empty, oldest first.
func (n *Notes) Of(cluster string, names ...string) (list []wire.Note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(n.about), func(a, b noteKey) int { return strings.Compare(a.cluster, b.cluster) }) {
		if k.name != "" && slices.Contains(names, k.name) && (cluster == "" || k.cluster == "" || k.cluster == cluster) {
			list = append(list, n.about[k]...)
		}
	}
	slices.SortStableFunc(list, func(a, b wire.Note) int { return a.At.Compare(b.At) })
	return list
}

// LastError is the newest failure of a run in its present step; nil if there was none.
func (n *Notes) LastError(run string) *wire.RunError {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e, failed := n.errors[run]; failed {
		return &e
	}
	return nil
}

// During reports whether a note is about one of the runs, or about nothing else while it was open.
func During(n wire.Note, runs []wire.RunRecord) bool {
	return slices.ContainsFunc(runs, func(r wire.RunRecord) bool {
		if n.Run != "" {
			return n.Run == r.ID
		}
		return !n.At.Before(r.Started) && (r.Ended.IsZero() || !n.At.After(r.Ended))
	})
}
