package policy

import (
	"cmp"
	"container/heap"
	"iter"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/times"
)

// Ledger holds the objects of one cluster and the results of the checks. It gives
// the answers of Decide incrementally: a change marks the targets that it
// concerns, and only those are evaluated again. Results across targets (counters,
// limits, overlaps, budgets, the control plane) are computed on each query, by
// the functions that Decide uses.
//
// It is not safe for concurrent use. It never modifies the values passed to it.
type Ledger struct {
	*tables
	// Version increases whenever a verdict, action, refusal or gate may have changed.
	Version uint64
	// Next is the first instant at which a result changes by the passage of time alone; zero: no timeout runs.
	Next time.Time

	checks   map[checkKey]*checkEntry
	budgets  map[checkKey]*budgetEntry
	requests map[ObjectID]*Request
	// upgradeOf is the ClusterVersion that reports the upgrade.
	upgradeOf ObjectID
	// errors are the objects that could not be decoded.
	errors map[ObjectID]ObjectError
	runs   []OpenRun

	// onMachine lists the targets that are Machines by their name, onNode all
	// targets by the name of their Node.
	onMachine, onNode listing[string, *targetEntry]
	acting            map[*targetEntry]bool
	fleet             Fleet
	zones             map[string]Fleet

	// byAuthor lists the checks of each namespace by name, with those that are not evaluated; crowded are
	// the namespaces that have such.
	byAuthor map[space][]*Check
	crowded  map[space]bool
	// sizes is how many targets the checks of each namespace select together, including
	// those over the target limit; resized are the namespaces where that has changed. resumes
	// is when those that were over the limit and no longer are, are evaluated again.
	sizes   map[space]int
	resized map[space]bool
	resumes map[space]time.Time

	now time.Time // the instant of the last evaluation
	// dirty are the targets to evaluate again. stale: also evaluate the contexts of
	// the checks again. full: evaluate everything again.
	dirty       []*targetEntry
	stale, full bool
	// labels: the cluster labelled its control plane at the last evaluation.
	labels bool
}

// checkKey identifies a check, whichever version of its API it was read in.
type checkKey struct {
	group, kind, namespace, name string
	// source is empty for a check from the cluster.
	source string
}

// keyOf is the key of a check or budget.
func keyOf(id ObjectID, source string) checkKey {
	if FromCluster(source) {
		source = ""
	}
	return checkKey{group(id.APIVersion), id.Kind, id.Namespace, id.Name, source}
}

// NewLedger returns an empty ledger.
func NewLedger(rules Rules) *Ledger {
	return &Ledger{
		tables: newTables(rules), checks: map[checkKey]*checkEntry{}, budgets: map[checkKey]*budgetEntry{},
		requests: map[ObjectID]*Request{}, errors: map[ObjectID]ObjectError{},
		onMachine: newListing[string, *targetEntry](), onNode: newListing[string, *targetEntry](),
		acting: map[*targetEntry]bool{}, zones: map[string]Fleet{},
		byAuthor: map[space][]*Check{}, crowded: map[space]bool{},
		sizes: map[space]int{}, resized: map[space]bool{}, resumes: map[space]time.Time{},
	}
}

// SetReadsOff records whether the BMC of a Node has just been read Off twice.
func (l *Ledger) SetReadsOff(now time.Time, node string, off bool) {
	if l.tables.readsOff[node] != off {
		delete(l.tables.readsOff, node)
		if off {
			l.tables.readsOff[node] = true
		}
		l.touchNode(node)
	}
	l.Advance(now)
}

// SetDisabled tells the ledger why nobody carries out the requests of checks, by their
// mark. Such a check is Disabled.
func (l *Ledger) SetDisabled(now time.Time, why map[string]string) {
	if maps.Equal(l.tables.disabled, why) {
		return
	}
	l.tables.disabled, l.stale = maps.Clone(why), true
	l.Version++
	l.Advance(now)
}

// SetTried tells the ledger which requests fenced has made and are gone, by the mark of
// the check and the name of the Node or the Machine.
func (l *Ledger) SetTried(now time.Time, tried map[string]map[string][]Attempt) {
	if reflect.DeepEqual(l.tables.tried, tried) {
		return
	}
	l.tables.tried, l.stale = tried, true
	l.Version++
	l.Advance(now)
}

// clockSlack is how far a caller's clock may be behind the ledger's. A caller
// reads the clock before it locks the ledger.
const clockSlack = time.Second

