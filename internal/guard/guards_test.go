package guard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/test/law"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func limits() guard.Limits {
	return guard.Limits{
		QuietPeriod: 5 * time.Minute, ViewMaxAge: time.Minute, ClockSkewMax: 5 * time.Second, MinPowerInterval: 3 * time.Minute,
		MaxInFlight: 5, MaxInFlightPercent: 10, MaxInFlightPerZone: 1, ZoneBreakerPercent: 55, ZoneBreakerMin: 3,
		MaxInFlightTotal: 20, StartsPerHour: 30, MaxFencesPerDay: 3, ZoneKey: "topology.kubernetes.io/zone",
	}
}

// fit are facts to which no guard objects.
func fit() guard.Facts {
	return guard.Facts{
		Mode: guard.ModeEvaluate, ViewSynced: true, ViewAge: time.Second, ClusterNodes: 50, ClusterNotReady: 1,
		Zone: "a", ZoneNodes: 10, ZoneNotReady: 1, NeedsHost: true, Host: "prod/n-1",
		Identity: guard.IdentityFact{Mode: "required", Verdict: guard.IdentityMatches},
	}
}

// refusals lists the reasons of the gates that do not hold, in their order.
func refusals(gates []reason.Gate) (list []reason.Code) {
	for _, g := range gates {
		if !g.Pass {
			list = append(list, g.Reason)
		}
	}
	return list
}

// objections is one way to fail for each guard.
var objections = []struct {
	name   string
	spoil  func(*guard.Facts)
	want   reason.Code
	waived bool // an order by a person passes it
}{
	{"observe mode", func(f *guard.Facts) { f.Mode = guard.ModeObserve }, reason.Observing, false},
	{"respond mode", func(f *guard.Facts) { f.Mode = guard.ModeRespond }, reason.Observing, true},
	{"no mode", func(f *guard.Facts) { f.Mode = "" }, reason.Observing, false},
	{"foreign owner", func(f *guard.Facts) { f.ForeignOwner = "other" }, reason.NotOwner, false},
	{"paused", func(f *guard.Facts) { f.Paused = "upgrade" }, reason.Paused, false},
	{"not synced", func(f *guard.Facts) { f.ViewSynced = false }, reason.NotSynced, false},
	{"stale view", func(f *guard.Facts) { f.ViewAge = time.Minute + 1 }, reason.ViewStale, false},
	{"clock behind", func(f *guard.Facts) { f.ClockSkew = -5*time.Second - 1 }, reason.ClockSkew, false},
	{"no nodes", func(f *guard.Facts) { f.ClusterNodes, f.ClusterNotReady = 0, 0 }, reason.NoNodesVisible, false},
	{"everything down", func(f *guard.Facts) { f.ClusterNotReady = 50 }, reason.EverythingDown, true},
	{"quiet period", func(f *guard.Facts) { f.QuietUntil = epoch.Add(1) }, reason.QuietPeriod, true},
	{"hold", func(f *guard.Facts) { f.Held = "disk" }, reason.Hold, false},
	{"open run", func(f *guard.Facts) { f.OpenRun = "r1" }, reason.UnderRemediation, false},
	{"protected", func(f *guard.Facts) { f.Protected = true }, reason.Protected, true},
	{"own host", func(f *guard.Facts) { f.OwnHost = "machine id" }, reason.OwnHost, false},
	{"frozen", func(f *guard.Facts) { f.Frozen = "run r1" }, reason.Frozen, false},
	{"class frozen", func(f *guard.Facts) { f.Frozen, f.FrozenReason = "two hosts", reason.ClassFrozen }, reason.ClassFrozen, false},
	{"duplicate host", func(f *guard.Facts) { f.Duplicate = "prod/n-2" }, reason.DuplicateHost, false},
	{"address changed", func(f *guard.Facts) { f.HostError, f.HostDetail = reason.AddressChanged, "ns/h" }, reason.AddressChanged, false},
	{"not enrolled", func(f *guard.Facts) { f.Identity.Verdict = guard.IdentityNotEnrolled }, reason.NotEnrolled, false},
	{"Lease too long", func(f *guard.Facts) { f.LeaseTooLong = "it is" }, reason.LeaseTooLong, false},
	{"node alive", func(f *guard.Facts) { f.NodeAlive = true }, reason.NodeAlive, true},
	{"contested", func(f *guard.Facts) { f.Contested = "capbm" }, reason.Contested, false},
	{"control plane", func(f *guard.Facts) { f.ControlPlane = true }, reason.QuorumUnknown, false},
	{"control plane busy", func(f *guard.Facts) { f.ControlPlaneRun = "r1" }, reason.ControlPlaneBusy, false},
	{"one UUID twice", func(f *guard.Facts) { f.NodeWithSameUUID = "n-2" }, reason.DuplicateUUID, false},
	{"another cluster's nodes", func(f *guard.Facts) { f.NodesMismatch = "none of its Machines'" }, reason.NoNodesVisible, false},
	{"no host", func(f *guard.Facts) { f.Host = "" }, reason.NoHost, false},
	{"secret missing", func(f *guard.Facts) { f.HostError, f.HostDetail = reason.SecretMissing, "ns/s" }, reason.SecretMissing, false},
	{"power owner", func(f *guard.Facts) { f.PowerOwner = "online: false" }, reason.PowerOwner, false},
	{"identity differs", func(f *guard.Facts) { f.Identity.Verdict = guard.IdentityDiffers }, reason.IdentityMismatch, false},
	{"identity unproven", func(f *guard.Facts) { f.Identity.Verdict = guard.IdentityUnproven }, reason.IdentityUnknown, false},
	{"identity off", func(f *guard.Facts) { f.Identity.Mode = "off" }, reason.IdentityUnknown, true},
	{"in flight", func(f *guard.Facts) { f.InFlight = 5 }, reason.InFlightLimit, true},
	{"zone in flight", func(f *guard.Facts) { f.ZoneInFlight = 1 }, reason.ZoneInFlight, true},
	{"zone in flight, and nobody knows which", func(f *guard.Facts) { f.Zone, f.ZoneUnknown, f.ZoneInFlight = "", true, 1 }, reason.ZoneInFlight, true},
	{"total in flight", func(f *guard.Facts) { f.InFlightTotal = 20 }, reason.TotalInFlight, true},
	{"start rate", func(f *guard.Facts) { f.NextStart = epoch.Add(1) }, reason.StartRate, true},
	{"quarantine", func(f *guard.Facts) { f.Quarantined = "fenced 3 times" }, reason.Quarantined, true},
	{"zone breaker", func(f *guard.Facts) { f.ZoneNotReady = 6 }, reason.ZoneBreaker, true},
	{"power interval", func(f *guard.Facts) { f.LastRunEnded = epoch.Add(-3*time.Minute + 1) }, reason.PowerInterval, true},
	{"doubled interval", func(f *guard.Facts) { f.LastRunEnded, f.FailedRunsInARow = epoch.Add(-6*time.Minute+1), 2 }, reason.PowerInterval, true},
	{"fences per day", func(f *guard.Facts) { f.RunsLastDay = 3 }, reason.FencesPerDay, true},
}

