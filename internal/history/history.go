// Package history reads a period off the audit log: what was fenced, what would have been, what was refused and for how long, how
// dependable the BMCs were, and how far the log reaches. It is pure: entries go in, oldest first, and a report comes out. What it
// keeps at a time is limited, however long the log is.
package history

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fenced/fenced/internal/audit"
	"github.com/fenced/fenced/internal/event"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/sweep"
	"github.com/fenced/fenced/internal/times"
	"github.com/fenced/fenced/internal/wire"
)

// Limits of what is kept.
const (
	maxOpen  = 20_000 // runs, refusals, outages that have not ended, of each kind
	maxKeys  = 20_000 // different targets, devices and checks, of each kind
	maxShown = 1000   // of each list of the report
)

// Period is what a report is about.
type Period struct {
	Since, Until time.Time
	Cluster      string // empty: all
}

// overlap is how much of a span is in the period. A zero end is that of the period.
func (p Period) overlap(from, to time.Time) time.Duration {
	return max(0, times.Sooner(to, p.Until).Sub(times.Later(from, p.Since)))
}

// touches returns whether a span has a moment in the period.
func (p Period) touches(from, to time.Time) bool {
	return !from.After(p.Until) && (to.IsZero() || !to.Before(p.Since))
}

// has returns whether a moment is in the period.
func (p Period) has(at time.Time) bool { return !at.Before(p.Since) && !at.After(p.Until) }

// History collects what the entries of an audit log say about a period. Create it with New, call Add and AddBreak in the order of
// the log, from its beginning on, and then Report. It is not safe for concurrent use.
type History struct {
	period Period

	evidence evidence
	modes    modes
	runs     runs
	refusals refusals
	bmcs     spans
	limits   spans
}

// New begins a history of one period.
func New(p Period) *History {
	return &History{
		period: p, evidence: evidence{period: p}, modes: modes{period: p, open: map[string]openMode{}},
		runs:     runs{period: p, open: map[string]*openRun{}, known: map[string]bool{}, byResult: map[string]int{}, samples: map[string]*durations{}},
		refusals: newRefusals(p), bmcs: newSpans(p), limits: newSpans(p),
	}
}

// Add takes in the next entry. One that is not before Until is of no interest.
func (h *History) Add(e audit.Entry) {
	if e.At.After(h.period.Until) {
		return
	}
	if e.Starts() {
		h.restart(e)
	}
	h.evidence.add(e)
	if h.period.Cluster != "" && e.Cluster != h.period.Cluster {
		return
	}
	switch {
	case e.Type == event.Ordered:
		h.refusals.order(e)
		return
	case e.Cluster == "":
		return
	}
	switch e.Type {
	case event.ModeChanged:
		h.modes.add(e)
		if e.Inputs == event.NoMode {
			h.removed(e.Cluster, e.At)
		}
	case event.ViewChanged:
		h.evidence.view(e)
	case event.Started:
		h.runs.start(e)
		h.refusals.started(e)
	case event.Stepped:
		h.runs.step(e)
		h.refusals.stepped(e)
	case event.Acting:
		h.runs.act(e)
	case event.Failed:
		if strings.HasPrefix(e.Message, event.NotStarted) {
			h.runs.notStarted(e.Run)
		}
	case event.Refused:
		h.refusals.refused(e)
	case event.RefusalEnded:
		h.refusals.endPair(pairOf(&e), e.At, wire.OutcomeRecovered)
	case event.LimitClosed:
		h.limits.begin(spanKey{cluster: e.Cluster, name: e.Check}, e)
	case event.LimitOpened:
		h.limits.end(spanKey{cluster: e.Cluster, name: e.Check}, e.At)
	case event.CheckChanged:
		if e.Reason == string(reason.NotCovered) { // it is gone, and its limit with it
			h.limits.end(spanKey{cluster: e.Cluster, name: e.Check}, e.At)
		}
	case event.LimitNear:
		h.limits.mark(spanKey{cluster: e.Cluster, name: e.Check}, e)
	case sweep.EventBMC:
		if key := (spanKey{e.Cluster, e.Node, deviceIn(e.Message)}); e.Reason != "" {
			h.bmcs.begin(key, e)
		} else {
			h.bmcs.end(key, e.At)
		}
	}
}

