package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/fake"
)

// The limit of checks by which others are asked does not count those from fenced's own template: no
// request is made for them, however many there are.
func TestManyChecksWithTheOwnTemplate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change := escalating(w, otherTemplate)
		_, events, stop := start(t, w, store, func(o *engine.Options) {
			change(o)
			for i := range 60 {
				p := nodePolicy()
				p.Name, p.Selector, p.Strategy, p.Template = fmt.Sprint("a", i), labels.Nothing(), policy.CreateRequests, &powerTemplate
				o.Clusters[0].FileChecks = append(o.Clusters[0].FileChecks, p)
			}
		})
		awaitAsked(t, w, "the remediator of the last check is asked", func() bool { return len(others(w)) == 1 })
		time.Sleep(time.Minute)
		assert.Empty(t, eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.CheckChanged && ev.Reason == reason.CheckDisabled }))
		stop()
	})
}

// An object that vanishes again and again is not made without end: the host is quarantined after as
// many as it may have runs in a day. // I15
func TestObjectThatVanishesAgainAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change := handingOver(w)
		e, _, stop := start(t, w, store, func(o *engine.Options) { change(o); o.Guards.MaxFencesPerDay = 3 })
		made := 0
		for range 3600 {
			time.Sleep(time.Second)
			for _, q := range others(w) {
				made++
				w.Do(func(s *fake.State) { s.DropOther(&q) })
			}
		}
		assert.Equal(t, 3, made)
		assert.Len(t, askedRecord(t, store).Objects, 3)
		gate(t, e, reason.Quarantined)
		assert.Empty(t, w.Commands())
		stop()
	})
}