func TestGuardsPass(t *testing.T) {
	gates := guard.Gates(limits(), fit(), epoch)
	assert.Empty(t, refusals(gates))
	for _, g := range gates {
		assert.Empty(t, g.Reason, g.Name)
		assert.NotEmpty(t, g.Value, g.Name)
		assert.NotEmpty(t, g.Threshold, g.Name)
		assert.NotEmpty(t, g.Source, g.Name)
	}
}

func TestGuardsRefuse(t *testing.T) {
	for _, o := range objections {
		t.Run(o.name, func(t *testing.T) {
			f := fit()
			o.spoil(&f)
			assert.Equal(t, []reason.Code{o.want}, refusals(guard.Gates(limits(), f, epoch)))
			f.Manual = true
			assert.Equal(t, o.waived, len(refusals(guard.Gates(limits(), f, epoch))) == 0, "ordered by a person")
		})
	}
}

// What the gate of the mode needs is what would open it in that mode.
func TestModeGateSaysWhatWouldOpenIt(t *testing.T) {
	for mode, want := range map[string]string{guard.ModeObserve: "evaluate, or armed", guard.ModeRespond: "a remediation request, or an order"} {
		f := fit()
		f.Mode = mode
		g := guard.Gates(limits(), f, epoch)[0]
		assert.Equal(t, []string{"mode", want}, []string{g.Name, g.Threshold})
		assert.False(t, g.Pass)
	}
}

