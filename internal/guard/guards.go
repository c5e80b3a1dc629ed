package guard

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

// Gates are the conditions outside the checks that must all hold before the
// daemon acts. Cheap and general ones come first, so that the first failure says
// most. The list always contains every gate, passed or not.
//
// An order by a person skips the gates that question the daemon's own decision:
// clocks, rates and the zone breaker. It never skips pause, hold, identity,
// quorum, another remediator or the own host.
func Gates(l Limits, f Facts, now time.Time) []reason.Gate {
	gates := slices.Concat(viewGuards(l, f, now), targetGuards(f), hostGuards(f), rateGuards(l, f, now))
	for i := range gates { // of some, nothing was read yet
		switch gates[i].Name {
		case "target", "nodeAlive", "nodeLease", "contested", "powerOwner":
			if f.ClusterUnread {
				gates[i] = gates[i].NotChecked("")
			}
		case "host":
			if f.HostUnread {
				gates[i] = gates[i].NotChecked(f.Host + ": the BMC is ")
			}
		case "identity":
			if f.HostUnread && f.Identity.Mode != "off" {
				gates[i] = gates[i].NotChecked("")
			}
		}
	}
	return waive(f, gates)
}

// StartGates are the gates that a run which just started can close for the next
// one. Package admit checks them again when it lists the run
// as open. // I11, I12
func StartGates(l Limits, f Facts, now time.Time) []reason.Gate {
	gates := []reason.Gate{openRunGuard(f), controlPlaneGuard(f)}
	return waive(f, append(gates, rateGuards(l, f, now)...))
}

// waive passes the waivable gates if a person orders the action now.
func waive(f Facts, gates []reason.Gate) []reason.Gate {
	if !f.Manual || f.OwnRetry {
		return gates
	}
	for i := range gates {
		if g := &gates[i]; !g.Pass && waivable[g.Reason] {
			g.Pass, g.Waived, g.Until = true, true, time.Time{}
		}
	}
	return gates
}

// waivable are the gates that an order by a person passes: a person has checked,
// and takes responsibility.
var waivable = map[reason.Code]bool{
	reason.QuietPeriod: true, reason.EverythingDown: true, reason.ZoneBreaker: true, reason.Protected: true, reason.NodeAlive: true,
	reason.InFlightLimit: true, reason.ZoneInFlight: true, reason.PowerInterval: true, reason.FencesPerDay: true,
	reason.TotalInFlight: true, reason.StartRate: true, reason.Quarantined: true,
}

// roundTo is how precisely a gate shows a duration that was measured.
const roundTo = 100 * time.Millisecond

// viewGuards check that this daemon may act in the cluster at all, and that its
// view of the cluster is valid. If the daemon is pointed at another cluster, every Node
// seems missing. // I16
func viewGuards(l Limits, f Facts, now time.Time) []reason.Gate {
	visible := countText(f.ClusterNodes, "Node")
	if f.NodesMismatch != "" {
		visible += "; " + f.NodesMismatch
	}
	quiet := "over"
	if now.Before(f.QuietUntil) {
		quiet = "until " + f.QuietUntil.UTC().Format(time.RFC3339)
	}
	return []reason.Gate{
		modeGuard(f),
		reason.NoneOf("owner", reason.NotOwner, f.ForeignOwner, cmp.Or(f.OwnerSource, "Lease fenced")),
		reason.NoneOf("pause", reason.Paused, f.Paused, "fencectl pause"),
		reason.NoneOf("files", reason.FilesRefused, f.FilesRefused, "policies.d and hosts.d"), // I18
		reason.NoneOf("audit", reason.AuditFailed, f.AuditTrouble, "audit log"),               // I24
		reason.NoneOf("state", reason.NotSaved, f.StateTrouble, "state"),
		reason.NewGate("viewSynced", f.ViewSynced, reason.NotSynced, strconv.FormatBool(f.ViewSynced), "true", "watch"),
		reason.NewGate("viewAge", f.ViewAge <= l.ViewMaxAge, reason.ViewStale, f.ViewAge.Round(roundTo).String(), l.ViewMaxAge.String(), "guards.viewMaxAge"),
		reason.NewGate("clockSkew", f.ClockSkew.Abs() <= l.ClockSkewMax, reason.ClockSkew, f.ClockSkew.Round(roundTo).String(), l.ClockSkewMax.String(), "guards.clockSkewMax"),
		reason.NewGate("nodesVisible", f.ClusterNodes > 0 && f.NodesMismatch == "", reason.NoNodesVisible, visible, "at least 1 of this cluster", "watch"),
		reason.NewGate("everythingDown", f.ClusterNodes+f.NodesOfRuns < 2 || f.ClusterNotReady < f.ClusterNodes, reason.EverythingDown,
			fmt.Sprintf("%d of %d not ready", f.ClusterNotReady, f.ClusterNodes), "not all", "watch"),
		reason.NewGate("quietPeriod", !now.Before(f.QuietUntil), reason.QuietPeriod, quiet, l.QuietPeriod.String(), "guards.quietPeriod").PassesFrom(f.QuietUntil),
	}
}

