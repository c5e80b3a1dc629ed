package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/remediate"
	"github.com/fenced/fenced/internal/times"
)

// What the limits count: how many Nodes are down, and what each run uses up, which is its starts, its
// place in flight, its place in its zone, and its part in the history of its host. What another
// remediator was asked uses up the same. // I11, I15

// Count fills in the facts about Nodes and runs. f.InFlightTotal is the number of slots
// taken. releasedAt is when a person last released the host; zero: never.
func (c *Model) Count(a Candidate, uuid string, f *guard.Facts, releasedAt, now time.Time) {
	defer c.lock()()
	f.NodeWithSameUUID = c.Objects.ledger.NodeWithSameUUID(a.Draft.Target.Node, uuid)
	c.countAll(a, f, releasedAt, now)
}

// countAll fills in the facts that reserve evaluates again: how many Nodes are down, in the cluster and in the zone,
// and what runs use up. Both locks are held.
func (c *Model) countAll(a Candidate, f *guard.Facts, releasedAt, now time.Time) {
	key := cmp.Or(a.zoneKey, c.Options.Limits.Now().Guards.ZoneKey)
	f.Zone = zoneOf(c.Objects.ledger, key, a.Draft.NodeLabels, a.Draft.Target.Node)
	fleet := fleetOf(c.Objects.ledger, c.Options.Rules.ZoneKey, key, f.Zone)
	f.ZoneUnknown = f.Zone == "" && fleet.HasZones
	f.ClusterNodes, f.ClusterNotReady = fleet.Nodes, fleet.NotReady
	f.ZoneNodes, f.ZoneNotReady = fleet.ZoneNodes, fleet.ZoneNotReady
	if a.Node == nil && a.Draft.Target.Machine != "" && a.Draft.Target.Node != "" && !anyMachineHasItsNode(c.Objects.ledger) {
		f.NodesMismatch = "no Machine's Node is among them"
	}
	c.countRuns(a, key, f, releasedAt, now)
	if f.NeedsHost || f.AsksOther {
		f.NextStart, f.StartsLastHour = c.Runs.nextStart(c.Options.Limits.Now().Guards.Bucket(), false, now)
	} else {
		f.Deletion = c.Runs.countDeletions(c.Objects.ledger, c.Objects.replacements, c.Options.Limits.Now().Guards, a, now)
	}
}

// countRuns fills in the facts about runs. key is the label that holds the zone. Both locks are held.
func (c *Model) countRuns(a Candidate, key string, f *guard.Facts, releasedAt, now time.Time) {
	c.Runs.history(a, c.Objects.stableUntil[a.Draft.Target.Node], releasedAt, now).count(f, now)
	zones := zoneCount{}
	for _, r := range c.Runs.byID {
		if !r.Open() {
			continue
		}
		if c.isGone(r.Target) {
			f.NodesOfRuns++
		}
		if r.ID == a.Draft.ID { // a Waiting run that is due
			continue
		}
		switch {
		case sameHost(r.Target, a.Draft.Target):
			f.OpenRun = r.ID
		case r.ControlPlane && !r.TakesNoTurn && f.ControlPlane:
			f.ControlPlaneRun = r.ID // Waiting and Held ones, too
		}
		if !c.Runs.inFlight(r) {
			continue
		}
		f.InFlight++
		if r.Step != remediate.AwaitNode { // then its host is known to be on
			zones.add(zoneOf(c.Objects.ledger, key, r.NodeLabels, r.Target.Node))
		}
	}
	for _, p := range c.Runs.repairs {
		if (p.By != "" || p.Check != "") && c.isGone(p.Target) {
			f.NodesOfRuns++
		}
		if p.By == "" || p.ID == a.Draft.ID {
			continue
		}
		switch {
		case sameHost(p.Target, a.Draft.Target):
			f.OpenRun = "the remediator of " + p.By
		case p.ControlPlane && !p.TakesNoTurn && f.ControlPlane:
			f.ControlPlaneRun = p.ID
		}
		if p.InFlight {
			f.InFlight++
			zones.add(zoneOf(c.Objects.ledger, key, p.NodeLabels, p.Target.Node))
		}
	}
	f.ZoneInFlight = zones.inFlight(f.Zone, f.ZoneUnknown)
	f.InFlightTotal = max(f.InFlightTotal, f.InFlight)
}

// isGone says whether the Node of a target is gone. The lock of the Objects is held.
func (c *Model) isGone(t remediate.Target) bool {
	return t.NodeUID != "" && c.Objects.ledger.Node(t.Node) == nil
}

