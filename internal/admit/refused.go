package admit

import (
	"cmp"
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

// Refused lists what is refused now, by Node and Machine: targets, then Waiting runs.
func (c *Cluster) Refused() []Refused { return append(c.refused.list(), c.resumer.refused.list()...) }

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
	return &refusals{emit: emit, byPair: map[pair]*refusal{}, pace: newClusterPace()}
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
	for _, k := range rs.endable(live) {
		rs.end(k, on, at)
	}
}

// endable lists the refusals that are not in live.
func (rs *refusals) endable(live map[pair]bool) (list []pair) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for k := range rs.byPair {
		if !live[k] {
			list = append(list, k)
		}
	}
	return list
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
	for _, k := range rs.pending() {
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

// pending lists the pairs with a change that was not told yet. rs.mu is held.
func (rs *refusals) pending() (list []pair) {
	for k, r := range rs.byPair {
		if r.told != r.Gate.Reason {
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b pair) int {
		return cmp.Or(strings.Compare(a.check, b.check), strings.Compare(a.target, b.target))
	})
	return list
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
