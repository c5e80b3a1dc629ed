package admit

import (
	"cmp"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
)

// count fills in what the guards ask about Nodes and runs. f.InFlightTotal is how many
// slots are taken. Since forgiven a person lets the host be fenced again.
func (b *Book) count(a candidate, uuid string, f *guard.Facts, forgiven, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f.NodeWithSameUUID = twinOf(b.ledger, a.draft.Target.Node, uuid)
	b.countAll(a, f, forgiven, now)
}

// countAll is the part of count that is asked again when the run takes its place. b.mu is
// held.
func (b *Book) countAll(a candidate, f *guard.Facts, forgiven, now time.Time) {
	f.NextStart, f.StartsLastHour = b.runs.nextStart(b.opt.Guards, now)
	b.countNodes(a, f)
	b.countRuns(a, f, forgiven, now)
}

// countNodes fills the everything-down and zone facts. b.mu is held.
func (b *Book) countNodes(a candidate, f *guard.Facts) {
	key := cmp.Or(a.zoneKey, b.opt.Guards.ZoneKey)
	if a.node != nil {
		f.Zone = a.node.Labels[key]
	}
	fleet := fleetOf(b.ledger, b.opt.Rules.ZoneKey, key, f.Zone)
	f.ClusterNodes, f.ClusterNotReady = fleet.Nodes, fleet.NotReady
	f.ZoneNodes, f.ZoneNotReady = fleet.ZoneNodes, fleet.ZoneNotReady
	if a.node == nil && a.draft.Target.Machine != "" && a.draft.Target.Node != "" && !anyMachineHasItsNode(b.ledger) {
		f.NodesMismatch = "no Machine's Node is among them"
	}
}

// countRuns fills the facts about runs. b.mu is held.
func (b *Book) countRuns(a candidate, f *guard.Facts, forgiven, now time.Time) {
	key := cmp.Or(a.zoneKey, b.opt.Guards.ZoneKey)
	h := b.runs.history(a.draft.Target, b.well[a.draft.Target.Node], forgiven)
	f.LastRunEnded, f.RunsLastDay, f.FailedRunsInARow = h.lastEnded(), h.within(now, 24*time.Hour), h.notDone()
	for _, r := range b.runs.byID {
		if !r.Open() {
			continue
		}
		same := r.Target.Overlaps(a.draft.Target)
		if same {
			f.OpenRun = r.ID
		} else if r.ControlPlane && f.ControlPlane {
			f.ControlPlaneRun = r.ID // Held ones, too
		}
		if inFlight(r) {
			f.InFlight++
		}
		if f.Zone != "" && offInZone(r) && b.runs.mayBeIn(b.ledger, f.Zone, key, r) {
			f.ZoneInFlight++
		}
	}
	f.InFlightTotal = max(f.InFlightTotal, f.InFlight)
}

// reserve lists a run as open if nothing stands against it at this moment: of two
// candidates that have passed all gates, the first may have closed one for the second.
// slots is how many are taken over all clusters. // I11, I12
func (b *Book) reserve(a candidate, r remediate.Run, slots int, forgiven, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g, refused := firstFailing(b.stillAsked(a, now)); refused {
		return reason.RefusalOf(g)
	}
	a.draft = r
	f := guard.Facts{
		Manual: r.Manual != nil, ControlPlane: r.ControlPlane, NeedsHost: r.Strategy == remediate.PowerCycle, InFlightTotal: slots,
	}
	b.countAll(a, &f, forgiven, now)
	if g, refused := firstFailing(guard.StartGates(b.opt.Guards, f, now)); refused {
		return reason.RefusalOf(g)
	}
	b.runs.byID[r.ID], b.moved = r, true
	if a.node != nil {
		b.runs.labels[r.ID] = a.node.Labels
	}
	return nil
}

// stillAsked is a gate that does not hold when the check asks for the run no more, now
// that others were begun: its limit, a budget or another check may forbid it. b.mu is
// held.
func (b *Book) stillAsked(a candidate, now time.Time) []reason.Gate {
	if a.asks == nil {
		return nil
	}
	b.bringRuns(now)
	code := reason.NotUnhealthy
	for _, check := range b.ledger.Acting(now) {
		if check.ID() != a.asks.ID() {
			continue
		}
		for i := range check.Targets {
			t := &check.Targets[i]
			switch {
			case targetKey(t) != a.key:
			case acts(a.asks, t) && strategyOf(a.asks, t) == a.draft.Strategy:
				return nil
			case len(t.Refusals) > 0:
				code = t.Refusals[0]
			}
		}
	}
	return []reason.Gate{{Name: "check", Reason: code, Value: "it asks for this no more", Threshold: "still asked for", Source: "check " + a.asks.Key()}}
}

// judgement is a check as it is now, and what one run's target is judged amid.
type judgement struct {
	check    *policy.Check // nil: it is gone
	context  policy.CheckContext
	requests []*policy.Request
	doubt    policy.Doubt // whether fresh Machine and Node belong together
	claimed  string       // the Machine that has turned up for the Node of a run that has none
}

// judgementOf finds the run's check and gives what it needs to judge the fresh Machine and
// Node, which may be nil; false before the cluster was seen whole: after a start the ledger
// knows only the checks from files.
func (b *Book) judgementOf(r remediate.Run, m *policy.Machine, n *policy.Node) (j judgement, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.whole {
		return judgement{}, false
	}
	j.doubt = b.ledger.Doubt(m, n)
	if m := b.ledger.MachineOf(r.Target.Node); m != nil && r.Target.Machine == "" {
		j.claimed = m.Key()
	}
	for _, counters := range b.ledger.Counters() {
		check := b.ledger.Check(counters.ID())
		if check == nil || !isCheckOf(r, check) {
			continue
		}
		name := r.Target.Machine // the check knows its targets by that
		if check.SelectsNodes {
			name = r.Target.Node
		}
		j.check, j.context, j.requests = check, b.ledger.CheckContext(check), b.ledger.Requests(name)
		break
	}
	return j, true
}
