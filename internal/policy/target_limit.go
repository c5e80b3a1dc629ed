package policy

import (
	"cmp"
	"fmt"
)

// maxTargets limits the targets of all checks of one author together, unless
// Rules.MaxTargets overrides it: 50 checks that each cover 10,000 hosts.
// BenchmarkChecksJudge measures the memory that they take. Without a limit,
// whoever may write checks could exhaust the daemon's memory with checks that
// each select everything.
const maxTargets = 500_000

// exceedsTargetLimit reports whether this number of targets is more than fenced
// evaluates of one author.
func (r *Rules) exceedsTargetLimit(targets int) bool {
	return targets > cmp.Or(r.MaxTargets, maxTargets)
}

// author returns whose target limit a check counts against: its namespace's, since whoever
// may write there decides about no other; "" are the checks without a namespace. Files are the
// administrator's, and have no limit.
func author(c *Check) (namespace string, limited bool) {
	return c.Namespace, c.Source == "" || c.Source == "cluster"
}

// targetLimitMessage says why a check is not evaluated.
func (r *Rules) targetLimitMessage(c *Check) string {
	whose := "of namespace " + c.Namespace
	if c.Namespace == "" {
		whose = "without a namespace"
	}
	return fmt.Sprintf("the checks %s select more than %d targets together, so none of them is evaluated: "+
		"remove checks, or narrow selectors that overlap", whose, cmp.Or(r.MaxTargets, maxTargets))
}

// crowds are the namespaces whose checks have too many targets together.
type crowds map[string]bool

func (w crowds) includes(c *Check) bool {
	namespace, limited := author(c)
	return limited && w[namespace]
}

// applyTargetLimit sets overTargetLimit from the number of targets of the checks.
func (w *tables) applyTargetLimit(checks []Check) {
	if !w.rules.exceedsTargetLimit(len(checks) * max(len(w.nodes)+len(w.runs), len(w.machines))) {
		return // not exceeded even if every check selected everything
	}
	targets := map[string]int{}
	for i := range checks {
		if namespace, limited := author(&checks[i]); limited {
			targets[namespace] += w.size(&checks[i])
			w.overTargetLimit[namespace] = w.rules.exceedsTargetLimit(targets[namespace])
		}
	}
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

// enforceTargetLimit stops the evaluation of the checks of an author that has too many
// targets, and resumes it when the number is within the limit again.
func (l *Ledger) enforceTargetLimit() {
	for namespace := range l.resized {
		crowded := l.w.rules.exceedsTargetLimit(l.sizes[namespace])
		if crowded == l.w.overTargetLimit[namespace] {
			continue
		}
		l.stale = true
		l.version++
		if crowded {
			l.w.overTargetLimit[namespace] = true
		} else {
			delete(l.w.overTargetLimit, namespace)
		}
		for _, c := range l.checks {
			if of, limited := author(c.check); limited && of == namespace {
				l.reselect(c)
			}
		}
	}
	clear(l.resized)
}

// reselect finds the targets of a check again. Those of an author with too many are
// counted and not kept.
func (l *Ledger) reselect(c *checkEntry) {
	for len(c.targets) > 0 {
		l.remove(c.targets[len(c.targets)-1])
	}
	l.resize(c, -c.size)
	l.addTargets(c)
}

// resize adds to the number of targets of the check.
func (l *Ledger) resize(c *checkEntry, by int) {
	c.size += by
	if namespace, limited := author(c.check); limited && by != 0 {
		l.sizes[namespace] += by
		l.resized[namespace] = true
	}
}
