package history

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/wire"
)

// pair is a check and a target that it wants remediated, or a Waiting run.
type pair struct{ cluster, name, check, run string }

// target is a Node, or a Machine without one.
type target struct{ cluster, name string }

// refusal is why a pair is refused, since when.
type refusal struct {
	code  string
	since time.Time
	doubt
}

// refusals follows what was refused, by reason, and what would have been fenced had fenced not only observed.
type refusals struct {
	period  Period
	open    map[pair]refusal
	byCode  map[string]*refusedReason
	wanted  map[target]*wire.ObservedTarget // a check wants these remediated, and fenced only observes
	asking  map[target][]pair               // the pairs that are open
	list    newest[wire.ObservedTarget]
	count   int
	outcome map[string]int
	targets map[target]bool
	took    durations // of those that recovered
	dropped int
}

// refusedReason is what is known of one reason.
type refusedReason struct {
	wire.RefusedReason
	targets map[target]bool
}

func newRefusals(p Period) refusals {
	return refusals{period: p, open: map[pair]refusal{}, byCode: map[string]*refusedReason{}, wanted: map[target]*wire.ObservedTarget{},
		asking: map[target][]pair{}, outcome: map[string]int{}, targets: map[target]bool{}}
}

func pairOf(e *audit.Entry) pair { return pair{e.Cluster, cmp.Or(e.Node, e.Machine), e.Check, e.Run} }

func (p pair) target() target { return target{p.cluster, p.name} }

// refused takes in that something is refused for a new reason. What no check asks for, a quarantine for example, has no end that
// is told: it counts, and lasts for no time. What keeps fenced from a whole cluster, another installation for example, refuses no
// remediation by itself.
func (rs *refusals) refused(e audit.Entry) {
	k := pairOf(&e)
	switch {
	case k.name == "":
		return
	case k.check == "" && k.run == "":
		rs.sum(k, refusal{code: e.Reason, since: e.At}, e.At)
		return
	}
	was, is := rs.open[k]
	if is && was.ended(e.At) {
		rs.endPair(k, was.known, wire.OutcomeUnknown)
		is = false
	}
	if is && was.code == e.Reason {
		was.doubt = doubt{}
		rs.open[k] = was
		return
	}
	if is {
		rs.sum(k, was, e.At)
	} else if len(rs.open) >= maxOpen {
		rs.dropped++
		return
	} else {
		rs.asking[k.target()] = append(rs.asking[k.target()], k)
	}
	rs.open[k] = refusal{code: e.Reason, since: e.At}
	if w := rs.wanted[k.target()]; w == nil && isObserving(e.Reason) {
		rs.wanted[k.target()] = &wire.ObservedTarget{Cluster: e.Cluster, Node: e.Node, Machine: e.Machine, Check: e.Check, From: e.At}
	}
}

// started takes in that a run began: it ends what was refused of its target.
func (rs *refusals) started(e audit.Entry) {
	for _, k := range slices.Clone(rs.asking[pairOf(&e).target()]) {
		rs.endPair(k, e.At, wire.OutcomeFenced)
	}
}

// stepped takes in that a run goes on, or has ended: it waits for nothing any more. One that is aborted meanwhile fenced nobody.
func (rs *refusals) stepped(e audit.Entry) {
	step, outcome := remediate.Step(e.Step), wire.OutcomeFenced
	switch {
	case step.Idle():
		return
	case step == remediate.Aborted:
		outcome = wire.OutcomeRecovered
	}
	for _, k := range slices.Clone(rs.asking[pairOf(&e).target()]) {
		if k.run == e.Run && k.run != "" {
			rs.endPair(k, e.At, outcome)
		}
	}
}

// order counts an order that was refused.
func (rs *refusals) order(e audit.Entry) {
	if e.Reason != "" && rs.period.has(e.At) {
		rs.reasonOf(e.Reason).Orders++
	}
}

// endPair ends the refusal of a pair. A target is done with when nothing of it is refused any more.
func (rs *refusals) endPair(k pair, at time.Time, outcome string) {
	was, is := rs.open[k]
	if !is {
		return
	}
	delete(rs.open, k)
	rs.sum(k, was, at)
	t := k.target()
	if rs.asking[t] = slices.DeleteFunc(rs.asking[t], func(o pair) bool { return o == k }); len(rs.asking[t]) > 0 {
		return
	}
	delete(rs.asking, t)
	if w := rs.wanted[t]; w != nil {
		delete(rs.wanted, t)
		rs.addObserved(*w, at, outcome)
	}
}

