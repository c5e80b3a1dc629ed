package admit

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

// checkStates remembers what was told of each check: its state, and whether its limit allows
// remediation. Only the deciding goroutine uses it.
type checkStates struct {
	byID   map[string]*checkState
	crowds map[string]*crowdState
	pace   *rate.Limiter // of all checks
}

// checkState is what was told of one check. A new one counts as Active with an open limit, so
// that what is otherwise is told.
type checkState struct {
	seen    bool // in the present round
	id      policy.CheckID
	uid     string
	state   policy.State
	allowed bool
	pace    *rate.Limiter
}

func newCheckStates() checkStates {
	return checkStates{byID: map[string]*checkState{}, crowds: map[string]*crowdState{}, pace: newClusterPace()}
}

// tell emits what has changed of the checks. It returns when to call it again; zero: after a change.
func (cs *checkStates) tell(found []policy.CheckReport, emit func(event.Event), now time.Time) (due time.Time) {
	news, due := cs.changes(found, now)
	for _, ev := range news {
		emit(ev)
	}
	return due
}

// changes returns an event for each change of a check that may be told now, and when to ask
// again for the others; zero: there are none. A change that is taken back before is not told.
func (cs *checkStates) changes(found []policy.CheckReport, now time.Time) (news []event.Event, due time.Time) {
	for i := range found {
		r := &found[i]
		id := checkID(r.ID())
		k := cs.byID[id]
		if k == nil {
			k = &checkState{state: policy.StateActive, allowed: true, pace: newPace()}
			cs.byID[id] = k
		}
		k.seen, k.id, k.uid = true, r.ID(), r.UID
		for _, ev := range k.differences(r) {
			at := mayTell(k.pace, cs.pace, now)
			if !at.IsZero() {
				due = policy.Sooner(due, at)
				break
			}
			k.state = r.State
			if ev.Type != event.CheckChanged {
				k.allowed = r.Allowed
			}
			news = append(news, k.event(id, ev))
		}
	}
	return append(news, cs.gone()...), due
}

// gone returns an event for each check that is no longer there, and forgets it.
func (cs *checkStates) gone() (news []event.Event) {
	for id, k := range cs.byID {
		if !k.seen {
			news = append(news, k.event(id, event.Event{Type: event.CheckChanged, Reason: reason.NotCovered, Message: "is gone: it protects no target any more"}))
			delete(cs.byID, id)
		}
		k.seen = false
	}
	slices.SortFunc(news, func(a, b event.Event) int { return strings.Compare(a.Check, b.Check) })
	return news
}

// differences are the changes since what was told: the state before the limit. The limit of a
// check that is not active says nothing.
func (k *checkState) differences(r *policy.CheckReport) (news []event.Event) {
	if r.State != k.state {
		ev := event.Event{Type: event.CheckChanged, Message: "is " + string(r.State)}
		if r.State != policy.StateActive {
			ev.Reason, ev.Message = r.StateReason(), ev.Message+": "+cmp.Or(r.Message, "no reason is known")
		}
		news = append(news, ev)
	}
	if r.State != policy.StateActive || r.Allowed == k.allowed {
		return news
	}
	g := r.LimitGate()
	ev := event.Event{Type: event.LimitOpened, Message: "allows remediation again: " + g.Value + ", " + g.Threshold}
	if !r.Allowed {
		ev = event.Event{Type: event.LimitClosed, Reason: g.Reason, Message: "allows no remediation: " + g.Value + ", " + g.Threshold, Gates: []reason.Gate{g}}
	}
	return append(news, ev)
}

// event completes an event about the check.
func (k *checkState) event(id string, ev event.Event) event.Event {
	ev.Check, ev.About = id, aboutCheck(k.id, k.uid)
	ev.Message = "check " + strings.TrimPrefix(k.id.Namespace+"/"+k.id.Name, "/") + " " + ev.Message
	return ev
}

// aboutCheck names the object of a check; zero for no check.
func aboutCheck(id policy.CheckID, uid string) event.Check {
	return event.Check{APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name, UID: uid}
}
