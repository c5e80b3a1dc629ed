package policy

import (
	"fmt"
	"time"
)

// day is the window of the limit on runs per host.
const day = 24 * time.Hour

// rateGuards bound how much is in flight at once and how often one host is
// power-cycled, and doubt a zone that goes down as a whole. // I11, I15
func rateGuards(l Limits, f Facts, now time.Time) []Gate {
	gates := []Gate{inFlightGuard(l, f)}
	if f.Zone != "" {
		gates = append(gates,
			gate("zoneInFlight", f.ZoneInFlight < l.MaxInFlightPerZone, ZoneInFlight,
				fmt.Sprintf("%d in zone %s", f.ZoneInFlight, f.Zone), fmt.Sprintf("below %d", l.MaxInFlightPerZone), "guards.maxInFlightPerZone"),
			breakerGuard(l, f))
	}
	if !f.NeedsHost {
		return gates
	}
	free := now
	if !f.LastRunEnded.IsZero() {
		free = f.LastRunEnded.Add(l.MinPowerInterval)
	}
	return append(gates,
		gate("powerInterval", !now.Before(free), PowerInterval, lastRun(f.LastRunEnded, now), l.MinPowerInterval.String(),
			"guards.minPowerInterval").until(free),
		gate("fencesPerDay", f.RunsLastDay < l.MaxFencesPerDay, FencesPerDay,
			fmt.Sprintf("%d within %s", f.RunsLastDay, day), fmt.Sprintf("below %d", l.MaxFencesPerDay), "guards.maxFencesPerDay"))
}

// inFlightGuard: an absolute number and a share of the cluster, whichever is
// smaller, but always one, or a small cluster could never be helped.
func inFlightGuard(l Limits, f Facts) Gate {
	limit := max(1, min(l.MaxInFlight, l.MaxInFlightPercent*f.ClusterNodes/100))
	return gate("inFlight", f.InFlight < limit, InFlightLimit,
		fmt.Sprintf("%d in flight", f.InFlight), fmt.Sprintf("below %d", limit), "guards.maxInFlight, guards.maxInFlightPercent")
}

// breakerGuard opens when so much of a zone is not ready that the zone, or the
// way to it, is the likelier cause.
func breakerGuard(l Limits, f Facts) Gate {
	tripped := f.ZoneNotReady >= l.ZoneBreakerMin && f.ZoneNotReady*100 >= l.ZoneBreakerPercent*f.ZoneNodes
	return gate("zoneBreaker", !tripped, ZoneBreaker,
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
		return "until " + stamp(until)
	}
	return "over"
}

func lastRun(ended, now time.Time) string {
	if ended.IsZero() {
		return "no run yet"
	}
	return fmt.Sprintf("last run ended %s ago", now.Sub(ended).Round(time.Second))
}
