package admit

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/policy"
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

// Of many candidates the first need not wait for the last, and each look that ends lets one more
// begin, up to a limit. The order of a person waits for none of them. When nobody looks any more,
// the next ones begin as few.
func TestCandidatesLookFewAtFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := &slowKube{}
		ps := newProbes(Options{Kube: kube}, func() {})
		for _, round := range []string{"first", "second"} {
			kube.most.Store(0)
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
			for range 7*looksAtFirst + 2*looksAtMost {
				probe(remediate.Run{Strategy: remediate.DeleteMachine})
			}
			synctest.Wait()
			assert.EqualValues(t, looksAtFirst, kube.most.Load(), round)
			probe(remediate.Run{Strategy: remediate.DeleteMachine, Manual: &remediate.Order{Actor: "ada"}})
			g.Wait()
			assert.Equal(t, map[time.Duration]int{time.Second: looksAtFirst + 1, 2 * time.Second: 2 * looksAtFirst, 3 * time.Second: 4 * looksAtFirst,
				4 * time.Second: looksAtMost, 5 * time.Second: looksAtMost}, byTime, round)
			assert.EqualValues(t, looksAtMost, kube.most.Load(), round)
		}
	})
}

// A candidate that has looked at nothing passes no gate, and leaves its place to others.
func TestProbeThatEndsBeforeItsTurnPassesNoGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ps := newProbes(Options{Kube: &slowKube{}}, func() {})
		for range looksAtFirst {
			require.NoError(t, ps.looks.enter(t.Context()))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p := ps.probe(ctx, remediate.Run{Strategy: remediate.DeleteMachine}, nil)
		assert.Contains(t, p.contested, "cannot read whether another controller acts")
		assert.Zero(t, p.look)
		ps.looks.leave(1)
		assert.Empty(t, ps.probe(t.Context(), remediate.Run{Strategy: remediate.DeleteMachine}, nil).contested)
	})
}

// If only the fresh objects show that the host is a control-plane host, its run gets the
// isolation for such hosts. // I12
func TestFreshControlPlaneRoleSetsTheIsolation(t *testing.T) {
	d := cluster.Drafter{Isolation: remediate.IsolateDelete}
	p := &probe{draft: remediate.Run{Isolation: remediate.IsolateDelete}, controlPlane: true}
	r := p.complete(d, nil)
	assert.True(t, r.ControlPlane)
	assert.Equal(t, remediate.IsolateTaint, r.Isolation)
	p.draft.Target.MachineAPI = policy.OpenShiftMachineAPI
	assert.Equal(t, remediate.IsolateDelete, p.complete(d, nil).Isolation)
}