// startsOf lists when a run began, and began again, as the rate of its kind counts it: a run that
// deletes a Machine is one kind, a power cycle the other. A power cycle that was aborted before it acted
// on the host does not count. A Waiting run that was admitted begins now: of two that are due, the second
// must know of the first. // I11
func (rs runs) startsOf(r *remediate.Run, deletion bool, now time.Time) (list []time.Time) {
	if DeletesOnly(r) != deletion || r.Step == remediate.Aborted && !deletion && !r.TouchedHost() {
		return nil
	}
	for _, s := range r.Starts() {
		list = append(list, s.At)
	}
	if rs.isAdmitted(r) {
		list = append(list, now)
	}
	return list
}

// isAdmitted says whether a Waiting run has passed the limits, and is about to begin again.
func (rs runs) isAdmitted(r *remediate.Run) bool {
	return r.Step == remediate.Waiting && (rs.reserved[r.ID] || r.Retry != nil)
}

// DeletesOnly says whether a run deletes its Machine and switches no power.
func DeletesOnly(r *remediate.Run) bool { return r.Strategy == remediate.DeleteMachine }

// inFlight says whether a run counts against the limits of power cycles in flight: from its
// start until its Node has registered, or it is Waiting or Held or has ended. A Waiting run
// counts again from the moment when it was admitted. // I11
func (rs runs) inFlight(r *remediate.Run) bool {
	return r.Open() && !DeletesOnly(r) && (!r.Step.Idle() || rs.isAdmitted(r)) && r.Step != remediate.RestoreNode
}

// nextStart is when the bucket has a token for another run of a kind, and how many of that
// kind the cluster started in the last hour. // I11
func (rs runs) nextStart(bucket guard.Bucket, deletion bool, now time.Time) (at time.Time, lastHour int) {
	if bucket.PerHour <= 0 {
		return time.Time{}, 0
	}
	var starts []time.Time
	for _, r := range rs.byID {
		starts = append(starts, rs.startsOf(r, deletion, now)...)
	}
	for _, p := range rs.repairs {
		for i := 0; i < len(p.Tries) && !deletion; i++ {
			starts = append(starts, p.Tries[i].Started)
		}
	}
	for _, at := range starts {
		if now.Sub(at) < time.Hour {
			lastHour++
		}
	}
	return bucket.Next(starts, now), lastHour
}

// zoneOf returns the zone of a host. The labels in its record come first: a host stays
// where it is, and its Node may be gone, lack the zone label until step 5, or be that of another machine with the
// same name. It is "" if neither tells the zone. In a cluster with zones the host then counts in every zone, whatever
// its Node: somebody may have made that again without its label. // I11
func zoneOf(l *policy.Ledger, key string, recorded map[string]string, node string) string {
	if zone := recorded[key]; zone != "" {
		return zone
	}
	if n := l.Node(node); n != nil {
		return n.Labels.Get(key)
	}
	return ""
}

// zoneCount is how many runs are in flight by zone. Those in inAny may be in each of them. The breaker of
// a zone counts only Nodes that exist: it is about a view that cannot be trusted, and a run has proven its
// host off. // I11
type zoneCount struct {
	byZone map[string]int
	inAny  int
}

func (c *zoneCount) add(zone string) {
	if zone == "" {
		c.inAny++
		return
	}
	if c.byZone == nil {
		c.byZone = map[string]int{}
	}
	c.byZone[zone]++
}

// inFlight is how many count in a zone. One that is not known may be the one with the most of them.
func (c *zoneCount) inFlight(zone string, unknown bool) int {
	switch {
	case unknown:
		return c.inAny + slices.Max(append(slices.Collect(maps.Values(c.byZone)), 0))
	case zone != "":
		return c.inAny + c.byZone[zone]
	}
	return 0
}

// fleetOf counts Nodes, and those of one zone. The ledger counts by one zone label,
// ledgerKey. For a check with another zone label this function counts, which is slower.
func fleetOf(l *policy.Ledger, ledgerKey, key, zone string) policy.Fleet {
	if key == ledgerKey {
		return l.Fleet(zone)
	}
	f := l.Fleet("")
	f.HasZones = false
	for n := range l.Nodes() {
		of := n.Labels.Get(key)
		f.HasZones = f.HasZones || of != ""
		if of == "" || of != zone {
			continue
		}
		f.ZoneNodes++
		if !n.Ready() {
			f.ZoneNotReady++
		}
	}
	return f
}