// modeGuard forbids to act in mode observe, except to an administrator: that order is about one
// target, and starts nothing else.
func modeGuard(f Facts) reason.Gate {
	value := f.Mode
	if f.Mode == ModeObserve && f.Armed {
		value += ", armed"
	}
	byAdmin := f.Mode == ModeObserve && !f.Armed && f.Manual && f.ByAdmin
	if byAdmin {
		value += ": an administrator fences by hand"
	}
	threshold := "evaluate, or armed"
	if f.Mode == ModeRespond {
		threshold = "a remediation request, or an order"
	}
	return reason.NewGate("mode", ModeAllows(f), reason.Observing, value, threshold, "clusters[].mode")
}

// ModeAllows says whether the mode of the cluster allows an action. It depends on the mode and on
// who asked. An open run is asked again before each attempt. // I4
func ModeAllows(f Facts) bool {
	switch f.Mode {
	case ModeEvaluate:
		return true
	case ModeObserve:
		return f.Armed || f.Manual && f.ByAdmin
	case ModeRespond:
		return f.Manual || f.Requested
	}
	return false
}

// targetGuards check that nothing forbids an action on this target.
func targetGuards(f Facts) []reason.Gate {
	protected := ""
	if f.Protected {
		protected = "protected"
	}
	alive := ""
	if f.NodeAlive {
		alive = "Ready is Unknown, but the kubelet renews its Lease"
	}
	quorum := reason.NewGate("quorum", true, "", "not a control-plane host", "none", "guards.controlPlane")
	if f.ControlPlane { // etcd must keep its quorum without it // I12
		quorum = reason.NewGate("quorum", f.QuorumHolds, cmp.Or(f.QuorumReason, reason.QuorumUnknown),
			cmp.Or(f.QuorumDetail, "etcd's health is not known"), "a quorum without it", "guards.controlPlane")
	}
	return []reason.Gate{
		reason.NoneOf("hold", reason.Hold, f.Held, "fencectl hold"),
		reason.NoneOf("quarantine", reason.Quarantined, f.Quarantined, "guards.maxFencesPerDay").PassesFrom(f.QuarantinedUntil), // I15
		openRunGuard(f),
		reason.NoneOf("hostEntry", reason.InvalidHost, f.EntryRefused, "hosts.d"),
		reason.NoneOf("protected", reason.Protected, protected, "hosts.d"),
		reason.NoneOf("ownHost", reason.OwnHost, f.OwnHost, "this host"),                        // I13
		reason.NoneOf("uniqueUUID", reason.DuplicateUUID, f.NodeWithSameUUID, "Nodes"),          // I9
		reason.NoneOf("frozen", cmp.Or(f.FrozenReason, reason.Frozen), f.Frozen, "a false Off"), // I5
		reason.NoneOf("target", reason.TargetChanged, f.Replaced, "fresh reads"),                // I2, I27
		reason.NoneOf("nodeAlive", reason.NodeAlive, alive, "Lease"),                            // I4
		reason.NoneOf("contested", reason.Contested, f.Contested, "leader Lease"),
		controlPlaneGuard(f),
		quorum,
	}
}

