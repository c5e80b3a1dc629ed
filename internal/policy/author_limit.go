package policy

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
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
	return r.spaceOf(group(c.APIVersion), c.Namespace), FromCluster(c.Source)
}

// targetLimitMessage returns the reason why a check is not evaluated.
func (r *Rules) targetLimitMessage(c *Check) string {
	author, _ := r.authorOf(c)
	whose := "of " + author.text()
	if c.Namespace == "" {
		whose = "without a namespace"
	}
	return fmt.Sprintf("the checks %s select more than %d targets together, so none of them is evaluated: "+
		"remove checks, or narrow selectors that overlap", whose, r.targetLimit(author))
}

// applyTargetLimit sets overTargetLimit from the number of targets of the checks.
func (w *tables) applyTargetLimit(checks []Check) {
	if len(checks)*max(len(w.nodes)+len(w.runs), len(w.machines)) <= cmp.Or(w.rules.MaxTargets, min(maxTargets, maxTargetsOfNamespace)) {
		return // not exceeded even if every check selected everything
	}
	targets := map[space]int{}
	for i := range checks {
		if author, limited := w.rules.authorOf(&checks[i]); limited {
			for range w.covered(&checks[i]) {
				targets[author]++
			}
			w.overTargetLimit[author] = targets[author] > w.rules.targetLimit(author)
		}
	}
}

// enforceTargetLimit stops the evaluation of the checks of an author that has too many
// targets, and notes who is within the limit again.
func (l *Ledger) enforceTargetLimit() {
	for author := range l.resized {
		switch over := l.tables.overTargetLimit[author]; {
		case l.sizes[author] > l.tables.rules.targetLimit(author):
			delete(l.resumes, author)
			if !over {
				l.tables.overTargetLimit[author], l.stale = true, true
				l.dropTargets(author)
			}
		case over && l.resumes[author].IsZero():
			l.resumes[author] = l.now.Add(l.tables.rules.TargetLimitPause)
		}
	}
	clear(l.resized)
}

// resume evaluates again the checks of an author who has been within the limit for as long as they must.
func (l *Ledger) resume(author space) {
	delete(l.resumes, author)
	delete(l.tables.overTargetLimit, author)
	l.stale = true
	for _, c := range l.checksOf(author) {
		l.resize(c, -c.size)
		l.addTargets(c)
	}
	clear(l.resized) // every sum is as before
}

// checksOf lists the checks that count against the target limit of an author.
func (l *Ledger) checksOf(author space) (list []*checkEntry) {
	for _, c := range l.checks {
		if of, limited := l.tables.rules.authorOf(c.check); limited && of == author {
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
	stays := func(e *targetEntry) bool { return !e.gone }
	for name := range machines {
		l.onMachine.keep(name, stays)
	}
	for name := range nodes {
		l.onNode.keep(name, stays)
	}
	l.Version++
}

// resize adds to the number of targets of the check.
func (l *Ledger) resize(c *checkEntry, by int) {
	c.size += by
	if author, limited := l.tables.rules.authorOf(c.check); limited && by != 0 {
		if l.sizes[author] += by; l.sizes[author] == 0 {
			delete(l.sizes, author)
		}
		l.resized[author] = true
	}
}

// maxChecksOfNamespace is how many checks of one namespace fenced evaluates, unless Rules.MaxChecks overrides it: the
// first by name. Each check has metrics and a place in every answer, and every event asks all of them for the time, so
// that whoever may write checks in one namespace could make each decision take long. The others are in no table: they
// select nothing, and limit nothing. Checks without a namespace, and files, are the administrator's, and have no limit. // I18
const maxChecksOfNamespace = 1000

// byCheckName orders the checks of a namespace. A check keeps its place in another version of its API.
func byCheckName(a, b *Check) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Kind, b.Kind), strings.Compare(group(a.APIVersion), group(b.APIVersion)))
}

// seated returns the checks that are evaluated, in their order, and the namespaces that have more.
func (r *Rules) seated(checks []Check) (list []Check, crowded map[space]bool) {
	byAuthor, most := map[space][]*Check{}, cmp.Or(r.MaxChecks, maxChecksOfNamespace)
	for i := range checks {
		if author, limited := r.authorOf(&checks[i]); limited && author.namespace != "" {
			byAuthor[author] = append(byAuthor[author], &checks[i])
		}
	}
	over := map[*Check]bool{}
	crowded = map[space]bool{}
	for author, all := range byAuthor {
		if len(all) <= most {
			continue
		}
		crowded[author] = true
		slices.SortFunc(all, byCheckName)
		for _, c := range all[most:] {
			over[c] = true
		}
	}
	if len(over) == 0 {
		return checks, crowded
	}
	for i := range checks {
		if !over[&checks[i]] {
			list = append(list, checks[i])
		}
	}
	return list, crowded
}

func (r *Rules) checkLimitMessage() string {
	most := cmp.Or(r.MaxChecks, maxChecksOfNamespace)
	return fmt.Sprintf("it has more than %d checks, and fenced evaluates the first %d by name: the others select nothing and limit nothing; delete those that are not needed", most, most)
}

// Crowd is a namespace with more checks than fenced evaluates.
type Crowd struct{ Namespace, Message string }

// Crowds lists the namespaces with more checks than fenced evaluates.
func (l *Ledger) Crowds() (list []Crowd) {
	for _, author := range slices.SortedFunc(maps.Keys(l.crowded), space.compare) {
		list = append(list, Crowd{author.text(), l.tables.rules.checkLimitMessage()})
	}
	return list
}

