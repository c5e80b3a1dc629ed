package admit

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/fenced/fenced/internal/cluster"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// Refused is a target that a check wants remediated, or a Waiting run, and what forbids it now.
type Refused struct {
	Check         policy.CheckID // zero for a Waiting run
	CheckID       string         // names the check in events; "" for a run that a person ordered
	Node, Machine string         // Machine is "namespace/name"
	Run           string         // of a Waiting run
	Gate          reason.Gate    // the first one that does not pass
	Since         time.Time      // since when that is the reason
	NextTry       time.Time      // when fenced asks again; zero: after a change

	checkUID string
}

// Refused lists what is refused now, by Node and Machine: targets, then Waiting runs. A target with an open run is
// remediated, so what refused it before, or refuses another check, is not listed.
func (c *Cluster) Refused() []Refused {
	targets := slices.DeleteFunc(c.refused.list(), func(r Refused) bool { return r.progressIn(c.model) == running })
	return append(targets, c.resumer.refused.list()...)
}

// recordRefusal stores that a gate refuses a candidate. next is when fenced asks again.
func (c *Cluster) recordRefusal(a cluster.Candidate, g reason.Gate, next, now time.Time) {
	r := Refused{CheckID: a.Draft.CheckID, Node: a.Draft.Target.Node, Machine: a.Draft.Target.MachineKey(), Gate: g, NextTry: next}
	c.refused.note(pair{r.CheckID, a.Key}, r.of(a.Check), now)
}

// recordCheckRefusal stores why the checks refuse a target of one of them, or that another
// controller remediates it.
func (c *Cluster) recordCheckRefusal(report *policy.CheckReport, check *policy.Check, t *policy.TargetReport, now time.Time) {
	g, refused := cluster.FirstFailing(policy.ExplainTarget(report, t))
	if refused {
		r := Refused{CheckID: cluster.CheckID(check.ID()), Node: t.Node, Machine: t.Machine, Gate: g, NextTry: g.Until}
		c.refused.note(pair{r.CheckID, cluster.TargetKey(t)}, r.of(check), now)
	}
}

// progress is how far the run on a target that was refused has come.
type progress int

const (
	notRunning progress = iota
	starting            // its place is reserved. The start may fail yet
	running
)

// progressIn says whether a run is open on what was refused.
func (r Refused) progressIn(b *cluster.Model) progress {
	switch open, is := b.Runs.OpenOn(cmp.Or(r.Node, r.Machine)); {
	case !is:
		return notRunning
	case cluster.IsUnsaved(open):
		return starting
	}
	return running
}

// nextTry is when a gate that needs no new reading is asked again; zero: after a change.
func nextTry(g reason.Gate, now time.Time) time.Time {
	if g.Until.After(now) || reason.ClassOf(g.Reason) != reason.Transient {
		return g.Until
	}
	return now.Add(gateRetry)
}

// of adds the check that asks for what is refused; nil changes nothing.
func (r Refused) of(check *policy.Check) Refused {
	if check != nil {
		r.Check, r.checkUID = check.ID(), check.UID
	}
	return r
}

// event tells the refusal.
func (r Refused) event() event.Event {
	ev := event.Event{
		Type: event.Refused, Node: r.Node, Run: r.Run, Reason: r.Gate.Reason, Check: r.CheckID, About: aboutCheck(r.Check, r.checkUID),
		Gates:   []reason.Gate{r.Gate},
		Message: r.Gate.Name + ": " + r.Gate.Value + " (needs " + r.Gate.Threshold + ", " + r.Gate.Source + ")",
	}
	if r.Node == "" {
		ev.Machine = r.Machine
	}
	return ev
}

// pair is one check and one of its targets. Two checks may refuse one host for different
// reasons, so each pair is remembered by itself.
type pair struct{ check, target string }

// refusals remembers what is refused, and tells each change of the reason once.
type refusals struct {
	emit func(event.Event)

	mu     sync.Mutex
	byPair map[pair]*refusal
	pace   *rate.Limiter // of all pairs
}

// refusal is what is remembered of one pair. It outlives the refusal for as long as the pair
// may not tell at once.
type refusal struct {
	Refused             // without a Reason: it has ended
	last    reason.Code // the last reason
	told    reason.Code // the last reason that was told; "": none, or that it ended
	pace    *rate.Limiter
}