func openRunGuard(f Facts) reason.Gate {
	return reason.NoneOf("openRun", reason.UnderRemediation, f.OpenRun, "state")
}

// controlPlaneGuard allows one control-plane host at a time. // I12
func controlPlaneGuard(f Facts) reason.Gate {
	return reason.NoneOf("controlPlane", reason.ControlPlaneBusy, f.ControlPlaneRun, "state")
}

// hostGuards check that there is a BMC, and that it is the right one. There are
// none if the action needs no BMC.
func hostGuards(f Facts) []reason.Gate {
	if !f.NeedsHost {
		return nil
	}
	host := reason.NewGate("host", f.HostError == "" && f.Host != "", f.HostError, f.Host, "a usable BMC", "BareMetalHost or hosts.d")
	switch {
	case host.Pass && f.HostDetail != "":
		host.Value += ": " + f.HostDetail
	case !host.Pass:
		host.Value = f.HostDetail
		if host.Reason == "" {
			host.Reason = reason.NoHost
		}
	}
	return []reason.Gate{
		host,
		reason.NoneOf("uniqueHost", reason.DuplicateHost, f.Duplicate, "inventory and BMCs"), // I9
		reason.NoneOf("powerOwner", reason.PowerOwner, f.PowerOwner, "BareMetalHost"),
		reason.NoneOf("nodeLease", reason.LeaseTooLong, f.LeaseTooLong, "Lease"), // I5
		identityGuard(f),
	}
}

// identityGuard compares BMC and Node. A BMC that was not read yet does not
// refuse: step 1 reads and compares on the session that it then uses. // I8
func identityGuard(f Facts) reason.Gate {
	i := f.Identity
	g := reason.NewGate("identity", true, "", "", i.Mode, "guards.identity")
	switch {
	case i.Mode == "off" && !f.Manual:
		g.Pass, g.Reason, g.Value = false, reason.IdentityUnknown, "not compared"
	case i.Mode == "off":
		g.Value = "not compared"
	case i.Verdict == IdentityDiffers:
		g.Pass, g.Reason, g.Value = false, reason.IdentityMismatch, fmt.Sprintf("BMC %s, Node %s", i.BMC, i.Node)
	case i.Verdict == IdentityNotEnrolled:
		g.Pass, g.Reason, g.Value = false, reason.NotEnrolled, "not enrolled: check the cabling, then run fencectl bmc enroll"
	case i.Verdict == IdentityUnproven:
		g.Pass, g.Reason, g.Value = false, reason.IdentityUnknown, fmt.Sprintf("BMC %s, Node %s", cmp.Or(i.BMC, "none"), cmp.Or(i.Node, "none"))
	case i.Verdict == IdentityMatches:
		g.Value = "match"
	default:
		g.Value = "not read yet; compared before the power command"
	}
	if !g.Pass && i.Why != "" {
		g.Value = i.Why
	}
	return g
}

// day is the window of the limit on runs per host.
const day = 24 * time.Hour

// rateGuards limit how many runs are in flight and how often one host is
// power-cycled, and refuse while a whole zone is down. A run that deletes a Machine
// has limits of its own, so that neither kind delays the other. A request to another remediator
// counts as a power cycle. // I11, I15
func rateGuards(l Limits, f Facts, now time.Time) []reason.Gate {
	if !f.NeedsHost && !f.AsksOther {
		gates := deletionGuards(l, f.Deletion, now)
		if f.Zone != "" {
			gates = append(gates, zoneBreakerGuard(l, f))
		}
		return gates
	}
	// One run is always allowed, or a small cluster could never be remediated.
	limit, total := max(1, min(l.MaxInFlight, l.MaxInFlightPercent*f.ClusterNodes/100)), max(1, l.MaxInFlightTotal)
	gates := []reason.Gate{
		reason.NewGate("inFlight", f.InFlight < limit, reason.InFlightLimit,
			fmt.Sprintf("%d in flight", f.InFlight), fmt.Sprintf("below %d", limit), "guards.maxInFlight, guards.maxInFlightPercent"),
		reason.NewGate("totalInFlight", f.InFlightTotal < total, reason.TotalInFlight,
			fmt.Sprintf("%d in flight", f.InFlightTotal), fmt.Sprintf("below %d", total), "guards.maxInFlightTotal"),
		// However the runs end.
		reason.NewGate("startRate", !f.NextStart.After(now), reason.StartRate, fmt.Sprintf("%d within the last hour", f.StartsLastHour),
			bucketText(l.Bucket()), "guards.startsPerHour").PassesFrom(f.NextStart),
	}
	if f.Zone != "" || f.ZoneUnknown {
		gates = append(gates, zoneInFlightGuard(l, f))
	}
	if f.Zone != "" {
		gates = append(gates, zoneBreakerGuard(l, f))
	}
	return append(gates, intervalGuard(l, f, now),
		reason.NewGate("fencesPerDay", f.RunsLastDay < l.MaxFencesPerDay, reason.FencesPerDay,
			fmt.Sprintf("%d within %s", f.RunsLastDay, day), fmt.Sprintf("below %d", l.MaxFencesPerDay), "guards.maxFencesPerDay"))
}