// In mode observe an order by an administrator passes the gate of the mode, and only that. What an
// order waives is marked, so that a person sees it.
func TestAdministratorPassesTheModeAndNothingElse(t *testing.T) {
	for _, o := range objections {
		f := fit()
		o.spoil(&f)
		f.Mode, f.Manual, f.ByAdmin = guard.ModeObserve, true, true
		gates := guard.Gates(limits(), f, epoch)
		assert.Equal(t, o.waived || o.want == reason.Observing, len(refusals(gates)) == 0, o.name)
		for _, g := range gates {
			assert.NotContains(t, g.Value, "waived", "the field says it")
			if g.Waived {
				assert.True(t, g.Pass, g.Name)
				assert.Equal(t, o.want, g.Reason, o.name)
			}
		}
		f.ByAdmin = false
		assert.Contains(t, refusals(guard.Gates(limits(), f, epoch)), reason.Observing, o.name)
	}
	f := fit()
	f.Mode, f.ByAdmin = guard.ModeObserve, true
	assert.Equal(t, []reason.Code{reason.Observing}, refusals(guard.Gates(limits(), f, epoch)), "fenced's own decision")
}

// What a person ordered once waives nothing when fenced tries again by itself, and still counts for
// the mode.
func TestOwnRetryOfAFenceByHandWaivesNothing(t *testing.T) {
	now := time.Now()
	f := fit()
	f.Manual, f.Mode, f.Protected = true, guard.ModeRespond, true
	assert.Empty(t, refusals(guard.Gates(limits(), f, now)))
	f.OwnRetry = true
	assert.Equal(t, []reason.Code{reason.Protected}, refusals(guard.Gates(limits(), f, now)))
}

func TestModeAllows(t *testing.T) {
	for _, c := range []struct {
		f    guard.Facts
		want bool
	}{
		{guard.Facts{Mode: guard.ModeEvaluate}, true},
		{guard.Facts{Mode: guard.ModeObserve, Manual: true}, false},
		{guard.Facts{Mode: guard.ModeObserve, Manual: true, ByAdmin: true}, true},
		{guard.Facts{Mode: guard.ModeObserve, ByAdmin: true}, false},
		{guard.Facts{Mode: guard.ModeObserve, Armed: true}, true},
		{guard.Facts{Mode: guard.ModeObserve, Requested: true}, false},
		{guard.Facts{Mode: guard.ModeRespond}, false},
		{guard.Facts{Mode: guard.ModeRespond, Armed: true}, false},
		{guard.Facts{Mode: guard.ModeRespond, Requested: true}, true},
		{guard.Facts{Mode: guard.ModeRespond, Manual: true}, true},
		{guard.Facts{}, false},
	} {
		assert.Equal(t, c.want, guard.ModeAllows(c.f), "%+v", c.f)
	}
}

// TestGuardsLimits stands one step before each objection above.
func TestGuardsLimits(t *testing.T) {
	for name, spoil := range map[string]func(*guard.Facts){
		"armed observer":        func(f *guard.Facts) { f.Mode, f.Armed = guard.ModeObserve, true },
		"view at its limit":     func(f *guard.Facts) { f.ViewAge = time.Minute },
		"skew at its limit":     func(f *guard.Facts) { f.ClockSkew = 5 * time.Second },
		"the only node down":    func(f *guard.Facts) { f.ClusterNodes, f.ClusterNotReady = 1, 1 },
		"one node left":         func(f *guard.Facts) { f.ClusterNotReady = 49 },
		"quiet period over":     func(f *guard.Facts) { f.QuietUntil = epoch },
		"one below the limit":   func(f *guard.Facts) { f.InFlight = 4 },
		"zone without label":    func(f *guard.Facts) { f.Zone, f.ZoneInFlight, f.ZoneNotReady = "", 9, 10 },
		"two of three in zone":  func(f *guard.Facts) { f.ZoneNodes, f.ZoneNotReady = 3, 2 },
		"54 percent of a zone":  func(f *guard.Facts) { f.ZoneNodes, f.ZoneNotReady = 100, 54 },
		"interval over":         func(f *guard.Facts) { f.LastRunEnded = epoch.Add(-3 * time.Minute) },
		"doubled interval over": func(f *guard.Facts) { f.LastRunEnded, f.FailedRunsInARow = epoch.Add(-12*time.Minute), 3 },
		"one that was not done": func(f *guard.Facts) { f.LastRunEnded, f.FailedRunsInARow = epoch.Add(-3*time.Minute), 1 },
		"after a year of them":  func(f *guard.Facts) { f.LastRunEnded, f.FailedRunsInARow = epoch.Add(-24*time.Hour), 1000 },
		"one below the total":   func(f *guard.Facts) { f.InFlightTotal = 19 },
		"token there":           func(f *guard.Facts) { f.NextStart = epoch },
		"two runs today":        func(f *guard.Facts) { f.RunsLastDay = 2 },
		"identity not read":     func(f *guard.Facts) { f.Identity.Verdict = guard.IdentityUnread },
		"no host needed": func(f *guard.Facts) {
			f.NeedsHost, f.Host, f.HostError, f.RunsLastDay = false, "", reason.NoHost, 9
			f.PowerOwner, f.LastRunEnded, f.Identity.Verdict = "someone", epoch, guard.IdentityDiffers
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fit()
			spoil(&f)
			assert.Empty(t, refusals(guard.Gates(limits(), f, epoch)))
		})
	}
}