// Advance evaluates all marked targets, and all whose time has come, as of
// now. It returns the instant that it used.
func (l *Ledger) Advance(now time.Time) time.Time {
	now = now.Round(0).UTC() // compare wall clocks, as the API's timestamps do
	switch {
	case now.Before(l.now.Add(-clockSlack)):
		l.full = true // the clock was set back: expired timeouts may run again
	case now.Before(l.now):
		now = l.now
	}
	l.now = now
	if labels := l.tables.labelled > 0; labels != l.labels {
		l.labels, l.full = labels, true // another answer to which Machines without a Node count
		l.Version++
	}
	for author, at := range l.resumes { // a clock that was set back does not make their wait longer
		if wait := at.Sub(now); wait <= 0 || wait > l.tables.rules.TargetLimitPause {
			l.resume(author)
		}
	}
	if l.full || l.stale || !l.Next.IsZero() && !now.Before(l.Next) {
		for _, c := range l.checks {
			l.refreshCheck(c)
		}
		l.full, l.stale = false, false
	}
	for _, e := range l.dirty {
		e.dirty = false
		if !e.gone {
			l.evaluate(e)
		}
	}
	l.dirty = l.dirty[:0]
	l.Next = time.Time{}
	for _, c := range l.checks {
		if c.recount {
			c.due, c.recount = l.checkReport(c, nil, now).Due, false
		}
		l.Next = times.Sooner(l.Next, c.due)
		if len(c.clocks) > 0 {
			l.Next = times.Sooner(l.Next, c.clocks[0].report.nextChange())
		}
	}
	for _, at := range l.resumes {
		l.Next = times.Sooner(l.Next, at)
	}
	return now
}

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

// subject is the target's name, the same in every check.
func (e *targetEntry) subject() string {
	if e.machine == nil {
		return e.node
	}
	return cmp.Or(e.node, e.machine.Key())
}

func (l *Ledger) subjectOf(e *targetEntry) Subject {
	if e.machine != nil {
		return l.withRequests(l.machineSubject(e.machine))
	}
	return l.withRequests(l.nodeSubject(l.targetNode(e.node)))
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
	for e := range l.onNode.of(name) {
		l.touch(e)
	}
}

// touchMachine marks the targets that are Machines of this name.
func (l *Ledger) touchMachine(name string) {
	for e := range l.onMachine.of(name) {
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
			l.Version++
		}
		c.recount, c.fresh = true, false
	}
	if due {
		l.Version++
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
	if t.Verdict == Healthy && !t.uncounted && t.Reason == "" && t.Message == "" && t.Action == None && t.RecheckAfterSeconds == 0 && t.nextChange().IsZero() {
		l.setReport(e, true, nil)
		return
	}
	kept := t
	l.setReport(e, true, &kept)
}

// setReport replaces the result of a target and updates every counter.
func (l *Ledger) setReport(e *targetEntry, judged bool, t *TargetReport) {
	c := e.check
	if e.evaluated != judged || !e.report.same(t) {
		l.Version++
		c.recount = true
	}
	if e.evaluated {
		c.n.addVerdict(e.report, -1)
	}
	c.wait(e.report, -1)
	e.evaluated, e.report = judged, t
	if judged {
		c.n.addVerdict(t, 1)
	}
	c.wait(t, 1)
	switch runs := t != nil && !t.nextChange().IsZero(); {
	case runs && e.clock == noClock:
		heap.Push(&c.clocks, e)
	case runs:
		heap.Fix(&c.clocks, int(e.clock))
	case e.clock != noClock:
		heap.Remove(&c.clocks, int(e.clock))
	}
	if t != nil && t.Action != None {
		l.acting[e] = true
	} else {
		delete(l.acting, e)
	}
}

// same reports whether two results differ in nothing that anybody acts on. Nil is
// healthy and nothing else.
func (t *TargetReport) same(o *TargetReport) bool {
	if t == nil || o == nil {
		return t == o
	}
	return t.Verdict == o.Verdict && t.Reason == o.Reason && t.Message == o.Message && t.Action == o.Action &&
		slices.Equal(t.Refusals, o.Refusals) && t.ControlPlane == o.ControlPlane && t.Node == o.Node &&
		t.MachineUID == o.MachineUID && t.NodeUID == o.NodeUID && t.RecheckAfterSeconds > 0 == (o.RecheckAfterSeconds > 0) && t.uncounted == o.uncounted &&
		t.Due.Equal(o.Due) && t.reasonChangesAt.Equal(o.reasonChangesAt) && t.Since.Equal(o.Since) && t.Timeout == o.Timeout && reflect.DeepEqual(t.Template, o.Template)
}

// clockHeap orders the targets of a check with a running timeout by their next
// change.
type clockHeap []*targetEntry

func (h clockHeap) Len() int { return len(h) }

func (h clockHeap) Less(i, j int) bool {
	return h[i].report.nextChange().Before(h[j].report.nextChange())
}

func (h clockHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].clock, h[j].clock = int32(i), int32(j)
}

// Push implements heap.Interface.
func (h *clockHeap) Push(x any) {
	e := x.(*targetEntry)
	e.clock = int32(len(*h))
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *clockHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	e.clock = noClock
	return e
}

// due returns the earliest Due in the subtree at an index, or found if that is
// earlier. It visits only entries whose next change is before the result.
func (h clockHeap) due(at int, found time.Time) time.Time {
	if at >= len(h) || !found.IsZero() && !h[at].report.nextChange().Before(found) {
		return found
	}
	found = times.Sooner(found, h[at].report.Due)
	return h.due(2*at+2, h.due(2*at+1, found))
}

