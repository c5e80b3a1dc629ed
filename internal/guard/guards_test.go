package guard_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/reason"
	"github.com/fenced/fenced/internal/times"
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

func TestBucket(t *testing.T) {
	b := guard.Bucket{Burst: 3, PerHour: 60}
	at := func(minutes ...float64) (list []time.Time) {
		for _, m := range minutes {
			list = append(list, epoch.Add(time.Duration(m*float64(time.Minute))))
		}
		return list
	}
	for name, c := range map[string]struct {
		starts []time.Time
		now    float64
		want   float64 // minutes until a start is allowed; 0 = now
	}{
		"full":                      {nil, 0, 0},
		"one left":                  {at(0, 0), 0, 0},
		"empty":                     {at(0, 0, 0), 0, 1},
		"half a token":              {at(0, 0, 0), 0.5, 0.5},
		"a token came":              {at(0, 0, 0), 1, 0},
		"and was taken":             {at(1, 0, 0, 0), 1, 1},
		"order is all the same":     {at(0, 1, 0, 0), 1, 1},
		"a long backlog":            {at(0, 0, 0, 1, 2, 3, 4), 4, 1},
		"full again":                {at(0, 0, 0), 60, 0},
		"never fuller":              {at(-600, 0, 0, 0), 0, 1},
		"more than the bucket had":  {at(0, 0, 0, 0, 0, 0, 0), 0, 1},
		"the clock was set back":    {at(90, 90, 90), 0, 1},
		"also a second later":       {at(90, 90, 90), 1, 1},
		"as long as they lie ahead": {at(90, 90, 90), 90, 1},
		"then it refills":           {at(90, 90, 90), 91, 0},
		"some lie ahead":            {at(0, 0, 90), 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			now := at(c.now)[0]
			assert.Equal(t, at(c.now + c.want)[0], times.Later(b.Next(c.starts, now), now))
		})
	}
	assert.Equal(t, epoch, guard.Bucket{Burst: 1}.Next(at(0, 0, 0), epoch), "no limit")
}

// A limit that somebody has lifted with a large number is none: the bucket is as large, and does not overflow. // I11
func TestBucketOfAnyBurst(t *testing.T) {
	for _, burst := range []int{3, 1_000_000_000, math.MaxInt} {
		b := guard.Bucket{Burst: burst, PerHour: 30}
		assert.False(t, b.Next([]time.Time{epoch, epoch}, epoch).After(epoch), "burst %d", burst)
	}
}

// TestLawBucket: whoever starts as often as he may, over a clock that is set back now
// and then, never starts more than Burst and PerHour allow over any stretch of true
// time; and while the clock only runs on, he is never kept waiting for ever. // I11
func TestLawBucket(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		b := guard.Bucket{Burst: rapid.IntRange(1, 6).Draw(t, "burst"), PerHour: rapid.IntRange(1, 120).Draw(t, "perHour")}
		back := rapid.Bool().Draw(t, "set back")
		clock, passed := epoch, time.Duration(0)
		var onRecord []time.Time
		var starts []time.Duration
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			d := time.Duration(rapid.Int64Range(0, int64(20*time.Minute)).Draw(t, "wait"))
			clock, passed = clock.Add(d), passed+d
			if back && rapid.IntRange(0, 9).Draw(t, "back") == 0 {
				clock = clock.Add(-time.Duration(rapid.Int64Range(0, int64(3*time.Hour)).Draw(t, "by")))
			}
			next := b.Next(onRecord, clock)
			if !back {
				require.LessOrEqual(t, next.Sub(clock), time.Hour/time.Duration(b.PerHour)+1, "one token takes no longer")
			}
			for range 10 {
				if b.Next(onRecord, clock).After(clock) {
					break
				}
				onRecord, starts = append(onRecord, clock), append(starts, passed)
			}
		}
		for i := range starts {
			for j := i; j < len(starts); j++ {
				added := float64(b.PerHour) * (starts[j] - starts[i]).Hours()
				require.LessOrEqual(t, float64(j-i+1), float64(b.Burst)+added+1e-6, "from start %d to %d", i, j)
			}
		}
	})
}

// deletion are facts about a run that deletes a Machine, to which no guard objects.
func deletion() guard.Facts {
	f := fit()
	f.NeedsHost = false
	return f
}

func deletionLimits() guard.Limits {
	l := limits()
	l.MaxDeletions, l.DeletionsPerHour, l.DeletionTimeout = 2, 30, 30*time.Minute
	return l
}

