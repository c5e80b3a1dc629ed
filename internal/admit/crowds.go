package admit

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
)

// crowdState is what was told of one namespace: that it has more checks than fenced evaluates.
type crowdState struct {
	told bool
	pace *rate.Limiter
}

// tellCrowds says once of each namespace that it has more checks than fenced evaluates, and once that it has
// no longer. It returns when to call it again; zero: after a change.
func (cs *checkStates) tellCrowds(found []policy.Crowd, emit func(event.Event), now time.Time) (due time.Time) {
	crowded := map[string]bool{}
	for _, c := range found {
		crowded[c.Namespace] = true
		k := cs.crowds[c.Namespace]
		if k == nil {
			k = &crowdState{pace: newPace()}
			cs.crowds[c.Namespace] = k
		}
		due = policy.Sooner(due, k.tell(true, cs.pace, emit, event.Event{Type: event.CheckChanged, Reason: reason.CheckLimit, Message: c.Namespace + ": " + c.Message}, now))
	}
	for namespace, k := range cs.crowds {
		if !crowded[namespace] {
			due = policy.Sooner(due, k.tell(false, cs.pace, emit, event.Event{Type: event.CheckChanged, Message: namespace + ": all its checks are evaluated again"}, now))
		}
	}
	return due
}

// tell emits an event if the namespace is otherwise than was told. It returns when to ask again.
func (k *crowdState) tell(is bool, all *rate.Limiter, emit func(event.Event), ev event.Event, now time.Time) (due time.Time) {
	if k.told == is {
		return time.Time{}
	}
	if due = mayTell(k.pace, all, now); due.IsZero() {
		k.told = is
		emit(ev)
	}
	return due
}

// crowds lists the namespaces of a cluster with more checks than are evaluated.
func crowds(b *Book) []policy.Crowd {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ledger.Crowds()
}
