package policy

import (
	"cmp"
	"fmt"
	"time"
)

// They limit the targets of all checks of one author together, unless Rules.MaxTargets
// overrides both: 20 checks of one namespace that each cover 5,000 hosts, and 50 that each cover
// 10,000 without a namespace, or in one that the administrator named. BenchmarkChecksJudge measures the memory that they take.
// Without a limit, whoever may write checks could exhaust the daemon's memory with checks that
// each select everything. It is lower for a namespace, where Machines may be made up, too: then
// each target can be one to remediate, which takes most.
const (
	maxTargets            = 500_000
	maxTargetsOfNamespace = 100_000
)

// TargetLimitPause is how long the checks of an author who had too many targets wait once they are within
// the limit. To evaluate so many targets again takes long, and one write may be enough to
// exceed the limit or to keep it: whoever alternates them would stop everybody's checks. // I18
const TargetLimitPause = time.Minute

// targetLimit is how many targets fenced evaluates of one author.
func (r *Rules) targetLimit(author space) int {
	if author.namespace == "" || r.trustsSpace(author) {
		return cmp.Or(r.MaxTargets, maxTargets)
	}
	return cmp.Or(r.MaxTargets, maxTargetsOfNamespace)
}

// authorOf returns whose limits a check counts against: its namespace's, since whoever
// may write there decides about no other; that without a name is of the checks without a namespace. Files are the
// administrator's, and have no limit.
func (r *Rules) authorOf(c *Check) (author space, limited bool) {
	return r.spaceOf(group(c.APIVersion), c.Namespace), c.Source == "" || c.Source == "cluster"
}

// targetLimitMessage says why a check is not evaluated.
func (r *Rules) targetLimitMessage(c *Check) string {
	author, _ := r.authorOf(c)
	whose := "of " + author.text()
	if c.Namespace == "" {
		whose = "without a namespace"
	}
	return fmt.Sprintf("the checks %s select more than %d targets together, so none of them is evaluated: "+
		"remove checks, or narrow selectors that overlap", whose, r.targetLimit(author))
}

// crowds are the namespaces whose checks have too many targets together.
type crowds map[space]bool

func (w crowds) includes(rules *Rules, c *Check) bool {
	author, limited := rules.authorOf(c)
	return limited && w[author]
}

// applyTargetLimit sets overTargetLimit from the number of targets of the checks.
func (w *tables) applyTargetLimit(checks []Check) {
	if len(checks)*max(len(w.nodes)+len(w.runs), len(w.machines)) <= cmp.Or(w.rules.MaxTargets, min(maxTargets, maxTargetsOfNamespace)) {
		return // not exceeded even if every check selected everything
	}
	targets := map[space]int{}
	for i := range checks {
		if author, limited := w.rules.authorOf(&checks[i]); limited {
			targets[author] += w.size(&checks[i])
			w.overTargetLimit[author] = targets[author] > w.rules.targetLimit(author)
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
// targets, and notes who is within the limit again.
func (l *Ledger) enforceTargetLimit() {
	for author := range l.resized {
		switch over := l.w.overTargetLimit[author]; {
		case l.sizes[author] > l.w.rules.targetLimit(author):
			delete(l.resumes, author)
			if !over {
				l.w.overTargetLimit[author], l.stale = true, true
				l.dropTargets(author)
			}
		case over && l.resumes[author].IsZero():
			l.resumes[author] = l.now.Add(l.w.rules.TargetLimitPause)
		}
	}
	clear(l.resized)
}

// resumeWithinLimit evaluates again the checks of the authors who have been within the limit for as long
// as they must. A clock that was set back does not make that longer.
func (l *Ledger) resumeWithinLimit(now time.Time) {
	for author, at := range l.resumes {
		if wait := at.Sub(now); wait > 0 && wait <= l.w.rules.TargetLimitPause {
			continue
		}
		delete(l.resumes, author)
		delete(l.w.overTargetLimit, author)
		l.stale = true
		for _, c := range l.checksOf(author) {
			l.resize(c, -c.size)
			l.addTargets(c)
		}
	}
	clear(l.resized) // every sum is as before
}

// checksOf lists the checks that count against the target limit of an author.
func (l *Ledger) checksOf(author space) (list []*checkEntry) {
	for _, c := range l.checks {
		if of, limited := l.w.rules.authorOf(c.check); limited && of == author {
			list = append(list, c)
		}
	}
	return list
}

// dropTargets removes all targets of an author's checks, but keeps their number. There are as
// many as the limit allows, so each list is gone through once, not once for each target.
func (l *Ledger) dropTargets(author space) {
	machines, nodes := map[string]bool{}, map[string]bool{}
	for _, c := range l.checksOf(author) {
		for _, e := range c.targets {
			e.gone, nodes[e.node] = true, true
			if e.machine != nil {
				machines[e.machine.Name] = true
			}
			delete(l.acting, e)
		}
		c.targets, c.clocks, c.n, c.waits, c.recount = nil, nil, count{}, nil, true
	}
	dropGone(l.onMachine, machines)
	dropGone(l.onNode, nodes)
	l.version++
}

// dropGone removes the targets that are gone from the lists of these names. The lists are copied,
// because a caller may still hold one.
func dropGone(index map[string][]*targetEntry, names map[string]bool) {
	for name := range names {
		var kept []*targetEntry
		for _, e := range index[name] {
			if !e.gone {
				kept = append(kept, e)
			}
		}
		if index[name] = kept; kept == nil {
			delete(index, name)
		}
	}
}

// resize adds to the number of targets of the check.
func (l *Ledger) resize(c *checkEntry, by int) {
	c.size += by
	if author, limited := l.w.rules.authorOf(c.check); limited && by != 0 {
		l.sizes[author] += by
		l.resized[author] = true
	}
}
