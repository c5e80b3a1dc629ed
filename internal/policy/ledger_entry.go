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
	around  CheckContext
	st      setting
	targets []*targetEntry
	// size is how many it selects, kept or not.
	size int
	// n counts the targets, without their waits.
	n      count
	clocks clockHeap
	// waits counts the targets that wait for so many seconds from whenever they
	// are looked at.
	waits map[int]int
	// due is when time alone changes the check as a whole; it has to be worked out
	// again after recount.
	due     time.Time
	recount bool
	// fresh: nothing has been worked out yet.
	fresh bool
}

// targetEntry is one target of one check: a Machine, or a Node. It stays small,
// because there is one for each target of a large cluster.
type targetEntry struct {
	check   *checkEntry
	machine *Machine // nil: the target is a Node
	node    string   // its Node; empty while a Machine has none
	// report is what was found; nil for a target that is simply healthy, and for
	// one that was not judged.
	report *TargetReport
	// at is the place among the check's targets, clock the one in its heap.
	at, clock int32
	judged    bool
	dirty     bool
	gone      bool
}

const noClock = -1

// plain is the report of every target that is simply healthy.
var plain = TargetReport{Verdict: Healthy, Action: None}

// found is what was found about a judged target, as far as anything is counted.
func (e *targetEntry) found() *TargetReport {
	if e.report == nil {
		return &plain
	}
	return e.report
}

// subject is the target's name across checks.
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
	return l.w.nodeSubject(l.w.nodes[e.node])
}

// touch marks a target to be judged again.
func (l *Ledger) touch(e *targetEntry) {
	if !e.dirty {
		e.dirty = true
		l.dirty = append(l.dirty, e)
	}
}

// touchNode marks the targets that a Node's name leads to.
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

// revise looks again at what a check is judged amid, and marks the targets that
// this, or time, concerns.
func (l *Ledger) revise(c *checkEntry) {
	due := !c.due.IsZero() && !l.now.Before(c.due)
	if l.full || l.stale || due || c.fresh {
		around := l.CheckContext(c.check)
		st := settingOf(c.check, around, l.now)
		if l.full || c.fresh || !reflect.DeepEqual(st, c.st) || !reflect.DeepEqual(around, c.around) {
			c.around, c.st = around, st
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
	for len(c.clocks) > 0 && !l.now.Before(c.clocks[0].report.wake()) {
		l.touch(heap.Pop(&c.clocks).(*targetEntry))
	}
}

// judge judges one target and keeps what was found.
func (l *Ledger) judge(e *targetEntry) {
	c := e.check
	if c.st.state != StateActive {
		l.keep(e, false, nil)
		return
	}
	x := l.subjectOf(e)
	t := judge(c.check, c.around, &c.st, &x, l.now)
	if t.plain() {
		l.keep(e, true, nil)
		return
	}
	kept := t
	l.keep(e, true, &kept)
}

// plain says whether nothing but the verdict is to be kept.
func (t *TargetReport) plain() bool {
	return t.Verdict == Healthy && t.Reason == "" && t.Message == "" && t.Action == None && t.RecheckAfterSeconds == 0 && t.wake().IsZero()
}

// keep replaces what was found about a target, with everything that is counted
// by it.
func (l *Ledger) keep(e *targetEntry, judged bool, t *TargetReport) {
	c := e.check
	if e.judged != judged || !e.report.same(t) {
		l.version++
		c.recount = true
	}
	if e.judged {
		c.n.weigh(e.found(), -1)
	}
	c.wait(e.report, -1)
	e.judged, e.report = judged, t
	if judged {
		c.n.weigh(e.found(), 1)
	}
	c.wait(t, 1)
	c.setClock(e)
	if t != nil && t.Action != None {
		l.acting[e] = true
	} else {
		delete(l.acting, e)
	}
}

// same says whether two findings about a target differ in nothing that anybody
// acts on; a nil one is plain.
func (t *TargetReport) same(o *TargetReport) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.Verdict == o.Verdict && t.Reason == o.Reason && t.Message == o.Message && t.Action == o.Action &&
		slices.Equal(t.Refusals, o.Refusals) && t.ControlPlane == o.ControlPlane && t.Node == o.Node &&
		t.MachineUID == o.MachineUID && t.NodeUID == o.NodeUID && t.RecheckAfterSeconds > 0 == (o.RecheckAfterSeconds > 0) &&
		t.Due.Equal(o.Due) && t.again.Equal(o.again) && t.Since.Equal(o.Since) && t.Timeout == o.Timeout && reflect.DeepEqual(t.Template, o.Template)
}

// add makes a Machine or a Node a target of the check, if there is room.
func (l *Ledger) add(c *checkEntry, m *Machine, node string) {
	l.resize(c, 1)
	if l.w.crowded {
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

// resize counts targets of the check, or takes them out.
func (l *Ledger) resize(c *checkEntry, by int) {
	c.size += by
	l.size += by
}

// remove takes a target from its check.
func (l *Ledger) remove(e *targetEntry) {
	l.keep(e, false, nil)
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

// move lists a target under another Node, in place of its old one.
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

// fill finds all targets of a new check.
func (l *Ledger) fill(c *checkEntry) {
	if c.check.SelectsNodes {
		for n := range maps.Values(l.w.nodes) {
			if c.check.coversNode(n) {
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