func TestInFlightShare(t *testing.T) {
	for _, c := range []struct{ nodes, limit int }{{1, 1}, {9, 1}, {19, 1}, {20, 2}, {49, 4}, {50, 5}, {5000, 5}} {
		f := fit()
		f.ClusterNodes, f.ClusterNotReady = c.nodes, 0
		f.InFlight = c.limit - 1
		assert.True(t, len(refusals(guard.Gates(limits(), f, epoch))) == 0, "%d of %d nodes", f.InFlight, c.nodes)
		f.InFlight = c.limit
		assert.Equal(t, []reason.Code{reason.InFlightLimit}, refusals(guard.Gates(limits(), f, epoch)), "%d of %d nodes", f.InFlight, c.nodes)
	}
}

func TestUntil(t *testing.T) {
	f := fit()
	f.QuietUntil, f.LastRunEnded, f.Held = epoch.Add(time.Minute), epoch.Add(-time.Minute), "disk"
	f.NextStart, f.Quarantined, f.QuarantinedUntil = epoch.Add(time.Second), "3 runs", epoch.Add(time.Hour)
	until := map[reason.Code]time.Time{}
	for _, g := range guard.Gates(limits(), f, epoch) {
		if g.Pass {
			assert.Zero(t, g.Until, g.Name)
			continue
		}
		until[g.Reason] = g.Until
	}
	assert.Equal(t, map[reason.Code]time.Time{
		reason.QuietPeriod: epoch.Add(time.Minute), reason.PowerInterval: epoch.Add(2 * time.Minute),
		reason.StartRate: epoch.Add(time.Second), reason.Quarantined: epoch.Add(time.Hour),
		reason.Hold: {}, // nobody knows when a hold ends
	}, until)
}

// What is asked again at a start is asked the same way, and waived for the same orders.
func TestStartGuardsAreAmongTheGuards(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		f := fit()
		f.Manual, f.ControlPlane, f.QuorumHolds = rapid.Bool().Draw(t, "manual"), true, true
		for _, o := range objections {
			if rapid.IntRange(0, 3).Draw(t, o.name) == 0 {
				o.spoil(&f)
			}
		}
		if rapid.Bool().Draw(t, "another") {
			f.ControlPlaneRun = "r2"
		}
		all := guard.Gates(limits(), f, epoch)
		for _, g := range guard.StartGates(limits(), f, epoch) {
			assert.Contains(t, all, g)
		}
	})
}

// TestLawGuards: one more objection never opens a gate.
func TestLawGuards(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		f := fit()
		f.Manual = rapid.Bool().Draw(t, "manual")
		for _, o := range objections {
			if rapid.IntRange(0, 4).Draw(t, o.name) == 0 {
				o.spoil(&f)
			}
		}
		more := f
		objection := rapid.SampledFrom(objections).Draw(t, "more")
		// Modes, host errors, freezes and identities replace each other and are no objection more.
		switch objection.want {
		case reason.Observing, reason.SecretMissing, reason.NoHost, reason.IdentityMismatch, reason.IdentityUnknown, reason.NoNodesVisible, reason.EverythingDown,
			reason.NotEnrolled, reason.AddressChanged, reason.Frozen, reason.ClassFrozen:
			t.Skip("replaces another")
		}
		objection.spoil(&more)
		if more.Zone != f.Zone {
			t.Skip("replaces the zone, and with it what is known of that")
		}
		assert.Subset(t, refusals(guard.Gates(limits(), more, epoch)), refusals(guard.Gates(limits(), f, epoch)))
	})
}
