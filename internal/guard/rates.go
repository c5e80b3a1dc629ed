package guard

import (
	"fmt"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
)

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
	gates := []reason.Gate{inFlightGuard(l, f), totalInFlightGuard(l, f), startRateGuard(l, f, now)}
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
	if !f.LastRunEnded.IsZero() {
		free = f.LastRunEnded.Add(wait)
	}
	value := lastRunText(f.LastRunEnded, now)
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

// totalInFlightGuard limits the open runs in all clusters. It always allows one.
func totalInFlightGuard(l Limits, f Facts) reason.Gate {
	limit := max(1, l.MaxInFlightTotal)
	return reason.NewGate("totalInFlight", f.InFlightTotal < limit, reason.TotalInFlight,
		fmt.Sprintf("%d in flight", f.InFlightTotal), fmt.Sprintf("below %d", limit), "guards.maxInFlightTotal")
}

// startRateGuard limits how many runs start per hour, however they end.
func startRateGuard(l Limits, f Facts, now time.Time) reason.Gate {
	return reason.NewGate("startRate", !f.NextStart.After(now), reason.StartRate, fmt.Sprintf("%d within the last hour", f.StartsLastHour),
		bucketText(l.Bucket()), "guards.startsPerHour").PassesFrom(f.NextStart)
}

func bucketText(b Bucket) string {
	if b.PerHour <= 0 {
		return "no limit"
	}
	return fmt.Sprintf("%d at once and %d an hour", b.Burst, b.PerHour)
}

// inFlightGuard limits the open runs of the cluster: an absolute number or a
// share of its Nodes, whichever is smaller. It always allows one, or a small
// cluster could never be remediated.
func inFlightGuard(l Limits, f Facts) reason.Gate {
	limit := max(1, min(l.MaxInFlight, l.MaxInFlightPercent*f.ClusterNodes/100))
	return reason.NewGate("inFlight", f.InFlight < limit, reason.InFlightLimit,
		fmt.Sprintf("%d in flight", f.InFlight), fmt.Sprintf("below %d", limit), "guards.maxInFlight, guards.maxInFlightPercent")
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
		fmt.Sprintf("%s of zone %s not ready", shareText(f.ZoneNotReady, f.ZoneNodes), f.Zone),
		fmt.Sprintf("below %d%%, or fewer than %d", l.ZoneBreakerPercent, l.ZoneBreakerMin), "guards.zoneBreakerPercent")
}

func shareText(n, of int) string { return fmt.Sprintf("%d of %d", n, of) }

func countText(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func quietText(until, now time.Time) string {
	if now.Before(until) {
		return "until " + until.UTC().Format(time.RFC3339)
	}
	return "over"
}

func lastRunText(ended, now time.Time) string {
	if ended.IsZero() {
		return "no run yet"
	}
	return fmt.Sprintf("last run ended %s ago", now.Sub(ended).Round(time.Second))
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
	full := time.Duration(max(1, b.Burst)) * every
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