// healthyReset: once a Node was Ready for this time after a run, that run and earlier ones
// no longer count in the back-off. // I15
const healthyReset = time.Hour

// history lists the power cycles that acted on one host, by fenced or by another remediator.
type history struct {
	powerCycles []powerCycle
	// releasedAt is when a person released the host. Runs that started before do not count.
	releasedAt time.Time
	// stableUntil is when the Node's last period of at least healthyReset of Ready ended. // I15
	stableUntil time.Time
}

type powerCycle struct {
	started, ended time.Time
	acted          []time.Time // each start that acted on the host: a run that waited may begin again
	open, done     bool
}

// history collects what has acted on the host of a candidate, the newest first, also under another name
// of the host. While a check goes through its escalation, the objects of its other templates do not count:
// their number and their times are those that the author of the check chose, each comes once, and a
// default of three a day would end an escalation of four. Afterwards all of them count. // I15
func (rs runs) history(a Candidate, stableUntil, releasedAt, now time.Time) history {
	h := history{releasedAt: releasedAt, stableUntil: stableUntil}
	for _, r := range rs.byID {
		if r.Strategy == remediate.PowerCycle && r.TouchedHost() && sameHost(r.Target, a.Draft.Target) {
			cycle := powerCycle{started: r.Started, ended: rs.endedAt(r, now), open: r.Open(), done: r.Step == remediate.Done}
			for _, s := range r.Starts() {
				if s.Acted {
					cycle.acted = append(cycle.acted, s.At)
				}
			}
			h.powerCycles = append(h.powerCycles, cycle)
		}
	}
	for _, p := range rs.repairs {
		for _, t := range p.Tries {
			if sameHost(p.Target, a.Draft.Target) && !p.isStep(t, a) {
				h.powerCycles = append(h.powerCycles, powerCycle{t.Started, rs.noLaterThanSeen(t.Ended, p.seenEnd, now), []time.Time{t.Started}, t.Open, t.Done})
			}
		}
	}
	slices.SortFunc(h.powerCycles, func(a, b powerCycle) int { return b.started.Compare(a.started) })
	return h
}

// count fills in the latest end of a power cycle; how many started within the last day, and after the last release
// by a person; and how many of the newest in a row did not end Done, since that release and since the Node was last
// Ready for healthyReset. // I15
func (h history) count(f *guard.Facts, now time.Time) {
	f.LastRunEnded, f.RunsLastDay, f.FailedRunsInARow = time.Time{}, 0, 0
	inARow := true
	for _, r := range h.powerCycles {
		f.LastRunEnded = times.Later(f.LastRunEnded, r.ended)
		for _, at := range r.acted {
			if now.Sub(at) < 24*time.Hour && !at.Before(h.releasedAt) {
				f.RunsLastDay++
			}
		}
		switch {
		case r.open:
		case r.done, r.started.Before(h.releasedAt), !r.ended.After(h.stableUntil.Add(-healthyReset)):
			inARow = false
		case inARow:
			f.FailedRunsInARow++
		}
	}
}

// createdSlack is how much earlier than the deletion its replacement may seem to be created:
// the times come from two clocks, and the API server's has whole seconds.
const createdSlack = 10 * time.Second

// deletionSeen is how long the watch may take to show that a Machine is being deleted, or that
// its owner was asked to replace it.
const deletionSeen = time.Minute

func (rs runs) countDeletions(l *policy.Ledger, known replacements, limits guard.Limits, a Candidate, now time.Time) (d guard.DeletionFact) {
	d.Next, d.LastHour = rs.nextStart(limits.DeletionBucket(), true, now)
	for _, r := range rs.byID {
		if r.Manual == nil && withoutFile(r.CheckID) == withoutFile(a.Draft.CheckID) && (DeletesOnly(r) && r.Step == remediate.Reprovision || rs.isWithin(r, limits.DeletionTimeout, now) && rs.isDisappearing(l, r, now)) {
			d.InProgress++
		}
	}
	if o := a.Draft.Origin; o != nil && o.Controller != "" {
		of := controllerOf(a.Draft.Target.MachineAPI, a.Draft.Target.Namespace, o.Controller)
		s := rs.deletionsOf(of, known.lastGood[of], now)
		d.Last, d.FailedReplacements = s.last, s.failed
		if o.NeverReady && s.replaces(*o) {
			d.FailedReplacements++
			d.StartingUntil = a.startingUntil
		}
	}
	return d
}

