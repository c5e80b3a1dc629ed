package policy

import (
	"container/heap"
	"maps"
	"reflect"
	"slices"
	"time"
)

// checkEntry is a check with its targets.
type checkEntry struct {
	check   *Check
	context CheckContext
	st      setting
	targets []*targetEntry
	// size is how many targets it selects, including those over the target limit.
	size int
	// n holds the counts of the targets, without their waits.
	n      count
	clocks clockHeap
	// waits counts the targets by the seconds that they wait, starting at each
	// evaluation.
	waits map[int]int
	// due is when the passage of time alone changes the check as a whole. recount
	// means that it must be computed again.
	due     time.Time
	recount bool
	// fresh: nothing has been computed yet.
	fresh bool
}

// targetEntry is one target of one check: a Machine, or a Node. It is kept small,
// because a large cluster has one for each target of each check.
type targetEntry struct {
	check   *checkEntry
	machine *Machine // nil: the target is a Node
	node    string   // its Node; empty while a Machine has none
	// report is the result; nil for a target that is healthy and nothing else, and
	// for one that was not evaluated.
	report *TargetReport
	// at is the index in the check's targets, clock the index in its heap.
	at, clock int32
	evaluated bool
	dirty     bool
	gone      bool
}

const noClock = -1

// plain is the result of every target that is healthy and nothing else.
var plain = TargetReport{Verdict: Healthy, Action: None}

// found returns the result of an evaluated target for counting.
func (e *targetEntry) found() *TargetReport {
	if e.report == nil {
		return &plain
	}
	return e.report
}

// subject is the target's name, the same in every check.
func (e *targetEntry) subject() string {
	if e.machine == nil {
		return e.node
	}
	return subjectName(e.node, e.machine.Key())
}

func (l *Ledger) subjectOf(e *targetEntry) Subject {
	if e.machine != nil {
		return l.w.machineSubject(e.machine)
	}
	return l.w.nodeSubject(l.w.targetNodes().get(e.node))
}

// touch marks a target for evaluation.
func (l *Ledger) touch(e *targetEntry) {
	if !e.dirty {
		e.dirty = true
		l.dirty = append(l.dirty, e)
	}
}

// touchNode marks the targets of a Node's name.
func (l *Ledger) touchNode(name string) {
	for _, e := range l.onNode[name] {
		l.touch(e)
	}
}

// touchMachine marks the targets that are Machines of this name.
func (l *Ledger) touchMachine(name string) {
	for _, e := range l.onMachine[name] {
		l.touch(e)
	}
}

// refreshCheck computes the context of a check again, and marks the targets that
// a changed context or the passage of time concerns.
func (l *Ledger) refreshCheck(c *checkEntry) {
	due := !c.due.IsZero() && !l.now.Before(c.due)
	if l.full || l.stale || due || c.fresh {
		around := l.CheckContext(c.check)
		st := settingOf(c.check, around, l.now)
		if l.full || c.fresh || !reflect.DeepEqual(st, c.st) || !reflect.DeepEqual(around, c.context) {
			c.context, c.st = around, st
			for _, e := range c.targets {
				l.touch(e)
			}
			l.version++
		}
		c.recount, c.fresh = true, false
	}
	if due {
		l.version++
	}
	for len(c.clocks) > 0 && !l.now.Before(c.clocks[0].report.nextChange()) {
		l.touch(heap.Pop(&c.clocks).(*targetEntry))
	}
}

// evaluate evaluates one target and stores the result.
func (l *Ledger) evaluate(e *targetEntry) {
	c := e.check
	if c.st.state != StateActive {
		l.setReport(e, false, nil)
		return
	}
	x := l.subjectOf(e)
	t := evaluate(c.check, c.context, &c.st, &x, l.now)
	if t.isPlain() {
		l.setReport(e, true, nil)
		return
	}
	kept := t
	l.setReport(e, true, &kept)
}

// isPlain reports whether the result is healthy and nothing else.
func (t *TargetReport) isPlain() bool {
	return t.Verdict == Healthy && !t.uncounted && t.Reason == "" && t.Message == "" && t.Action == None && t.RecheckAfterSeconds == 0 && t.nextChange().IsZero()
}

// setReport replaces the result of a target and updates every counter.
func (l *Ledger) setReport(e *targetEntry, judged bool, t *TargetReport) {
	c := e.check
	if e.evaluated != judged || !e.report.same(t) {
		l.version++
		c.recount = true
	}
	if e.evaluated {
		c.n.addVerdict(e.found(), -1)
	}
	c.wait(e.report, -1)
	e.evaluated, e.report = judged, t
	if judged {
		c.n.addVerdict(e.found(), 1)
	}
	c.wait(t, 1)
	c.setClock(e)
	if t != nil && t.Action != None {
		l.acting[e] = true
	} else {
		delete(l.acting, e)
	}
}

// same reports whether two results differ in nothing that anybody acts on. Nil is
// plain.
func (t *TargetReport) same(o *TargetReport) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.Verdict == o.Verdict && t.Reason == o.Reason && t.Message == o.Message && t.Action == o.Action &&
		slices.Equal(t.Refusals, o.Refusals) && t.ControlPlane == o.ControlPlane && t.Node == o.Node &&
		t.MachineUID == o.MachineUID && t.NodeUID == o.NodeUID && t.RecheckAfterSeconds > 0 == (o.RecheckAfterSeconds > 0) && t.uncounted == o.uncounted &&
		t.Due.Equal(o.Due) && t.reasonChangesAt.Equal(o.reasonChangesAt) && t.Since.Equal(o.Since) && t.Timeout == o.Timeout && reflect.DeepEqual(t.Template, o.Template)
}

// add makes a Machine or a Node a target of the check, unless the target limit is
// exceeded.
func (l *Ledger) add(c *checkEntry, m *Machine, node string) {
	l.resize(c, 1)
	if l.w.overTargetLimit.includes(&l.w.rules, c.check) {
		return
	}
	e := &targetEntry{check: c, machine: m, node: node, at: int32(len(c.targets)), clock: noClock}
	c.targets = append(c.targets, e)
	if m != nil {
		l.onMachine[m.Name] = append(l.onMachine[m.Name], e)
	}
	if node != "" {
		l.onNode[node] = append(l.onNode[node], e)
	}
	l.touch(e)
	c.recount = true
	l.version++
}

// remove removes a target from its check.
func (l *Ledger) remove(e *targetEntry) {
	l.setReport(e, false, nil)
	c := e.check
	l.resize(c, -1)
	last := c.targets[len(c.targets)-1]
	c.targets[e.at], last.at = last, e.at
	c.targets[len(c.targets)-1] = nil
	c.targets = c.targets[:len(c.targets)-1]
	if e.machine != nil {
		drop(l.onMachine, e.machine.Name, e)
	}
	drop(l.onNode, e.node, e)
	e.gone = true
	c.recount = true
	l.version++
}

// move changes the Node of a target.
func (l *Ledger) move(e *targetEntry, node string) {
	if e.node == node {
		return
	}
	drop(l.onNode, e.node, e)
	e.node = node
	if node != "" {
		l.onNode[node] = append(l.onNode[node], e)
	}
}

// addTargets finds all targets of a new check.
func (l *Ledger) addTargets(c *checkEntry) {
	if c.check.SelectsNodes {
		for n := range l.w.targetNodes().all() {
			if l.w.targetNodes().covers(c.check, n) {
				l.add(c, nil, n.Name)
			}
		}
		return
	}
	for m := range maps.Values(l.w.machines) {
		if c.check.covers(m) {
			l.add(c, m, m.NodeName)
		}
	}
}