// intervalGuard requires MinPowerInterval between two runs on one host, and twice
// as much for each further failed run in a row. // I15
func intervalGuard(l Limits, f Facts, now time.Time) reason.Gate {
	wait, free := doubled(l.MinPowerInterval, f.FailedRunsInARow, max(day, l.MinPowerInterval)), now
	value := "no run yet"
	if !f.LastRunEnded.IsZero() {
		free = f.LastRunEnded.Add(wait)
		value = fmt.Sprintf("last run ended %s ago", now.Sub(f.LastRunEnded).Round(time.Second))
	}
	if f.FailedRunsInARow > 1 {
		value += fmt.Sprintf("; %d runs in a row failed", f.FailedRunsInARow)
	}
	return reason.NewGate("powerInterval", !now.Before(free), reason.PowerInterval, value, wait.String(), "guards.minPowerInterval").PassesFrom(free)
}

// doubled is a wait that doubles with each failure after the first, up to most.
func doubled(wait time.Duration, failures int, most time.Duration) time.Duration {
	for n := 1; n < failures && wait < most; n++ {
		wait *= 2
	}
	return min(wait, most)
}

func bucketText(b Bucket) string {
	if b.PerHour <= 0 {
		return "no limit"
	}
	return fmt.Sprintf("%d at once and %d an hour", b.Burst, b.PerHour)
}

// zoneInFlightGuard limits the runs in flight in one zone. A host whose zone is not known counts
// in every zone.
func zoneInFlightGuard(l Limits, f Facts) reason.Gate {
	value := fmt.Sprintf("%d in zone %s", f.ZoneInFlight, f.Zone)
	if f.ZoneUnknown {
		value = fmt.Sprintf("%d in one zone, and the zone of this host is not known", f.ZoneInFlight)
	}
	return reason.NewGate("zoneInFlight", f.ZoneInFlight < l.MaxInFlightPerZone, reason.ZoneInFlight,
		value, fmt.Sprintf("below %d", l.MaxInFlightPerZone), "guards.maxInFlightPerZone")
}

// zoneBreakerGuard refuses when so many Nodes of a zone are not ready that the
// zone, or the network to it, is the likelier cause.
func zoneBreakerGuard(l Limits, f Facts) reason.Gate {
	tripped := f.ZoneNotReady >= l.ZoneBreakerMin && f.ZoneNotReady*100 >= l.ZoneBreakerPercent*f.ZoneNodes
	return reason.NewGate("zoneBreaker", !tripped, reason.ZoneBreaker,
		fmt.Sprintf("%d of %d of zone %s not ready", f.ZoneNotReady, f.ZoneNodes, f.Zone),
		fmt.Sprintf("below %d%%, or fewer than %d", l.ZoneBreakerPercent, l.ZoneBreakerMin), "guards.zoneBreakerPercent")
}

