package admit

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/run"
)

// slowKube answers a look after a second, and counts those at the same time.
type slowKube struct {
	run.Kube
	inside, most atomic.Int64
}

func (k *slowKube) Look(context.Context, remediate.Run, [][]byte) (f run.Fresh) {
	k.most.Store(max(k.most.Load(), k.inside.Add(1)))
	time.Sleep(time.Second)
	k.inside.Add(-1)
	f.Observation.Contested = remediate.No
	return f
}

// Of many candidates the first need not wait for the last, and the order of a person waits for
// none of them.
func TestCandidatesLookOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := &slowKube{}
		ps := newProbes(Options{Kube: kube}, func() {})
		var g sync.WaitGroup
		var mu sync.Mutex
		byTime := map[time.Duration]int{}
		probe := func(draft remediate.Run) {
			began := time.Now()
			g.Go(func() {
				p := ps.probe(t.Context(), draft, nil)
				assert.Empty(t, p.contested)
				mu.Lock()
				defer mu.Unlock()
				byTime[p.at.Sub(began)]++
			})
		}
		for range 3 * probesAtOnce {
			probe(remediate.Run{Strategy: remediate.DeleteMachine})
		}
		synctest.Wait()
		assert.EqualValues(t, probesAtOnce, kube.most.Load())
		probe(remediate.Run{Strategy: remediate.DeleteMachine, Manual: &remediate.Order{Actor: "ada"}})
		g.Wait()
		assert.Equal(t, map[time.Duration]int{time.Second: probesAtOnce + 1, 2 * time.Second: probesAtOnce, 3 * time.Second: probesAtOnce}, byTime)
	})
}

// A candidate that has looked at nothing passes no gate.
func TestProbeThatEndsBeforeItsTurnPassesNoGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newProbes(Options{Kube: &slowKube{}}, func() {})
		for range probesAtOnce {
			ps.looks <- struct{}{}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := ps.probe(ctx, remediate.Run{Strategy: remediate.DeleteMachine}, nil)
		assert.Contains(t, p.contested, "cannot read whether another controller acts")
		assert.Zero(t, p.look)
	})
}