// wait counts a target that waits without a timeout, or removes it: by is 1 or
// -1.
func (c *checkEntry) wait(t *TargetReport, by int) {
	if t == nil || t.RecheckAfterSeconds == 0 || !t.Due.IsZero() {
		return
	}
	if c.waits == nil {
		c.waits = map[int]int{}
	}
	if c.waits[t.RecheckAfterSeconds] += by; c.waits[t.RecheckAfterSeconds] == 0 {
		delete(c.waits, t.RecheckAfterSeconds)
	}
}

// budgetEntry is a budget with the counts of its Nodes or Machines.
type budgetEntry struct {
	budget *DisruptionBudget
	n      budgetCount
}

func (l *Ledger) setBudget(id ObjectID, b *DisruptionBudget) {
	k := keyOf(id, "")
	if b != nil {
		k = keyOf(id, b.Source)
	}
	delete(l.budgets, k)
	if b != nil {
		e := &budgetEntry{budget: b}
		e.n.addAll(l.tables, b)
		l.budgets[k] = e
	}
	l.Version++
}

// countMachine adds a Machine to the counts of all budgets, or removes it: by is 1
// or -1.
func (l *Ledger) countMachine(m *Machine, by int) {
	for _, b := range l.budgets {
		b.n.addMachine(l.tables, b.budget, m, by)
	}
}

// countNode adds a Node to all counters of the cluster, or removes it: by is 1 or
// -1.
func (l *Ledger) countNode(n *Node, by int) {
	if n == nil {
		return
	}
	for _, b := range l.budgets {
		b.n.addNode(l.tables, b.budget, n, by)
	}
	notReady := by
	if n.Ready() {
		notReady = 0
	}
	l.fleet.Nodes += by
	l.fleet.NotReady += notReady
	if zone := n.Labels.Get(l.tables.rules.ZoneKey); zone != "" {
		f := l.zones[zone]
		f.Nodes += by
		f.NotReady += notReady
		if l.zones[zone] = f; f == (Fleet{}) {
			delete(l.zones, zone)
		}
	}
}

// add makes a Machine or a Node a target of the check, unless the target limit is
// exceeded.
func (l *Ledger) add(c *checkEntry, m *Machine, node string) {
	l.resize(c, 1)
	if author, limited := l.tables.rules.authorOf(c.check); limited && l.tables.overTargetLimit[author] {
		return
	}
	e := &targetEntry{check: c, machine: m, node: node, at: int32(len(c.targets)), clock: noClock}
	c.targets = append(c.targets, e)
	if m != nil {
		l.onMachine.add(m.Name, e)
	}
	if node != "" {
		l.onNode.add(node, e)
	}
	l.touch(e)
	c.recount = true
	l.Version++
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
		l.onMachine.drop(e.machine.Name, e)
	}
	l.onNode.drop(e.node, e)
	e.gone = true
	c.recount = true
	l.Version++
}

// addTargets finds all targets of a new check.
func (l *Ledger) addTargets(c *checkEntry) {
	for m, n := range l.tables.covered(c.check) {
		if m != nil {
			l.add(c, m, m.NodeName)
		} else {
			l.add(c, nil, n.Name)
		}
	}
}

// setCovered adds or removes a target after a change of coverage. e is the
// existing target, nil if it was not kept.
func (l *Ledger) setCovered(c *checkEntry, e *targetEntry, was, covered bool, m *Machine, node string) {
	switch {
	case !was && covered:
		l.add(c, m, node)
	case was && !covered && e != nil:
		l.remove(e)
	case was && !covered:
		l.resize(c, -1)
	}
}

// find returns the target of a check in a list: the Machine, or if that is nil the Node.
func find(list iter.Seq[*targetEntry], c *checkEntry, m *Machine) *targetEntry {
	for e := range list {
		if e.check == c && e.machine == m {
			return e
		}
	}
	return nil
}

// nodeCoverage says which checks cover a Node.
type nodeCoverage struct {
	node   string
	checks map[*checkEntry]bool
}

// coverageOf returns the checks that cover a Node now.
func (l *Ledger) coverageOf(node string) nodeCoverage {
	v := nodeCoverage{node: node, checks: map[*checkEntry]bool{}}
	n := l.tables.targetNode(node)
	if n == nil {
		return v
	}
	seen := l.tables.targetLabels(n)
	for _, c := range l.checks {
		if c.check.SelectsNodes && seen.match(c.check.Selector) {
			v.checks[c] = true
		}
	}
	return v
}

// cover adds and removes targets after a change of a Node, or of the run on it. before is its
// coverage before the change.
func (l *Ledger) cover(before nodeCoverage) {
	after := l.coverageOf(before.node)
	for c := range before.checks {
		l.setCovered(c, find(l.onNode.of(before.node), c, nil), true, after.checks[c], nil, before.node)
	}
	for c := range after.checks {
		l.setCovered(c, find(l.onNode.of(before.node), c, nil), before.checks[c], true, nil, before.node)
	}
}