func newRefusals(emit func(event.Event)) *refusals {
	return &refusals{emit: emit, byPair: map[pair]*refusal{}, pace: rate.NewLimiter(clusterRate, clusterBurst)}
}

// note stores why a pair is refused now. Then tell tells it.
func (rs *refusals) note(k pair, now Refused, at time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.byPair[k]
	if r == nil {
		r = &refusal{pace: newPace()}
		rs.byPair[k] = r
	}
	if now.Since = r.Since; r.Gate.Reason != now.Gate.Reason {
		now.Since = at
	}
	r.Refused, r.last = now, now.Gate.Reason
}

// isRefused says whether a pair is refused now, as far as it is known.
func (rs *refusals) isRefused(k pair) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.byPair[k]
	return r != nil && r.Gate.Reason != ""
}

// endAllBut ends the refusals of the pairs that are not in live. If a run has begun on the
// target, only the run is told. While a run starts, the refusal stays: if the start fails, it
// has not ended.
func (rs *refusals) endAllBut(live map[pair]bool, on func(Refused) progress, at time.Time) {
	rs.mu.Lock()
	var over []pair
	for k := range rs.byPair {
		if !live[k] {
			over = append(over, k)
		}
	}
	rs.mu.Unlock()
	for _, k := range over {
		rs.end(k, on, at)
	}
}

func (rs *refusals) end(k pair, on func(Refused) progress, at time.Time) {
	rs.mu.Lock()
	was := rs.byPair[k].Refused
	rs.mu.Unlock()
	var now progress
	if was.Gate.Reason != "" {
		now = on(was) // outside of the lock: it asks the Model
	}
	if now == starting {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.byPair[k]
	if r.Gate = (reason.Gate{}); now == running {
		r.told = ""
	}
	if r.told == "" && r.pace.TokensAt(at) >= tellBurst {
		delete(rs.byPair, k)
	}
}

// tell emits each change that was not told yet, as far as the limits allow. It returns when to
// call it again for the others; zero: all are told.
func (rs *refusals) tell(at time.Time) (due time.Time) {
	rs.mu.Lock()
	var news []event.Event
	var pending []pair
	for k, r := range rs.byPair {
		if r.told != r.Gate.Reason {
			pending = append(pending, k)
		}
	}
	slices.SortFunc(pending, func(a, b pair) int {
		return cmp.Or(strings.Compare(a.check, b.check), strings.Compare(a.target, b.target))
	})
	for _, k := range pending {
		r := rs.byPair[k]
		if again := mayTell(at, r.pace, rs.pace); !again.IsZero() {
			due = times.Sooner(due, again)
			continue
		}
		r.told = r.Gate.Reason
		news = append(news, r.news())
	}
	rs.mu.Unlock()
	for _, ev := range news {
		rs.emit(ev)
	}
	return due
}

// news is the event that tells the present reason, or that there is none any more.
func (r *refusal) news() event.Event {
	ev := r.Refused.event()
	if r.Gate.Reason == "" {
		ev.Type, ev.Reason, ev.Gates = event.RefusalEnded, r.last, nil
		ev.Message = "what was refused is no longer asked for"
	}
	return ev
}

// list lists what is refused now, by Node and Machine.
func (rs *refusals) list() (list []Refused) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, r := range rs.byPair {
		if r.Gate.Reason != "" {
			list = append(list, r.Refused)
		}
	}
	slices.SortFunc(list, func(a, b Refused) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Machine, b.Machine), strings.Compare(a.CheckID, b.CheckID), strings.Compare(a.Run, b.Run))
	})
	return list
}

// checkStates remembers what was told of each check: its state, and whether its limit allows
// remediation. Only the deciding goroutine uses it.
type checkStates struct {
	byID    map[string]*checkState
	authors map[policy.CheckID]*authorState // by an ID without a name
	crowds  map[string]*crowdState
	pace    *rate.Limiter // of all checks
}

// authorState is what was told of all checks of one kind and one namespace. Whoever may write there keeps nothing about
// the checks of others from being told, also if each check has another name.
type authorState struct {
	untold int // checks that are gone, and were not named
	pace   *rate.Limiter
}

// crowdState is what was told of one namespace: that it has more checks than fenced evaluates.
type crowdState struct {
	told bool
	pace *rate.Limiter
}