func countText(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Bucket is a token bucket without state of its own. It is computed from the
// recorded start times, so it survives whatever the record survives. // I11
type Bucket struct {
	Burst   int // starts allowed at once
	PerHour int // tokens added per hour; 0 means no limit
}

// Bucket is the token bucket for the starts of power cycles in one cluster. Its
// burst is MaxInFlight.
func (l Limits) Bucket() Bucket {
	return Bucket{Burst: max(1, l.MaxInFlight), PerHour: l.StartsPerHour}
}

// DeletionBucket is the token bucket for the runs in one cluster that delete a
// Machine. Its burst is MaxDeletions.
func (l Limits) DeletionBucket() Bucket {
	return Bucket{Burst: max(1, l.MaxDeletions), PerHour: l.DeletionsPerHour}
}

// Next returns the earliest time at which one more start is allowed; a time not
// after now means at once. In any period it allows no more starts than Burst plus
// what PerHour adds in that period. A start that happened without asking also
// takes a token if there is one. A start in the future, because the clock was set
// back, counts as now: it returns no token early.
func (b Bucket) Next(starts []time.Time, now time.Time) time.Time {
	if b.PerHour <= 0 {
		return now
	}
	every := (time.Hour + time.Duration(b.PerHour) - 1) / time.Duration(b.PerHour) // rounded up, so never faster than PerHour
	burst := min(max(1, b.Burst), len(starts)+1)                                   // a bucket that all starts together do not empty is large enough
	full := time.Duration(burst) * every
	counted := make([]time.Time, 0, len(starts))
	for _, s := range starts {
		counted = append(counted, times.Earlier(s, now))
	}
	slices.SortFunc(counted, time.Time.Compare)
	var refilled time.Time // when the bucket is full again
	for _, s := range counted {
		if refilled.Before(s) {
			refilled = s
		}
		refilled = times.Earlier(refilled.Add(every), s.Add(full)) // the bucket cannot get emptier than empty
	}
	return refilled.Add(every - full)
}

// The back-off between two deletions of Machines of one controller, while the
// Machines that it makes in their place fail before they were ever Ready.
const (
	deletionBackOff    = time.Minute // doubled for each further failure in a row
	deletionBackOffMax = time.Hour
)

// deletionGuards limit how many Machines are deleted at a time, how often, and how
// soon their replacements may be deleted. // I11
func deletionGuards(l Limits, d DeletionFact, now time.Time) []reason.Gate {
	limit := max(1, l.MaxDeletions)
	return []reason.Gate{
		reason.NewGate("deletions", d.InProgress < limit, reason.DeletionLimit,
			fmt.Sprintf("%d of this check in progress", d.InProgress), fmt.Sprintf("below %d", limit), "guards.maxDeletions"),
		reason.NewGate("deletionRate", !d.Next.After(now), reason.DeletionRate,
			fmt.Sprintf("%d within the last hour", d.LastHour), bucketText(l.DeletionBucket()), "guards.deletionsPerHour").PassesFrom(d.Next),
		deletionBackOffGuard(d, now),
		replacementGuard(d, now),
	}
}

// deletionBackOffGuard delays the next deletion of a Machine whose controller makes
// no Machine that works.
func deletionBackOffGuard(d DeletionFact, now time.Time) reason.Gate {
	wait, free := time.Duration(0), now
	if d.FailedReplacements > 0 && !d.Last.IsZero() {
		wait = doubled(deletionBackOff, d.FailedReplacements, deletionBackOffMax)
		free = d.Last.Add(wait)
	}
	value := "no replacement failed"
	if d.FailedReplacements > 0 {
		value = fmt.Sprintf("%s of its controller in a row failed before they were Ready", countText(d.FailedReplacements, "replacement"))
	}
	return reason.NewGate("deletionBackOff", !now.Before(free), reason.DeletionBackOff, value,
		wait.String()+" after the last deletion", "the Machine's controller").PassesFrom(free)
}

// replacementGuard gives a replacement its whole start-up timeout: what is seen of it
// before may be about the Machine or the Node before it.
func replacementGuard(d DeletionFact, now time.Time) reason.Gate {
	value := "not a replacement that is starting"
	if d.StartingUntil.After(now) {
		value = "a replacement that is starting, until " + d.StartingUntil.UTC().Format(time.RFC3339)
	}
	return reason.NewGate("replacement", !d.StartingUntil.After(now), reason.ReplacementStarting, value,
		"its start-up timeout is over", "the check's start-up timeout").PassesFrom(d.StartingUntil)
}
