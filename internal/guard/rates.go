package guard

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
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
	wait := l.MinPowerInterval
	for n := 1; n < f.FailedRunsInARow && wait < day; n++ {
		wait *= 2
	}
	wait = min(wait, max(day, l.MinPowerInterval))
	free := now
	if !f.LastRunEnded.IsZero() {
		free = f.LastRunEnded.Add(wait)
	}
	value := lastRunText(f.LastRunEnded, now)
	if f.FailedRunsInARow > 1 {
		value += fmt.Sprintf("; %d runs in a row failed", f.FailedRunsInARow)
	}
	return reason.NewGate("powerInterval", !now.Before(free), reason.PowerInterval, value, wait.String(), "guards.minPowerInterval").PassesFrom(free)
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
