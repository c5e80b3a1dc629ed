package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/law"
)

func limits() policy.Limits {
	return policy.Limits{
		QuietPeriod: 5 * time.Minute, ViewMaxAge: time.Minute, ClockSkewMax: 5 * time.Second, MinPowerInterval: 3 * time.Minute,
		MaxInFlight: 5, MaxInFlightPercent: 10, MaxInFlightPerZone: 1, ZoneBreakerPercent: 55, ZoneBreakerMin: 3,
		MaxInFlightTotal: 20, StartsPerHour: 30, MaxFencesPerDay: 3, ZoneKey: "topology.kubernetes.io/zone",
	}
}

// fit are facts to which no guard objects.
func fit() policy.Facts {
	return policy.Facts{
		Mode: policy.ModeEvaluate, ViewSynced: true, ViewAge: time.Second, ClusterNodes: 50, ClusterNotReady: 1,
		Zone: "a", ZoneNodes: 10, ZoneNotReady: 1, NeedsHost: true, Host: "prod/n-1",
		Identity: policy.IdentityFact{Mode: "required", Verdict: policy.IdentityMatches},
	}
}

// refusals lists the reasons of the gates that do not hold, in their order.
func refusals(gates []policy.Gate) (list []policy.Reason) {
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
	spoil  func(*policy.Facts)
	want   policy.Reason
	waived bool // an order by a person passes it
}{
	{"observe mode", func(f *policy.Facts) { f.Mode = policy.ModeObserve }, policy.Observing, false},
	{"respond mode", func(f *policy.Facts) { f.Mode = policy.ModeRespond }, policy.Observing, true},
	{"no mode", func(f *policy.Facts) { f.Mode = "" }, policy.Observing, false},
	{"foreign owner", func(f *policy.Facts) { f.ForeignOwner = "other" }, policy.NotOwner, false},
	{"paused", func(f *policy.Facts) { f.Paused = "upgrade" }, policy.Paused, false},
	{"not synced", func(f *policy.Facts) { f.ViewSynced = false }, policy.NotSynced, false},
	{"stale view", func(f *policy.Facts) { f.ViewAge = time.Minute + 1 }, policy.ViewStale, false},
	{"clock behind", func(f *policy.Facts) { f.ClockSkew = -5*time.Second - 1 }, policy.ClockSkew, false},
	{"no nodes", func(f *policy.Facts) { f.ClusterNodes, f.ClusterNotReady = 0, 0 }, policy.NoNodesVisible, false},
	{"everything down", func(f *policy.Facts) { f.ClusterNotReady = 50 }, policy.EverythingDown, true},
	{"quiet period", func(f *policy.Facts) { f.QuietUntil = epoch.Add(1) }, policy.QuietPeriod, true},
	{"hold", func(f *policy.Facts) { f.Held = "disk" }, policy.Hold, false},
	{"open run", func(f *policy.Facts) { f.OpenRun = "r1" }, policy.UnderRemediation, false},
	{"protected", func(f *policy.Facts) { f.Protected = true }, policy.Protected, true},
	{"own host", func(f *policy.Facts) { f.OwnHost = "machine id" }, policy.OwnHost, false},
	{"frozen", func(f *policy.Facts) { f.Frozen = "run r1" }, policy.Frozen, false},
	{"class frozen", func(f *policy.Facts) { f.Frozen, f.FrozenReason = "two hosts", policy.ClassFrozen }, policy.ClassFrozen, false},
	{"duplicate host", func(f *policy.Facts) { f.Duplicate = "prod/n-2" }, policy.DuplicateHost, false},
	{"address changed", func(f *policy.Facts) { f.HostError, f.HostDetail = policy.AddressChanged, "ns/h" }, policy.AddressChanged, false},
	{"not enrolled", func(f *policy.Facts) { f.Identity.Verdict = policy.IdentityNotEnrolled }, policy.NotEnrolled, false},
	{"node alive", func(f *policy.Facts) { f.NodeAlive = true }, policy.NodeAlive, true},
	{"contested", func(f *policy.Facts) { f.Contested = "capbm" }, policy.Contested, false},
	{"control plane", func(f *policy.Facts) { f.ControlPlane = true }, policy.QuorumUnknown, false},
	{"control plane busy", func(f *policy.Facts) { f.ControlPlaneRun = "r1" }, policy.ControlPlaneBusy, false},
	{"one UUID twice", func(f *policy.Facts) { f.UUIDTwin = "n-2" }, policy.DuplicateUUID, false},
	{"another cluster's nodes", func(f *policy.Facts) { f.NodesElsewhere = "none of its Machines'" }, policy.NoNodesVisible, false},
	{"no host", func(f *policy.Facts) { f.Host = "" }, policy.NoHost, false},
	{"secret missing", func(f *policy.Facts) { f.HostError, f.HostDetail = policy.SecretMissing, "ns/s" }, policy.SecretMissing, false},
	{"power owner", func(f *policy.Facts) { f.PowerOwner = "online: false" }, policy.PowerOwner, false},
	{"identity differs", func(f *policy.Facts) { f.Identity.Verdict = policy.IdentityDiffers }, policy.IdentityMismatch, false},
	{"identity unproven", func(f *policy.Facts) { f.Identity.Verdict = policy.IdentityUnproven }, policy.IdentityUnknown, false},
	{"identity off", func(f *policy.Facts) { f.Identity.Mode = "off" }, policy.IdentityUnknown, true},
	{"in flight", func(f *policy.Facts) { f.InFlight = 5 }, policy.InFlightLimit, true},
	{"zone in flight", func(f *policy.Facts) { f.ZoneInFlight = 1 }, policy.ZoneInFlight, true},
	{"total in flight", func(f *policy.Facts) { f.InFlightTotal = 20 }, policy.TotalInFlight, true},
	{"start rate", func(f *policy.Facts) { f.NextStart = epoch.Add(1) }, policy.StartRate, true},
	{"quarantine", func(f *policy.Facts) { f.Quarantined = "fenced 3 times" }, policy.Quarantined, true},
	{"zone breaker", func(f *policy.Facts) { f.ZoneNotReady = 6 }, policy.ZoneBreaker, true},
	{"power interval", func(f *policy.Facts) { f.LastRunEnded = epoch.Add(-3*time.Minute + 1) }, policy.PowerInterval, true},
	{"doubled interval", func(f *policy.Facts) { f.LastRunEnded, f.RunsNotDone = epoch.Add(-6*time.Minute+1), 2 }, policy.PowerInterval, true},
	{"fences per day", func(f *policy.Facts) { f.RunsLastDay = 3 }, policy.FencesPerDay, true},
}