// removed takes in that a reload removed a cluster: nobody looks there any more, so nothing ends there later. The health check tells the end of
// each outage itself.
func (h *History) removed(cluster string, at time.Time) {
	h.evidence.endView(cluster, at)
	h.refusals.removed(cluster, at)
	h.limits.removed(cluster, at)
}

// AddBreak takes in that the log does not continue what was before. What is open then may have ended unseen.
func (h *History) AddBreak(b audit.Break) {
	h.evidence.broken(b)
	h.refusals.restart(b.From, b.To)
	h.bmcs.restart(b.From, b.To)
	h.limits.restart(b.From, b.To)
}

// restart takes in that a daemon started: what the one before had told it may not tell again.
func (h *History) restart(e audit.Entry) {
	used, known := h.evidence.lastUse(e)
	if !known || used.After(e.At) {
		used = e.At
	}
	h.refusals.restart(used, e.At)
	h.bmcs.restart(used, e.At)
	h.limits.restart(used, e.At)
	h.modes.restart(used, e.At)
}

// deviceIn is the device and the host that an event of the BMC health check names: "BMC DEVICE of HOST is ...".
func deviceIn(message string) string {
	for _, mark := range []string{" is not dependable", " is dependable again", " is not checked any more"} {
		if name, _, found := strings.Cut(message, mark); found {
			return strings.TrimPrefix(name, "BMC ")
		}
	}
	return message
}

// runs follows the runs that began in the period.
type runs struct {
	period Period
	open   map[string]*openRun
	// known and knownBefore are the IDs of the newest that began in the period, all of those that began at knownSince or later.
	known, knownBefore  map[string]bool
	knownSince, rotated time.Time // rotated is when the first of known began
	count               int
	byResult            map[string]int // of those that have ended
	ended               newest[wire.PeriodRun]
	dropped             int
	samples             map[string]*durations // by phase
}

// openRun is a run, and since when it is in its step.
type openRun struct {
	wire.PeriodRun
	step  remediate.Step
	since time.Time
}

func (rs *runs) start(e audit.Entry) {
	if !rs.period.has(e.At) || rs.knows(e.Run) {
		return
	}
	if len(rs.open) >= maxOpen {
		rs.dropped++
		return
	}
	r := &openRun{step: remediate.Step(e.Step), since: e.At, PeriodRun: wire.PeriodRun{
		ID: e.Run, Cluster: e.Cluster, Node: e.Node, Machine: e.Machine, Trigger: e.Message, By: "fenced", Result: wire.ResultRunning, Started: e.At}}
	if e.Check == "" {
		r.By = "a person"
	}
	rs.open[e.Run] = r
	rs.remember(e.Run, e.At)
	rs.count++
	if text, found := strings.CutPrefix(e.Inputs, "unhealthySince="); found {
		if since, err := time.Parse(time.RFC3339, text); err == nil {
			rs.sample(phaseDetection, e.At.Sub(since))
		}
	}
}

func (rs *runs) knows(id string) bool { return rs.known[id] || rs.knownBefore[id] }

// remember takes in the ID of a run. Once there are maxKeys new ones, it forgets those before them.
func (rs *runs) remember(id string, began time.Time) {
	if len(rs.known) >= maxKeys {
		rs.known, rs.knownBefore, rs.knownSince, rs.rotated = map[string]bool{}, rs.known, rs.rotated, began
	}
	if rs.rotated.IsZero() {
		rs.rotated = began
	}
	rs.known[id] = true
}

// step takes in that a run entered a step. A stay counts as a phase if the run went on from it, and neither waited nor was Held.
func (rs *runs) step(e audit.Entry) {
	r := rs.open[e.Run]
	if r == nil {
		return
	}
	next := remediate.Step(e.Step)
	if !r.step.Idle() && !next.Idle() && next != r.step && next != remediate.Aborted {
		rs.sample(string(r.step), e.At.Sub(r.since))
	}
	r.step, r.since = next, e.At
	r.Result, r.Reason = wire.ResultOf(next), ""
	if next.Idle() || next.Ended() {
		r.Reason = e.Reason
	}
	if !next.Ended() {
		return
	}
	r.Ended = e.At
	if next == remediate.Done {
		rs.sample(phaseRun, e.At.Sub(r.Started))
	}
	delete(rs.open, e.Run)
	rs.byResult[r.Result]++
	rs.ended.add(r.PeriodRun, maxShown)
}

