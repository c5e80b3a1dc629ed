package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fenced/fenced/internal/api"
	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
)

// Limits of what is kept for people. The audit log keeps everything.
const (
	notesOfOne  = 40   // of one Node or Machine
	noteTargets = 1000 // Nodes and Machines
	maxNote     = 500  // bytes of a message
	// recallBytes is how much of the audit log is read at the start.
	recallBytes = 4 << 20
)

// notes is what happened to each Node and Machine beside the steps of its runs, and the last
// error of each open run, as a subscriber of the engine's events. It is for timeline and status.
type notes struct {
	mu     sync.Mutex
	about  map[noteKey][]api.Note
	errors map[string]api.RunError // by open run
}

// noteKey is a Node, or the "namespace/name" of a Machine.
type noteKey struct{ cluster, name string }

func newNotes() *notes {
	return &notes{about: map[noteKey][]api.Note{}, errors: map[string]api.RunError{}}
}

// recalledNotes are those of the time before the start, as far as the audit log can be read.
func recalledNotes(path string, log *zap.Logger) *notes {
	n := newNotes()
	if err := n.recall(path); err != nil {
		log.Warn("timelines begin now: the end of the audit log cannot be read", zap.String("file", path), zap.Error(err))
	}
	return n
}

// recall reads what happened before the start from the end of the audit log.
func (n *notes) recall(path string) error {
	return audit.Tail(path, recallBytes, func(e audit.Entry) {
		n.observe(event.Event{
			At: e.At, Type: e.Type, Cluster: e.Cluster, Node: e.Node, Machine: e.Machine, Run: e.Run, Step: remediate.Step(e.Step),
			Action: remediate.Action(e.Action), Reason: reason.Code(e.Reason), Message: e.Message, Check: e.Check, Actor: e.Actor,
		})
	})
}

// observe takes in an event.
func (n *notes) observe(e event.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	message := bmc.Printable(e.Message, maxNote)
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
			n.errors[e.Run] = api.RunError{At: e.At, Reason: string(e.Reason), Message: message}
		}
	case event.Ordered, event.Refused, event.RefusalEnded, sweep.EventBMC:
	default:
		return
	}
	if k := (noteKey{e.Cluster, cmp.Or(e.Node, e.Machine)}); k.name != "" {
		n.add(k, api.Note{At: e.At, Type: e.Type, Run: e.Run, Check: e.Check, Actor: e.Actor, Reason: string(e.Reason), Message: message})
	}
}

// makeRoom drops an error if there are too many: of runs that ended at another instance. n.mu is
// held.
func (n *notes) makeRoom() {
	for run := range n.errors {
		if len(n.errors) < noteTargets {
			return
		}
		delete(n.errors, run)
	}
}

// add adds a note, or counts it if it repeats the last one. n.mu is held.
func (n *notes) add(k noteKey, now api.Note) {
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
func (n *notes) forgetOldest() {
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

// of lists the notes on some names of one cluster, or of all if cluster is empty, oldest first.
func (n *notes) of(cluster string, names ...string) (list []api.Note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, k := range slices.SortedFunc(maps.Keys(n.about), func(a, b noteKey) int { return strings.Compare(a.cluster, b.cluster) }) {
		if k.name != "" && slices.Contains(names, k.name) && (cluster == "" || k.cluster == "" || k.cluster == cluster) {
			list = append(list, n.about[k]...)
		}
	}
	slices.SortStableFunc(list, func(a, b api.Note) int { return a.At.Compare(b.At) })
	return list
}

// lastError is the newest failure of a run in its present step; nil if there was none.
func (n *notes) lastError(run string) *api.RunError {
	n.mu.Lock()
	defer n.mu.Unlock()
	if e, failed := n.errors[run]; failed {
		return &e
	}
	return nil
}