// disappearing lists the runs that asked for the deletion of a Machine which, or the Node of
// which, still exists: within the timeout, and for longer.
func (rs runs) disappearing(l *policy.Ledger, timeout time.Duration, now time.Time) (inProgress, overdue []remediate.Run) {
	for _, r := range rs.byID {
		switch {
		case r.MachineDeletedAt().IsZero() || !rs.isDisappearing(l, r, now):
		case rs.isWithin(r, timeout, now):
			inProgress = append(inProgress, *r)
		default:
			overdue = append(overdue, *r)
		}
	}
	return inProgress, overdue
}

// deletedAt is when a run has let its Machine be deleted; zero: it has not. A time to come was written by a clock
// that was ahead: the deletion is no later than the end of the run. // I15
func (rs runs) deletedAt(r *remediate.Run, now time.Time) time.Time {
	at := r.MachineDeletedAt()
	if at.After(now) {
		at = times.Sooner(at, rs.endedAt(r, now))
	}
	return at
}

// isWithin says whether a run has asked for the deletion of its Machine, and the timeout of
// that is not over.
func (rs runs) isWithin(r *remediate.Run, timeout time.Duration, now time.Time) bool {
	at := rs.deletedAt(r, now)
	return !at.IsZero() && now.Before(at.Add(timeout))
}

// isDisappearing says whether the Machine of a run that asked for its deletion still exists and
// is to be deleted, or whether the Node of that Machine exists. Another Machine or Node of the
// same name is neither.
func (rs runs) isDisappearing(l *policy.Ledger, r *remediate.Run, now time.Time) bool {
	t := &r.Target
	if m := l.MachineIn(t.MachineAPI, t.Namespace, t.Machine); m != nil && m.UID == t.MachineUID {
		// Otherwise it was refused, or taken back because the Machine has recovered.
		return m.Deleting || m.OwnerRemediated != "" || r.Step == remediate.Reprovisioned && rs.isWithin(r, deletionSeen, now)
	}
	n := l.Node(t.Node)
	return n != nil && n.UID != "" && (n.UID == t.NodeUID || n.UID == r.NewNodeUID)
}

// deletions are those of the Machines of one controller.
type deletions struct {
	first, last time.Time // zero: there was none
	// failed counts the replacements that were deleted before they were ever Ready, after the
	// controller made the newest Machine that has been Ready.
	failed int
}

// deletionsOf collects the deletions of the Machines of a controller. lastGood is when the
// newest of its Machines was created that is known to have been Ready.
func (rs runs) deletionsOf(of controller, lastGood, now time.Time) (s deletions) {
	var ended []*remediate.Run // with the deletion of a Machine
	for _, r := range rs.byID {
		at := rs.deletedAt(r, now)
		if at.IsZero() || r.Origin == nil || controllerOf(r.Target.MachineAPI, r.Target.Namespace, r.Origin.Controller) != of {
			continue
		}
		ended = append(ended, r)
		if s.last = times.Later(s.last, at); s.first.IsZero() || at.Before(s.first) {
			s.first = at
		}
		if !r.Origin.NeverReady {
			lastGood = times.Later(lastGood, r.Origin.Created)
		}
	}
	failed := map[string]bool{} // by UID: one Machine may need several runs
	for _, r := range ended {
		if r.Origin.NeverReady && s.replaces(*r.Origin) && rs.deletedAt(r, now).After(lastGood.Add(createdSlack)) {
			failed[r.Target.MachineUID] = true
		}
	}
	s.failed = len(failed)
	return s
}

// replaces says whether a Machine was created after an earlier deletion.
func (s deletions) replaces(o remediate.Origin) bool {
	return !s.first.IsZero() && !o.Created.IsZero() && o.Created.After(s.first.Add(-createdSlack))
}

// startingUntil returns when the start-up timeout of a target's Machine ends. It is zero if
// there is no timeout, or if the verdict is about the Machine itself, so that it cannot be
// about the Machine before it.
func startingUntil(t *policy.TargetReport, m *policy.Machine) time.Time {
	switch t.Reason {
	case reason.MachineFailed, reason.MachineCondition, reason.RemediateRequested:
		return time.Time{}
	}
	if m == nil || m.Created.IsZero() || t.StartupTimeout <= 0 {
		return time.Time{}
	}
	return m.Created.Add(t.StartupTimeout)
}