// setCheck puts a check into its place among those of its namespace. The first have a seat.
func (l *Ledger) setCheck(id ObjectID, c *Check) {
	sought := &Check{APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}
	if c != nil {
		sought.Source = c.Source
	}
	author, limited := l.tables.rules.authorOf(sought)
	if !limited || author.namespace == "" {
		l.setSeated(id, c)
		return
	}
	list, most := l.byAuthor[author], cmp.Or(l.tables.rules.MaxChecks, maxChecksOfNamespace)
	at, found := slices.BinarySearchFunc(list, sought, byCheckName)
	switch {
	case c == nil && (!found || list[at].APIVersion != id.APIVersion):
		return // it does not exist, or still exists in another version of the API
	case c != nil && found:
		list[at] = c
	case c != nil:
		if at < most && len(list) >= most { // it has the seat of the last
			l.setSeated(objectOf(list[most-1]), nil)
		}
		list = slices.Insert(list, at, c)
	default:
		list = slices.Delete(list, at, at+1)
	}
	if at < most {
		l.setSeated(id, c)
		if c == nil && len(list) >= most {
			l.setSeated(objectOf(list[most-1]), list[most-1])
		}
	}
	if l.byAuthor[author] = list; len(list) == 0 {
		delete(l.byAuthor, author)
	}
	if over := len(list) > most; over != l.crowded[author] {
		l.Version++
		if l.crowded[author] = over; !over {
			delete(l.crowded, author)
		}
	}
}

// allChecks lists the checks, with those that are not evaluated.
func (l *Ledger) allChecks() (list []Check) {
	for _, e := range l.checks {
		if author, limited := l.tables.rules.authorOf(e.check); !limited || author.namespace == "" {
			list = append(list, *e.check)
		}
	}
	for _, checks := range l.byAuthor {
		for _, c := range checks {
			list = append(list, *c)
		}
	}
	return list
}

// SetFiles replaces the checks and budgets that come from files, whose Source names the file.
// Those of the cluster stay.
func (l *Ledger) SetFiles(now time.Time, checks []Check, budgets []DisruptionBudget) {
	keep := map[checkKey]bool{}
	for i := range checks {
		keep[keyOf(objectOf(&checks[i]), checks[i].Source)] = true
	}
	for k, e := range l.checks {
		if k.source != "" && !keep[k] {
			delete(l.tables.machineChecks, e.check.ID())
			l.replaceCheck(k, e, nil)
		}
	}
	for k := range l.budgets {
		if k.source != "" {
			delete(l.budgets, k)
		}
	}
	for i := range checks {
		l.setCheck(objectOf(&checks[i]), &checks[i])
	}
	for i := range budgets {
		l.setBudget(ObjectID{APIVersion: FencedAPI, Kind: DisruptionBudgetKind, Name: budgets[i].Name}, &budgets[i])
	}
	l.findSpaces() // a check that went may have had the only template of a namespace
	l.stale = true
	l.Version++
	l.enforceTargetLimit()
	l.Advance(now)
}

// setSeated sets or removes a check that is evaluated.
func (l *Ledger) setSeated(id ObjectID, c *Check) {
	k := keyOf(id, "")
	if c != nil {
		k = keyOf(id, c.Source)
	}
	old := l.checks[k]
	hadTemplates := old != nil && len(templateSpaces(old.check)) > 0
	switch {
	case old == nil && c == nil:
		return
	case old != nil && c == nil && old.check.APIVersion != id.APIVersion:
		return // it still exists in another version of the API
	case old != nil:
		delete(l.tables.machineChecks, old.check.ID())
	}
	if c != nil && c.family() == openShift {
		l.tables.machineChecks[c.ID()] = c
	}
	switch {
	case old != nil && c != nil && reflect.DeepEqual(old.check, c): // as when fenced has written its status, which is not read
		old.check = c
		return
	case old != nil && c != nil && old.check.SelectsNodes == c.SelectsNodes && old.check.family() == c.family() && reflect.DeepEqual(old.check.Selector, c.Selector):
		old.check, old.fresh = c, true
	default:
		l.replaceCheck(k, old, c)
	}
	if hadTemplates || c != nil && len(templateSpaces(c)) > 0 {
		l.findSpaces()
	}
	l.stale = true
	l.Version++
}

func objectOf(c *Check) ObjectID {
	return ObjectID{APIVersion: c.APIVersion, Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
}

// findSpaces determines where the requests for every target are, after a change of the templates.
func (l *Ledger) findSpaces() {
	var templates []string
	for _, e := range l.checks {
		templates = append(templates, templateSpaces(e.check)...)
	}
	if spaces := l.tables.rules.commonSpaces(templates); !slices.Equal(spaces, l.tables.requests.spaces) {
		l.tables.requests.spaces, l.full = spaces, true
	}
}

// replaceCheck removes old and adds c, each of which may be nil.
func (l *Ledger) replaceCheck(k checkKey, old *checkEntry, c *Check) {
	if old != nil {
		for len(old.targets) > 0 {
			l.remove(old.targets[len(old.targets)-1])
		}
		l.resize(old, -old.size) // those over the target limit
		delete(l.checks, k)
	}
	if c != nil {
		e := &checkEntry{check: c, fresh: true}
		l.checks[k] = e
		l.addTargets(e)
	}
}
