package engine_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/state"
)

// recordingStarts lets the record of the first start take so long.
func recordingStarts(long time.Duration) (begun chan struct{}, record func(event.Event) error) {
	begun = make(chan struct{})
	var once sync.Once
	return begun, func(e event.Event) error {
		if e.Type == event.Started {
			once.Do(func() { close(begun); time.Sleep(long) })
		}
		return nil
	}
}

// A run that was decided in one leadership is not started in a later one, because others
// have acted since. So the cluster is released only after the start. // I19
func TestStartDoesNotOutliveItsLeadership(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		begun, record := recordingStarts(4900 * time.Millisecond)
		p := newPair(t, w, store, func(name string, o *engine.Options) {
			if name == "a" {
				o.Record = record
			}
		})
		p.give("a")
		<-begun
		p.take("a")
		p.give("b")
		for len(p.engine["b"].Runs("c")) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		p.take("b")
		p.give("a")
		time.Sleep(5 * time.Second)
		runs, err := state.LoadRuns(t.Context(), store)
		assert.NoError(t, err)
		assert.Len(t, runs, 1, "there is one run on the Node")
		time.Sleep(5 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, p.engine["a"]).Step)
		assert.Equal(t, 1, w.Isolations())
		p.end()
	})
}

// However long the start of a run takes, the deciding goroutine continues. // L2
func TestSlowStartDoesNotStopTheDecidingLoop(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, store *failingStore) {
		_, record := recordingStarts(time.Minute)
		p := &pulse{}
		e, _, stop := startBeating(t, w, store, func(o *engine.Options) { o.Record = record }, p.beat)
		time.Sleep(10 * time.Minute)
		assert.Equal(t, remediate.Done, only(t, e).Step)
		assert.Less(t, p.silence(), 3*time.Second, "the longest time without a beat")
		stop()
	})
}