func TestGuardsPass(t *testing.T) {
	gates := policy.Guards(limits(), fit(), epoch)
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
			assert.Equal(t, []policy.Reason{o.want}, refusals(policy.Guards(limits(), f, epoch)))
			f.Manual = true
			assert.Equal(t, o.waived, len(refusals(policy.Guards(limits(), f, epoch))) == 0, "ordered by a person")
		})
	}
}

// TestGuardsLimits stands one step before each objection above.
func TestGuardsLimits(t *testing.T) {
	for name, spoil := range map[string]func(*policy.Facts){
		"armed observer":        func(f *policy.Facts) { f.Mode, f.Armed = policy.ModeObserve, true },
		"view at its limit":     func(f *policy.Facts) { f.ViewAge = time.Minute },
		"skew at its limit":     func(f *policy.Facts) { f.ClockSkew = 5 * time.Second },
		"the only node down":    func(f *policy.Facts) { f.ClusterNodes, f.ClusterNotReady = 1, 1 },
		"one node left":         func(f *policy.Facts) { f.ClusterNotReady = 49 },
		"quiet period over":     func(f *policy.Facts) { f.QuietUntil = epoch },
		"one below the limit":   func(f *policy.Facts) { f.InFlight = 4 },
		"zone without label":    func(f *policy.Facts) { f.Zone, f.ZoneInFlight, f.ZoneNotReady = "", 9, 10 },
		"two of three in zone":  func(f *policy.Facts) { f.ZoneNodes, f.ZoneNotReady = 3, 2 },
		"54 percent of a zone":  func(f *policy.Facts) { f.ZoneNodes, f.ZoneNotReady = 100, 54 },
		"interval over":         func(f *policy.Facts) { f.LastRunEnded = epoch.Add(-3 * time.Minute) },
		"doubled interval over": func(f *policy.Facts) { f.LastRunEnded, f.RunsNotDone = epoch.Add(-12*time.Minute), 3 },
		"one that was not done": func(f *policy.Facts) { f.LastRunEnded, f.RunsNotDone = epoch.Add(-3*time.Minute), 1 },
		"after a year of them":  func(f *policy.Facts) { f.LastRunEnded, f.RunsNotDone = epoch.Add(-24*time.Hour), 1000 },
		"one below the total":   func(f *policy.Facts) { f.InFlightTotal = 19 },
		"token there":           func(f *policy.Facts) { f.NextStart = epoch },
		"two runs today":        func(f *policy.Facts) { f.RunsLastDay = 2 },
		"identity not read":     func(f *policy.Facts) { f.Identity.Verdict = policy.IdentityUnread },
		"no host needed": func(f *policy.Facts) {
			f.NeedsHost, f.Host, f.HostError, f.RunsLastDay = false, "", policy.NoHost, 9
			f.PowerOwner, f.LastRunEnded, f.Identity.Verdict = "someone", epoch, policy.IdentityDiffers
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fit()
			spoil(&f)
			assert.Empty(t, refusals(policy.Guards(limits(), f, epoch)))
		})
	}
}

