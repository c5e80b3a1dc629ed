package guard

import (
	"fmt"
	"time"

	"github.com/fenced/fenced/internal/reason"
)

// day is the window of the limit on runs per host.
const day = 24 * time.Hour

// rateGuards bound how much is in flight at once and how often one host is
// power-cycled, and doubt a zone that goes down as a whole. // I11, I15
func rateGuards(l Limits, f Facts, now time.Time) []reason.Gate {
	gates := []reason.Gate{inFlightGuard(l, f), totalGuard(l, f), startRateGuard(l, f, now)}
	if f.Zone != "" {
		gates = append(gates,
			reason.NewGate("zoneInFlight", f.ZoneInFlight < l.MaxInFlightPerZone, reason.ZoneInFlight,
				fmt.Sprintf("%d in zone %s", f.ZoneInFlight, f.Zone), fmt.Sprintf("below %d", l.MaxInFlightPerZone), "guards.maxInFlightPerZone"),
			breakerGuard(l, f))
	}
	if !f.NeedsHost {
		return gates
	}
	return append(gates, intervalGuard(l, f, now),
		reason.NewGate("fencesPerDay", f.RunsLastDay < l.MaxFencesPerDay, reason.FencesPerDay,
			fmt.Sprintf("%d within %s", f.RunsLastDay, day), fmt.Sprintf("below %d", l.MaxFencesPerDay), "guards.maxFencesPerDay"))
}

// intervalGuard keeps two runs on one host apart: by minPowerInterval, and by twice
// that for each further one in a row that came to no good end. // I15
func intervalGuard(l Limits, f Facts, now time.Time) reason.Gate {
	wait := l.MinPowerInterval
	for n := 1; n < f.RunsNotDone && wait < day; n++ {
		wait *= 2
	}
	wait = min(wait, max(day, l.MinPowerInterval))
	free := now
	if !f.LastRunEnded.IsZero() {
		free = f.LastRunEnded.Add(wait)
	}
	value := lastRun(f.LastRunEnded, now)
	if f.RunsNotDone > 1 {
		value += fmt.Sprintf("; %d in a row not done", f.RunsNotDone)
	}
	return reason.NewGate("powerInterval", !now.Before(free), reason.PowerInterval, value, wait.String(), "guards.minPowerInterval").OpenFrom(free)
}

// totalGuard bounds what is in flight over all clusters, but is never below one.
func totalGuard(l Limits, f Facts) reason.Gate {
	limit := max(1, l.MaxInFlightTotal)
	return reason.NewGate("totalInFlight", f.InFlightTotal < limit, reason.TotalInFlight,
		fmt.Sprintf("%d in flight", f.InFlightTotal), fmt.Sprintf("below %d", limit), "guards.maxInFlightTotal")
}

// startRateGuard bounds how fast runs are begun, whatever becomes of them.
func startRateGuard(l Limits, f Facts, now time.Time) reason.Gate {
	b, threshold := l.Bucket(), "no limit"
	if b.PerHour > 0 {
		threshold = fmt.Sprintf("%d at once and %d an hour", b.Burst, b.PerHour)
	}
	return reason.NewGate("startRate", !f.NextStart.After(now), reason.StartRate, fmt.Sprintf("%d within the last hour", f.StartsLastHour), threshold,
		"guards.startsPerHour").OpenFrom(f.NextStart)
}

// inFlightGuard: an absolute number and a share of the cluster, whichever is
// smaller, but always one, or a small cluster could never be helped.
func inFlightGuard(l Limits, f Facts) reason.Gate {
	limit := max(1, min(l.MaxInFlight, l.MaxInFlightPercent*f.ClusterNodes/100))
	return reason.NewGate("inFlight", f.InFlight < limit, reason.InFlightLimit,
		fmt.Sprintf("%d in flight", f.InFlight), fmt.Sprintf("below %d", limit), "guards.maxInFlight, guards.maxInFlightPercent")
}

// breakerGuard opens when so much of a zone is not ready that the zone, or the
// way to it, is the likelier cause.
func breakerGuard(l Limits, f Facts) reason.Gate {
	tripped := f.ZoneNotReady >= l.ZoneBreakerMin && f.ZoneNotReady*100 >= l.ZoneBreakerPercent*f.ZoneNodes
	return reason.NewGate("zoneBreaker", !tripped, reason.ZoneBreaker,
		fmt.Sprintf("%s of zone %s not ready", share(f.ZoneNotReady, f.ZoneNodes), f.Zone),
		fmt.Sprintf("below %d%%, or fewer than %d", l.ZoneBreakerPercent, l.ZoneBreakerMin), "guards.zoneBreakerPercent")
}

func share(n, of int) string { return fmt.Sprintf("%d of %d", n, of) }

func count1(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func quiet(until, now time.Time) string {
	if now.Before(until) {
		return "until " + until.UTC().Format(time.RFC3339)
	}
	return "over"
}

func lastRun(ended, now time.Time) string {
	if ended.IsZero() {
		return "no run yet"
	}
	return fmt.Sprintf("last run ended %s ago", now.Sub(ended).Round(time.Second))
}