// checkState is what was told of one check. A new one counts as Active with an open limit, so
// that what is otherwise is told.
type checkState struct {
	seen    bool // in the present round
	id      policy.CheckID
	uid     string
	state   policy.State
	allowed bool
	pace    *rate.Limiter

	near     bool // that it is near its limit was told
	nearPace *rate.Limiter
}

func newCheckStates() checkStates {
	return checkStates{byID: map[string]*checkState{}, authors: map[policy.CheckID]*authorState{}, crowds: map[string]*crowdState{}, pace: rate.NewLimiter(clusterRate, clusterBurst)}
}

// author returns what was told of all checks of the kind and the namespace of one.
func (cs *checkStates) author(id policy.CheckID) *authorState {
	id.Name = ""
	a := cs.authors[id]
	if a == nil {
		a = &authorState{pace: rate.NewLimiter(authorRate, authorBurst)}
		cs.authors[id] = a
	}
	return a
}

// tell emits each change of a check that may be told now. It returns when to call it again for the others; zero: there
// are none. A change that is taken back before is not told.
func (cs *checkStates) tell(found []policy.CheckReport, emit func(event.Event), now time.Time) (due time.Time) {
	for i := range found {
		r := &found[i]
		id := cluster.CheckID(r.ID())
		k := cs.byID[id]
		if k == nil {
			k = &checkState{state: policy.StateActive, allowed: true, pace: newPace(), nearPace: newPace()}
			cs.byID[id] = k
		}
		k.seen, k.id, k.uid = true, r.ID(), r.UID
		for _, ev := range k.differences(r) {
			at := mayTell(now, k.pace, cs.author(k.id).pace, cs.pace)
			if !at.IsZero() {
				due = times.Sooner(due, at)
				break
			}
			k.state = r.State
			if ev.Type != event.CheckChanged {
				k.allowed = r.Allowed
			}
			emit(k.event(id, ev))
		}
		if near := nearLimit(r); !near {
			k.near = false
		} else if !k.near && mayTell(now, k.nearPace, cs.author(k.id).pace, cs.pace).IsZero() { // else it is told after the next change
			k.near = true
			g := r.LimitGate()
			emit(k.event(id, event.Event{Type: event.LimitNear, Message: "is near its limit: " + g.Value + ", " + g.Threshold, Gates: []reason.Gate{g}}))
		}
	}
	return times.Sooner(due, cs.tellGone(emit, now))
}

// tellGone emits an event for each check that is no longer there, and forgets it. Those that may not be told now are
// counted, and told as one later: nothing is kept of a check that is gone. It returns when to ask again.
func (cs *checkStates) tellGone(emit func(event.Event), now time.Time) (due time.Time) {
	var left []string
	for id, k := range cs.byID {
		if !k.seen {
			left = append(left, id)
		}
		k.seen = false
	}
	slices.Sort(left)
	for _, id := range left {
		k := cs.byID[id]
		delete(cs.byID, id)
		if a := cs.author(k.id); a.untold == 0 && mayTell(now, a.pace, cs.pace).IsZero() {
			emit(k.event(id, event.Event{Type: event.CheckChanged, Reason: reason.NotCovered, Message: "is gone: it protects no target any more"}))
		} else {
			a.untold++
		}
	}
	for id, a := range cs.authors {
		if a.untold > 0 {
			at := mayTell(now, a.pace, cs.pace)
			if due = times.Sooner(due, at); at.IsZero() {
				emit(event.Event{Type: event.CheckChanged, Reason: reason.NotCovered, Message: fmt.Sprintf("%s of %s: %d more are gone: they protect no target any more", id.Kind, cmp.Or(id.Namespace, "no namespace"), a.untold)})
				a.untold = 0
			}
		} else if a.pace.TokensAt(now) >= authorBurst { // as a new one
			delete(cs.authors, id)
		}
	}
	return due
}

// differences are the changes since what was told: the state before the limit. The limit of a
// check that is not active says nothing.
func (k *checkState) differences(r *policy.CheckReport) (news []event.Event) {
	if r.State != k.state {
		ev := event.Event{Type: event.CheckChanged, Message: "is " + string(r.State)}
		if r.State != policy.StateActive {
			ev.Reason, ev.Message = r.State.Reason(), ev.Message+": "+cmp.Or(r.Message, "no reason is known")
		}
		news = append(news, ev)
	}
	if r.State != policy.StateActive || r.Allowed == k.allowed {
		return news
	}
	g := r.LimitGate()
	ev := event.Event{Type: event.LimitOpened, Message: "allows remediation again: " + g.Value + ", " + g.Threshold}
	if !r.Allowed {
		ev = event.Event{Type: event.LimitClosed, Reason: g.Reason, Message: "allows no remediation: " + g.Value + ", " + g.Threshold, Gates: []reason.Gate{g}}
	}
	return append(news, ev)
}

