package engine_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// loses has the store give no answer to the next record.
func (s *muteStore) loses() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = 1
}

// A record that was stored without an answer is taken back: no object was made for it. Then the target
// is tried again, and no second record is left behind. // I19, L4
func TestFirstRemediatorAfterALostAnswerOfTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		mute := &muteStore{Store: store, kind: state.KindMeta}
		change := escalating(w, otherTemplate, thirdTemplate)
		w.setContested(remediate.Yes)
		e, _, stop := start(t, w, mute, change)
		time.Sleep(2 * time.Minute)
		mute.loses()
		w.setContested(remediate.No)
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		assert.Equal(t, otherTemplate.Name, others(w)[0].TemplateName, "it is the first of the escalation")
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{askedRecord(t, store).ID}, slotsOf(t, store))
		refusesToFence(t, e)
		stop()
	})
}

// That the answer was lost with which a request is known to be gone changes nothing either: the next
// remediator follows, although nothing else happens in the cluster. // L4
func TestNextRemediatorAfterALostAnswerAboutTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		mute := &muteStore{Store: store, kind: state.KindMeta}
		_, _, stop := start(t, w, mute, escalating(w, otherTemplate, thirdTemplate))
		awaitAsked(t, w, "the first is asked", func() bool { return len(others(w)) == 1 })
		awaitAsked(t, w, "its request goes", func() bool { return len(others(w)) == 0 })
		mute.loses()
		awaitAsked(t, w, "the second is asked", func() bool { return len(others(w)) == 1 })
		assert.Equal(t, "Replace", others(w)[0].Kind)
		stop()
	})
}

// The same for the next step of an escalation, whose record is stored already.
func TestNextRemediatorAfterALostAnswerOfTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		mute := &muteStore{Store: store, kind: state.KindMeta}
		e, _, stop := start(t, w, mute, escalating(w, otherTemplate, thirdTemplate))
		awaitAsked(t, w, "the first is asked", func() bool { return len(others(w)) == 1 })
		w.setContested(remediate.Yes)
		awaitAsked(t, w, "its request goes", func() bool { return len(others(w)) == 0 })
		time.Sleep(2 * time.Minute) // until it is known to be gone
		mute.loses()
		w.setContested(remediate.No)
		awaitAsked(t, w, "the second is asked", func() bool { return len(others(w)) == 1 })
		assert.Equal(t, "Replace", others(w)[0].Kind)
		assert.Len(t, askedRecord(t, store).Objects, 2)
		refusesToFence(t, e)
		stop()
	})
}
