package policy

import (
	"cmp"
	"fmt"
)

// maxTargets is how many targets all checks of a cluster may have together, unless
// the Rules say otherwise: 50 checks that each cover 10,000 hosts. What they take in
// memory, BenchmarkChecksJudge shows. Checks that each select everything would use up
// any; whoever may write checks must not be able to end the daemon.
const maxTargets = 500_000

func (r *Rules) mostTargets() int { return cmp.Or(r.MaxTargets, maxTargets) }

// tooMany says whether so many targets are more than are judged.
func (r *Rules) tooMany(targets int) bool { return targets > r.mostTargets() }

// crowdedMessage says why no check of a crowded cluster is evaluated.
func (r *Rules) crowdedMessage() string {
	return fmt.Sprintf("the checks of this cluster select more than %d targets together, so none of them is evaluated: "+
		"remove checks, or narrow selectors that overlap", r.mostTargets())
}

// crowd notes whether the checks have more targets together than are judged.
func (w *tables) crowd(checks []Check) {
	if !w.rules.tooMany(len(checks) * max(len(w.nodes), len(w.machines))) {
		return // not even if each selected everything
	}
	targets := 0
	for i := range checks {
		targets += w.size(&checks[i])
	}
	w.crowded = w.rules.tooMany(targets)
}

// size is how many targets a check selects.
func (w *tables) size(c *Check) (n int) {
	if c.SelectsNodes {
		for _, node := range w.nodes {
			if c.coversNode(node) {
				n++
			}
		}
		return n
	}
	for _, m := range w.machines {
		if c.covers(m) {
			n++
		}
	}
	return n
}

// enforceTargetLimit stops the judging of all checks when they have too many targets, and goes on
// with it when they have few enough again.
func (l *Ledger) enforceTargetLimit() {
	crowded := l.w.rules.tooMany(l.size)
	if crowded == l.w.crowded {
		return
	}
	l.w.crowded, l.stale = crowded, true
	l.version++
	if crowded {
		l.empty()
		return
	}
	l.size = 0
	for _, c := range l.checks {
		c.size = 0
		l.fill(c)
	}
}

// empty forgets all targets, but not how many there are.
func (l *Ledger) empty() {
	l.onMachine, l.onNode = map[string][]*targetEntry{}, map[string][]*targetEntry{}
	l.acting, l.dirty = map[*targetEntry]bool{}, nil
	for _, c := range l.checks {
		c.targets, c.clocks, c.n, c.waits, c.recount = nil, nil, count{}, nil, true
	}
}
