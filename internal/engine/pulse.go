package engine

import (
	"maps"
	"sync"
)

// pulse joins the beats of the deciding loops, one for each cluster: it passes one on when each loop has beaten since the
// one before. So a loop that hangs is noticed, whatever the loops of other clusters do.
type pulse struct {
	pass func() // resets the watchdogs: decisions are being made in every cluster

	mu   sync.Mutex
	due  map[string]bool // the clusters whose loops have not beaten since
	each map[string]bool
}

func newPulse() *pulse {
	return &pulse{pass: func() {}, due: map[string]bool{}, each: map[string]bool{}}
}

// add expects the beats of a cluster from now on.
func (p *pulse) add(cluster string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.each[cluster], p.due[cluster] = true, true
}

// remove expects them no more.
func (p *pulse) remove(cluster string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.each, cluster)
	delete(p.due, cluster)
}

// beat is called by the deciding loop of a cluster.
func (p *pulse) beat(cluster string) {
	if p.completes(cluster) {
		p.pass()
	}
}

// completes says whether this was the last beat that was due.
func (p *pulse) completes(cluster string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.due, cluster)
	if len(p.due) > 0 {
		return false
	}
	p.due = maps.Clone(p.each)
	return true
}
