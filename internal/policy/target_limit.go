package policy

import (
	"cmp"
	"fmt"
)

// maxTargets limits the targets of all checks of a cluster together, unless
// Rules.MaxTargets overrides it: 50 checks that each cover 10,000 hosts.
// BenchmarkChecksJudge measures the memory that they take. Without a limit,
// whoever may write checks could exhaust the daemon's memory with checks that
// each select everything.
const maxTargets = 500_000

func (r *Rules) targetLimit() int { return cmp.Or(r.MaxTargets, maxTargets) }

// exceedsTargetLimit reports whether this number of targets is more than fenced
// evaluates.
func (r *Rules) exceedsTargetLimit(targets int) bool { return targets > r.targetLimit() }

// targetLimitMessage says why no check of the cluster is evaluated.
func (r *Rules) targetLimitMessage() string {
	return fmt.Sprintf("the checks of this cluster select more than %d targets together, so none of them is evaluated: "+
		"remove checks, or narrow selectors that overlap", r.targetLimit())
}

// applyTargetLimit sets overTargetLimit from the number of targets of the checks.
func (w *tables) applyTargetLimit(checks []Check) {
	if !w.rules.exceedsTargetLimit(len(checks) * max(len(w.nodes)+len(w.runs), len(w.machines))) {
		return // not exceeded even if every check selected everything
	}
	targets := 0
	for i := range checks {
		targets += w.size(&checks[i])
	}
	w.overTargetLimit = w.rules.exceedsTargetLimit(targets)
}

// size counts the targets that a check selects.
func (w *tables) size(c *Check) (n int) {
	if c.SelectsNodes {
		for node := range w.targetNodes().all() {
			if w.targetNodes().covers(c, node) {
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

// enforceTargetLimit stops the evaluation of all checks when they have too many
// targets, and resumes it when the number is within the limit again.
func (l *Ledger) enforceTargetLimit() {
	crowded := l.w.rules.exceedsTargetLimit(l.size)
	if crowded == l.w.overTargetLimit {
		return
	}
	l.w.overTargetLimit, l.stale = crowded, true
	l.version++
	if crowded {
		l.dropTargets()
		return
	}
	l.size = 0
	for _, c := range l.checks {
		c.size = 0
		l.addTargets(c)
	}
}

// dropTargets removes all targets but keeps their counts.
func (l *Ledger) dropTargets() {
	l.onMachine, l.onNode = map[string][]*targetEntry{}, map[string][]*targetEntry{}
	l.acting, l.dirty = map[*targetEntry]bool{}, nil
	for _, c := range l.checks {
		c.targets, c.clocks, c.n, c.waits, c.recount = nil, nil, count{}, nil, true
	}
}