// sum counts a refusal that has ended. What fenced only observed is counted by itself.
func (rs *refusals) sum(k pair, r refusal, to time.Time) {
	if isObserving(r.code) || !rs.period.touches(r.since, to) {
		return
	}
	took := rs.period.overlap(r.since, to).Seconds()
	in := rs.reasonOf(r.code)
	in.Count++
	in.TotalSeconds += took
	in.LongestSeconds = max(in.LongestSeconds, took)
	if len(in.targets) < maxKeys {
		in.targets[k.target()] = true
	}
}

func (rs *refusals) reasonOf(code string) *refusedReason {
	in := rs.byCode[code]
	if in == nil && len(rs.byCode) >= maxShown { // codes of fenced are far fewer
		code, in = "others", rs.byCode["others"]
	}
	if in == nil {
		in = &refusedReason{RefusedReason: wire.RefusedReason{Reason: code, Class: string(reason.ClassOf(reason.Code(code)))}, targets: map[target]bool{}}
		rs.byCode[code] = in
	}
	return in
}

// addObserved counts a target that would have been fenced. to is zero while a check asks for it.
func (rs *refusals) addObserved(w wire.ObservedTarget, to time.Time, outcome string) {
	if !rs.period.touches(w.From, to) {
		return
	}
	w.To, w.Outcome = to, outcome
	took := cmp.Or(to, rs.period.Until).Sub(w.From)
	w.Seconds = max(0, took).Seconds()
	rs.count++
	rs.outcome[outcome]++
	if len(rs.targets) < maxKeys {
		rs.targets[target{w.Cluster, cmp.Or(w.Node, w.Machine)}] = true
	}
	if outcome == wire.OutcomeRecovered {
		rs.took.add(max(0, took))
	}
	rs.list.add(w, maxShown)
}

// removed ends what was refused in a cluster.
func (rs *refusals) removed(cluster string, at time.Time) {
	for _, k := range slices.SortedFunc(maps.Keys(rs.open), comparePairs) {
		if k.cluster == cluster {
			rs.endPair(k, at, wire.OutcomeUnknown)
		}
	}
}

// restart puts in doubt what was refused before a start.
func (rs *refusals) restart(used, at time.Time) {
	for k, r := range rs.open {
		r.doubt = r.doubtAt(at, used, r.since)
		rs.open[k] = r
	}
}

// close ends what a start has not told again, and lets the rest last to the end of the period.
func (rs *refusals) close() {
	for _, k := range slices.SortedFunc(maps.Keys(rs.open), comparePairs) {
		switch r := rs.open[k]; {
		case r.ended(rs.period.Until):
			rs.endPair(k, r.known, wire.OutcomeUnknown)
		default:
			rs.sum(k, r, time.Time{})
		}
	}
	for _, t := range slices.SortedFunc(maps.Keys(rs.wanted), func(a, b target) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.name, b.name))
	}) {
		rs.addObserved(*rs.wanted[t], time.Time{}, wire.OutcomeOpen)
	}
}

func comparePairs(a, b pair) int {
	return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.name, b.name), cmp.Compare(a.check, b.check), cmp.Compare(a.run, b.run))
}

// observed reports what would have been fenced.
func (rs *refusals) observed() wire.WouldHaveFenced {
	out := wire.WouldHaveFenced{Count: rs.count, Targets: len(rs.targets), ByOutcome: rs.outcome, Recovery: rs.took.times()}
	out.List, out.ListMore = rs.list.shown(func(a, b wire.ObservedTarget) int { return a.From.Compare(b.From) })
	return out
}

// reasons reports what was refused, the most frequent first. blocked is what is refused now.
func (rs *refusals) reasons(blocked []wire.Blocked) []wire.RefusedReason {
	for _, b := range blocked {
		if (rs.period.Cluster == "" || b.Cluster == rs.period.Cluster) && !isObserving(b.Reason) {
			rs.reasonOf(b.Reason).Now++
		}
	}
	out := []wire.RefusedReason{}
	for _, in := range rs.byCode {
		in.RefusedReason.Targets = len(in.targets)
		out = append(out, in.RefusedReason)
	}
	slices.SortFunc(out, func(a, b wire.RefusedReason) int {
		return cmp.Or(-cmp.Compare(a.Count, b.Count), -cmp.Compare(a.Orders, b.Orders), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}
