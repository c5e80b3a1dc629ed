package admit

import (
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// count fills in the facts about Nodes and runs. f.InFlightTotal is the number of slots
// taken. releasedAt is when a person last released the host; zero: never.
func (b *Book) count(a candidate, uuid string, f *guard.Facts, releasedAt, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.NodeWithSameUUID = b.ledger.NodeWithSameUUID(a.draft.Target.Node, uuid)
	b.countAll(a, f, releasedAt, now)
}

// countAll fills in the facts that reserve evaluates again. b.mu is held.
func (b *Book) countAll(a candidate, f *guard.Facts, releasedAt, now time.Time) {
	b.countNodes(a, f)
	b.countRuns(a, f, releasedAt, now)
	if f.NeedsHost || f.AsksOther {
		f.NextStart, f.StartsLastHour = handoverBook{b}.allRuns().nextStart(b.opt.Limits.Guards().Bucket(), false, now)
	} else {
		f.Deletion = b.runs.countDeletions(b.ledger, b.replacements, b.opt.Limits.Guards(), a, now)
	}
}

// countNodes fills in how many Nodes are down, in the cluster and in the zone. b.mu is held.
func (b *Book) countNodes(a candidate, f *guard.Facts) {
	key := zoneKey(a, b.opt.Limits)
	zone, known := zoneOf(b.ledger, key, &a.draft)
	f.Zone, f.ZoneUnknown = zone, !known && anyZone(b.ledger, b.opt.Rules.ZoneKey, key)
	fleet := fleetOf(b.ledger, b.opt.Rules.ZoneKey, key, f.Zone)
	f.ClusterNodes, f.ClusterNotReady = fleet.Nodes, fleet.NotReady
	f.ZoneNodes, f.ZoneNotReady = fleet.ZoneNodes, fleet.ZoneNotReady
	if a.node == nil && a.draft.Target.Machine != "" && a.draft.Target.Node != "" && !anyMachineHasItsNode(b.ledger) {
		f.NodesMismatch = "no Machine's Node is among them"
	}
}

// countRuns fills in the facts about runs. b.mu is held.
func (b *Book) countRuns(a candidate, f *guard.Facts, releasedAt, now time.Time) {
	all := handoverBook{b}.allRuns()
	h := handoverBook{b}.history(a, releasedAt)
	f.LastRunEnded, f.RunsLastDay, f.FailedRunsInARow = h.lastEnded(), h.startedWithin(now, 24*time.Hour), h.failedInARow()
	for _, r := range all.each() {
		if !r.Open() || r.ID == a.draft.ID { // the latter: a Waiting run that is due
			continue
		}
		asked, isAsked := b.asked[r.ID]
		switch {
		case isAsked && sameHost(r.Target, a.draft.Target):
			f.OpenRun = "the remediator of " + asked.Asks()
		case r.Target.Overlaps(a.draft.Target):
			f.OpenRun = r.ID
		case r.ControlPlane && !r.TakesNoTurn && f.ControlPlane:
			f.ControlPlaneRun = r.ID // Waiting and Held ones, too
		}
		if all.inFlight(r) {
			f.InFlight++
		}
	}
	all.countZone(b.ledger, zoneKey(a, b.opt.Limits), &a.draft, f)
	f.InFlightTotal = max(f.InFlightTotal, f.InFlight)
}

// reserve lists a run as open if the limits still allow it: when two candidates have passed
// all gates, the first one may have used up a limit for the second. slots is the number of
// slots taken over all clusters. An error is a *reason.Refusal. // I11, I12
func (b *Book) reserve(a candidate, r remediate.Run, slots int, releasedAt, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errRemoved()
	}
	if g, refused := firstFailing(b.checkGates(a, now)); refused {
		return reason.RefusalOf(g)
	}
	if why := (handoverBook{b}).blocks(r.Target); why != "" { // I22
		return &reason.Refusal{Reason: reason.AlreadyRequested, Message: why}
	}
	a.draft = r
	f := guard.Facts{
		Manual: r.Manual != nil, ControlPlane: r.ControlPlane, NeedsHost: r.Strategy == remediate.PowerCycle, InFlightTotal: slots,
	}
	b.countAll(a, &f, releasedAt, now)
	if g, refused := firstFailing(guard.StartGates(b.opt.Limits.Guards(), f, now)); refused {
		return reason.RefusalOf(g)
	}
	b.runs.byID[r.ID], b.runsChanged = &r, true
	return nil
}

// checkGates returns a failing gate if the check no longer asks for the run, now that other
// runs have started: its limit, a budget or another check may forbid it. It returns nil if
// the check still asks, or if a person ordered the run. b.mu is held.
func (b *Book) checkGates(a candidate, now time.Time) []reason.Gate {
	if a.check == nil {
		return nil
	}
	b.applyOpenRuns(now)
	if a.draft.Request != nil {
		return requestBook{b}.requestGates(a.draft, now)
	}
	code := reason.NotUnhealthy
	targets := b.ledger.ActingOn(a.check.ID(), subjectOf(a.draft.Target), now)
	for i := range targets {
		t := &targets[i]
		switch {
		case targetKey(t) != a.key:
		case isActionable(a.check, t) && strategyOf(a.check, t) == a.draft.Strategy:
			return nil
		case len(t.Refusals) > 0:
			code = t.Refusals[0]
		}
	}
	return []reason.Gate{{Name: "check", Reason: code, Value: "the check no longer asks for this action", Threshold: "still asked for", Source: "check " + a.check.Key()}}
}

// evaluation is what policy needs to evaluate the target of one run again: the check as it
// is now, and its surroundings.
type evaluation struct {
	check      *policy.Check // nil: it is gone
	context    policy.CheckContext
	requests   []*policy.Request
	doubt      policy.Doubt // why the fresh Machine and Node may not belong together
	notOwned   policy.NotOwned
	newMachine string // the Machine that has claimed the Node since; "" if the run has a Machine
}

// evaluationOf finds the run's check and what it needs to evaluate the fresh Machine m and
// Node n, each of which may be nil. ok is false before the view is complete: after a start
// the ledger knows only the checks from files.
func (b *Book) evaluationOf(r remediate.Run, m *policy.Machine, n *policy.Node) (j evaluation, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.complete {
		return evaluation{}, false
	}
	j.doubt, j.notOwned = b.ledger.Doubt(m, n), b.ledger.NotOwned(m, n)
	if m := b.ledger.MachineOf(r.Target.Node); m != nil && r.Target.Machine == "" {
		j.newMachine = m.Key()
	}
	for _, counters := range b.ledger.Counters() {
		check := b.ledger.Check(counters.ID())
		if check == nil || !isCheckOf(r, check) {
			continue
		}
		name := r.Target.Machine // the name of a target in the check
		if check.SelectsNodes {
			name = r.Target.Node
		}
		j.check, j.context, j.requests = check, b.ledger.CheckContext(check), b.ledger.Requests(name, m, n)
		break
	}
	return j, true
}