// A deletion has limits of its own, and an order by a person passes none of them: people
// delete Machines without fenced.
func TestDeletionGuards(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*guard.DeletionFact)
		want  reason.Code
		until time.Time
	}{
		"none":                    {func(*guard.DeletionFact) {}, "", time.Time{}},
		"below the limit":         {func(d *guard.DeletionFact) { d.InProgress = 1 }, "", time.Time{}},
		"at the limit":            {func(d *guard.DeletionFact) { d.InProgress = 2 }, reason.DeletionLimit, time.Time{}},
		"token there":             {func(d *guard.DeletionFact) { d.Next = epoch }, "", time.Time{}},
		"no token":                {func(d *guard.DeletionFact) { d.Next = epoch.Add(1) }, reason.DeletionRate, epoch.Add(1)},
		"deleted just now":        {func(d *guard.DeletionFact) { d.Last = epoch }, "", time.Time{}},
		"one failed, too soon":    {failedReplacements(1, time.Minute-1), reason.DeletionBackOff, epoch.Add(1)},
		"one failed":              {failedReplacements(1, time.Minute), "", time.Time{}},
		"three failed, too soon":  {failedReplacements(3, 4*time.Minute-1), reason.DeletionBackOff, epoch.Add(1)},
		"three failed":            {failedReplacements(3, 4*time.Minute), "", time.Time{}},
		"seven failed, too soon":  {failedReplacements(7, time.Hour-1), reason.DeletionBackOff, epoch.Add(1)},
		"a thousand failed":       {failedReplacements(1000, time.Hour), "", time.Time{}},
		"failed, and no deletion": {func(d *guard.DeletionFact) { d.FailedReplacements = 3 }, "", time.Time{}},
		"starting":                {func(d *guard.DeletionFact) { d.StartingUntil = epoch.Add(1) }, reason.ReplacementStarting, epoch.Add(1)},
		"had its time":            {func(d *guard.DeletionFact) { d.StartingUntil = epoch }, "", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			f := deletion()
			c.spoil(&f.Deletion)
			for _, manual := range []bool{false, true} {
				f.Manual = manual
				gates := guard.Gates(deletionLimits(), f, epoch)
				if c.want == "" {
					assert.Empty(t, refusals(gates))
					continue
				}
				assert.Equal(t, []reason.Code{c.want}, refusals(gates))
				for _, g := range gates {
					assert.NotEmpty(t, g.Value, g.Name)
					assert.NotEmpty(t, g.Threshold, g.Name)
					assert.NotEmpty(t, g.Source, g.Name)
					if !g.Pass {
						assert.Equal(t, c.until, g.Until)
					}
				}
			}
		})
	}
}

func failedReplacements(n int, ago time.Duration) func(*guard.DeletionFact) {
	return func(d *guard.DeletionFact) { d.FailedReplacements, d.Last = n, epoch.Add(-ago) }
}

// Neither kind of run delays the other: what limits power cycles is no objection to a
// deletion, and the other way round. The breaker of a zone stops both. // I11
func TestDeletionsAndPowerCyclesDoNotDelayEachOther(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		f := fit()
		f.InFlight, f.InFlightTotal, f.ZoneInFlight = rapid.IntRange(0, 30).Draw(t, "in flight"), rapid.IntRange(0, 30).Draw(t, "total"), rapid.IntRange(0, 2).Draw(t, "zone")
		f.NextStart = epoch.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "next start")))
		d := guard.DeletionFact{InProgress: rapid.IntRange(0, 3).Draw(t, "deletions"), FailedReplacements: rapid.IntRange(0, 9).Draw(t, "failed"), Last: epoch,
			Next:          epoch.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "next deletion"))),
			StartingUntil: epoch.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "starting")))}
		with := f
		with.Deletion = d
		assert.Equal(t, guard.Gates(deletionLimits(), f, epoch), guard.Gates(deletionLimits(), with, epoch), "a power cycle")

		bare := deletion()
		bare.Deletion, with.NeedsHost = d, false
		assert.Equal(t, guard.Gates(deletionLimits(), bare, epoch), guard.Gates(deletionLimits(), with, epoch), "a deletion")
	})
	f := deletion()
	f.ZoneNotReady = 6
	assert.Equal(t, []reason.Code{reason.ZoneBreaker}, refusals(guard.Gates(deletionLimits(), f, epoch)))
}

// What is asked again at the start of a deletion is asked the same way.
func TestStartGatesOfADeletion(t *testing.T) {
	f := deletion()
	f.Deletion = guard.DeletionFact{InProgress: 2, Next: epoch.Add(1), FailedReplacements: 1, Last: epoch, StartingUntil: epoch.Add(1)}
	all, start := guard.Gates(deletionLimits(), f, epoch), guard.StartGates(deletionLimits(), f, epoch)
	assert.Equal(t, []reason.Code{reason.DeletionLimit, reason.DeletionRate, reason.DeletionBackOff, reason.ReplacementStarting}, refusals(start))
	for _, g := range start {
		assert.Contains(t, all, g)
	}
}