func TestInFlightShare(t *testing.T) {
	for _, c := range []struct{ nodes, limit int }{{1, 1}, {9, 1}, {19, 1}, {20, 2}, {49, 4}, {50, 5}, {5000, 5}} {
		f := fit()
		f.ClusterNodes, f.ClusterNotReady = c.nodes, 0
		f.InFlight = c.limit - 1
		assert.True(t, len(refusals(policy.Guards(limits(), f, epoch))) == 0, "%d of %d nodes", f.InFlight, c.nodes)
		f.InFlight = c.limit
		assert.Equal(t, []policy.Reason{policy.InFlightLimit}, refusals(policy.Guards(limits(), f, epoch)), "%d of %d nodes", f.InFlight, c.nodes)
	}
}

func TestUntil(t *testing.T) {
	f := fit()
	f.QuietUntil, f.LastRunEnded, f.Held = epoch.Add(time.Minute), epoch.Add(-time.Minute), "disk"
	f.NextStart, f.Quarantined, f.QuarantinedUntil = epoch.Add(time.Second), "3 runs", epoch.Add(time.Hour)
	until := map[policy.Reason]time.Time{}
	for _, g := range policy.Guards(limits(), f, epoch) {
		if g.Pass {
			assert.Zero(t, g.Until, g.Name)
			continue
		}
		until[g.Reason] = g.Until
	}
	assert.Equal(t, map[policy.Reason]time.Time{
		policy.QuietPeriod: epoch.Add(time.Minute), policy.PowerInterval: epoch.Add(2 * time.Minute),
		policy.StartRate: epoch.Add(time.Second), policy.Quarantined: epoch.Add(time.Hour),
		policy.Hold: {}, // nobody knows when a hold ends
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
		all := policy.Guards(limits(), f, epoch)
		for _, g := range policy.StartGuards(limits(), f, epoch) {
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
		case policy.Observing, policy.SecretMissing, policy.NoHost, policy.IdentityMismatch, policy.IdentityUnknown, policy.NoNodesVisible, policy.EverythingDown,
			policy.NotEnrolled, policy.AddressChanged, policy.Frozen, policy.ClassFrozen:
			t.Skip("replaces another")
		}
		objection.spoil(&more)
		assert.Subset(t, refusals(policy.Guards(limits(), more, epoch)), refusals(policy.Guards(limits(), f, epoch)))
	})
}