// notStarted takes in that a run was not started, although the log has its start: the writer of that had stopped waiting for it.
func (rs *runs) notStarted(id string) {
	if rs.open[id] != nil {
		delete(rs.open, id)
		rs.count--
	}
}

// act takes in an action: the isolation says what proved the host off.
func (rs *runs) act(e audit.Entry) {
	r := rs.open[e.Run]
	if r == nil || remediate.Action(e.Action) != remediate.IsolateNode {
		return
	}
	_, rest, _ := strings.Cut(e.Inputs, " proof=")
	proof, _, _ := strings.Cut(rest, " ")
	switch remediate.ProofKind(proof) {
	case remediate.ProofBMC, remediate.ProofDevice, remediate.ProofHuman:
		r.Proof = proof
	}
}

func (rs *runs) sample(phase string, took time.Duration) {
	if took < 0 {
		return
	}
	if rs.samples[phase] == nil {
		rs.samples[phase] = &durations{}
	}
	rs.samples[phase].add(took)
}

// addStored takes in the runs of the state: they say who ordered a run and what proved it, and some are in no log.
func (rs *runs) addStored(list []wire.RunRecord) (onlyThere int) {
	stored := map[string]*wire.RunRecord{}
	for i := range list {
		r := &list[i]
		if !rs.period.has(r.Started) || rs.period.Cluster != "" && r.Cluster != rs.period.Cluster {
			continue
		}
		stored[r.ID] = r
		if len(r.OffReads) == 2 {
			rs.sample(phaseProof, r.OffReads[1].At.Sub(r.OffReads[0].At))
		}
		if !rs.knows(r.ID) && !r.Started.Before(rs.knownSince) {
			onlyThere++
			rs.addUnlogged(r)
		}
	}
	for i := range rs.ended.list {
		complete(&rs.ended.list[i], stored[rs.ended.list[i].ID])
	}
	for id, r := range rs.open {
		if now := stored[id]; now != nil {
			complete(&r.PeriodRun, now)
			rs.goOn(r, now)
		}
	}
	return onlyThere
}

// goOn takes in what the state says of a run that the log leaves open: another instance may have gone on with it, or ended it.
func (rs *runs) goOn(r *openRun, now *wire.RunRecord) {
	if now.Ended.After(rs.period.Until) {
		return
	}
	r.Result, r.Reason, r.Ended = now.Result, now.Reason, now.Ended
	if r.Ended.IsZero() {
		return
	}
	delete(rs.open, r.ID)
	rs.byResult[r.Result]++
	rs.ended.add(r.PeriodRun, maxShown)
}

func (rs *runs) addUnlogged(r *wire.RunRecord) {
	run := wire.PeriodRun{ID: r.ID, Cluster: r.Cluster, Node: r.Node, Machine: r.Machine, Trigger: r.Trigger, By: "fenced",
		Result: r.Result, Reason: r.Reason, Started: r.Started, Ended: r.Ended}
	rs.count++
	if r.Ended.IsZero() {
		rs.open[r.ID] = &openRun{PeriodRun: run}
		return
	}
	rs.byResult[r.Result]++
	rs.ended.add(run, maxShown)
}

// complete adds to a run of the log what its record knows.
func complete(r *wire.PeriodRun, stored *wire.RunRecord) {
	if stored == nil {
		return
	}
	if stored.Actor != "" {
		r.By = stored.Actor
	}
	if stored.Proof != "" {
		r.Proof = stored.Proof
	}
}

// report counts the runs by result, those that are open by what they are now.
func (rs *runs) report() wire.FencedInPeriod {
	out := wire.FencedInPeriod{Count: rs.count, ByResult: maps.Clone(rs.byResult)}
	all := newest[wire.PeriodRun]{slices.Clone(rs.ended.list), rs.ended.more}
	for _, r := range rs.open {
		out.ByResult[r.Result]++
		all.list = append(all.list, r.PeriodRun)
	}
	out.Runs, out.RunsMore = all.shown(func(a, b wire.PeriodRun) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// isObserving says whether a refusal is that fenced only observes the cluster.
func isObserving(code string) bool { return code == string(reason.Observing) }
