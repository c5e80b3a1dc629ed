package engine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/admit"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/request"
)

// lateNodes is a watch whose Nodes arrive later than everything else, while it is late.
type lateNodes struct {
	admit.Watch
	mu   sync.Mutex
	late time.Time // since when; zero: not
	held []policy.Change
}

func (l *lateNodes) setLate(late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late = time.Time{}
	if late {
		l.late = time.Now()
	}
}

func (l *lateNodes) Changes() (list []policy.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := append(l.held, l.Watch.Changes()...)
	l.held = nil
	for _, c := range all {
		if c.ID.Kind == "Node" && !l.late.IsZero() {
			l.held = append(l.held, c)
		} else {
			list = append(list, c)
		}
	}
	return list
}

func (l *lateNodes) View() admit.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.Watch.View()
	if !l.late.IsZero() {
		v.Age = time.Since(l.late)
	}
	return v
}

// The watches of two kinds keep no order: a request may be seen while the view still shows the Node
// Ready. It is not told that its target has recovered, for then nobody would carry it out.
func TestRequestThatIsSeenBeforeItsNode(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		l := &lateNodes{}
		e, _, stop := start(t, w, store, func(o *engine.Options) {
			responding(w)(o)
			l.Watch = o.Clusters[0].Watch
			o.Clusters[0].Watch = l
		})
		time.Sleep(time.Minute)
		l.setLate(true)
		w.Hang()
		w.SetReady("Unknown")
		ask(w, nil)
		time.Sleep(30 * time.Second)
		_, told := asked(w)
		require.Empty(t, told.Phase, "nothing is known about the Node of that moment")
		l.setLate(false)
		w.SetReady("Unknown")
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		_, told = asked(w)
		assert.Equal(t, request.Succeeded, told.Phase)
		stop()
	})
}

// A request whose Node is Ready in a view that is newer than the request is told so.
func TestRequestOfARecoveredNodeIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		w.SetReady("True")
		e, _, stop := start(t, w, store, responding(w))
		time.Sleep(time.Minute)
		ask(w, nil)
		time.Sleep(10 * time.Second)
		_, told := asked(w)
		assert.Equal(t, request.Succeeded, told.Phase)
		assert.Empty(t, e.Runs("c"))
		stop()
	})
}