// nearLimit returns whether a limit that is open closes with the next target that is not healthy, or with the last tenth of those
// that it allows.
func nearLimit(r *policy.CheckReport) bool {
	unhealthy := r.Expected - r.Healthy
	return r.State == policy.StateActive && r.Allowed && unhealthy > 0 && r.MaxUnhealthy < r.Expected && r.MaxUnhealthy-unhealthy < max(1, r.MaxUnhealthy/10)
}

// event completes an event about the check.
func (k *checkState) event(id string, ev event.Event) event.Event {
	ev.Check, ev.About = id, aboutCheck(k.id, k.uid)
	ev.Message = "check " + strings.TrimPrefix(k.id.Namespace+"/"+k.id.Name, "/") + " " + ev.Message
	return ev
}

// aboutCheck names the object of a check; zero for no check.
func aboutCheck(id policy.CheckID, uid string) event.Check {
	return event.Check{APIVersion: id.APIVersion, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name, UID: uid}
}

// reportCrowds says once of each namespace that it has more checks than fenced evaluates, and once that it has
// no longer. It returns when to call it again; zero: after a change.
func (cs *checkStates) reportCrowds(found []policy.Crowd, emit func(event.Event), now time.Time) (due time.Time) {
	crowded := map[string]bool{}
	for _, c := range found {
		crowded[c.Namespace] = true
		k := cs.crowds[c.Namespace]
		if k == nil {
			k = &crowdState{pace: newPace()}
			cs.crowds[c.Namespace] = k
		}
		due = times.Sooner(due, k.tell(true, cs.pace, emit, event.Event{Type: event.CheckChanged, Reason: reason.CheckLimit, Message: c.Namespace + ": " + c.Message}, now))
	}
	for namespace, k := range cs.crowds {
		if crowded[namespace] {
			continue
		}
		due = times.Sooner(due, k.tell(false, cs.pace, emit, event.Event{Type: event.CheckChanged, Message: namespace + ": all its checks are evaluated again"}, now))
		if !k.told && k.pace.TokensAt(now) >= tellBurst { // as a new one
			delete(cs.crowds, namespace)
		}
	}
	return due
}

// tell emits an event if the namespace is otherwise than was told. It returns when to ask again.
func (k *crowdState) tell(is bool, all *rate.Limiter, emit func(event.Event), ev event.Event, now time.Time) (due time.Time) {
	if k.told == is {
		return time.Time{}
	}
	if due = mayTell(now, k.pace, all); due.IsZero() {
		k.told = is
		emit(ev)
	}
	return due
}

// What is refused, and what changes of a check, is told at a limited pace.
const (
	// One subject (a refused pair, or a check) may tell tellBurst changes at once, and one more
	// each tellEvery, so that a reason that flaps does not fill the journal and the audit log.
	tellBurst = 6
	tellEvery = 2 * time.Minute
	// All checks of one kind and namespace may tell authorBurst changes at once, and authorRate in a second, so that
	// whoever may write them cannot fill these with checks that come and go.
	authorBurst = 50
	authorRate  = 1
	// A cluster may tell clusterBurst changes at once, and clusterRate in a second, so that a
	// site that goes down does not fill the queue of the audit log, which starts of runs need.
	clusterBurst = 100
	clusterRate  = 50
	tellRetry    = time.Second // at least, after a limit
)

// newPace is the limit of one subject.
func newPace() *rate.Limiter { return rate.NewLimiter(rate.Every(tellEvery), tellBurst) }

// mayTell takes a place in each limit and returns zero; or, if one of them has none, when to ask again.
func mayTell(now time.Time, limits ...*rate.Limiter) time.Time {
	for _, l := range limits {
		if lack := 1 - l.TokensAt(now); lack > 0 {
			return now.Add(time.Duration(lack/float64(l.Limit())*float64(time.Second)) + tellRetry)
		}
	}
	for _, l := range limits {
		l.AllowN(now, 1)
	}
	return time.Time{}
}
