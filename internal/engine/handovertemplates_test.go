package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/escalate"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/fake"
)

// slowTemplates counts who looks for templates. Those of one kind are not answered for.
type slowTemplates struct {
	escalate.Objects
	looks, dead *atomic.Int32
}

func (s slowTemplates) Missing(ctx context.Context, check *policy.Check, t policy.Template) (string, error) {
	s.looks.Add(1)
	if t.Kind != "DeadTemplate" {
		return s.Objects.Missing(ctx, check, t)
	}
	s.dead.Add(1)
	select {
	case <-time.After(5 * time.Second):
	case <-ctx.Done():
	}
	return "", errors.New("no answer")
}

// beside adds checks with templates for whose kind nobody answers.
func beside(o *engine.Options, n int, s slowTemplates) {
	askedBy(o, func(made escalate.Objects) escalate.Objects {
		s.Objects = made
		return s
	})
	for i := range n {
		p := nodePolicy()
		p.Name, p.Selector, p.Strategy = fmt.Sprint("a", i), labels.Nothing(), policy.CreateRequests
		p.Template = &policy.Template{APIVersion: "example.com/v1", Kind: "DeadTemplate", Namespace: "ns", Name: fmt.Sprint("t", i)}
		o.Clusters[0].FileChecks = append(o.Clusters[0].FileChecks, p)
	}
}

// A kind of template for which nobody answers delays no object of another kind: that of a target that
// has recovered goes in the next round. Such a kind costs one timeout in each look.
func TestDeadTemplateDelaysNothing(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change, looks, dead := escalating(w, otherTemplate), &atomic.Int32{}, &atomic.Int32{}
		_, _, stop := start(t, w, store, func(o *engine.Options) { change(o); beside(o, 20, slowTemplates{looks: looks, dead: dead}) })
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		answer(w, "True")
		time.Sleep(10 * time.Second)
		require.Len(t, others(w), 1)
		before := dead.Load()
		w.Recover()
		time.Sleep(3 * time.Second)
		assert.Empty(t, others(w))
		time.Sleep(time.Minute)
		assert.LessOrEqual(t, dead.Load()-before, int32(5), "one for each look, of which there is one in twenty seconds")
		stop()
	})
}

// That nobody carries out an object is known also while it cannot be read: its check stays Disabled.
func TestIgnoredObjectThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		e, events, stop := start(t, w, store, handingOver(w))
		awaitAsked(t, w, "it is asked", func() bool { return len(others(w)) == 1 })
		time.Sleep(escalate.IgnoredAfter + time.Minute)
		gate(t, e, reason.CheckDisabled)
		w.Do(func(s *fake.State) { s.OthersFail = errors.New("no answer") })
		time.Sleep(5 * time.Minute)
		gate(t, e, reason.CheckDisabled)
		w.Do(func(s *fake.State) { s.OthersFail = nil })
		time.Sleep(10 * time.Minute)
		assert.Len(t, eventsOf(t, events, func(ev event.Event) bool { return ev.Type == event.CheckChanged }), 1, "it was never Active again")
		answer(w, "True")
		time.Sleep(time.Minute)
		assert.False(t, hasGate(t, e, reason.CheckDisabled))
		stop()
	})
}

// A standby asks nothing about templates: it makes no request. When it leads, it asks.
func TestStandbyLooksForNoTemplate(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		change, looks := handingOver(w), map[string]*atomic.Int32{"a": {}, "b": {}}
		p := newPair(t, w, store, func(name string, o *engine.Options) {
			change(o)
			beside(o, 0, slowTemplates{looks: looks[name], dead: &atomic.Int32{}})
		})
		p.give("a")
		time.Sleep(10 * time.Minute)
		assert.Greater(t, looks["a"].Load(), int32(30))
		assert.Zero(t, looks["b"].Load())
		p.stop["a"]()
		p.give("b")
		time.Sleep(time.Minute)
		assert.NotZero(t, looks["b"].Load())
		p.stop["b"]()
	})
}
