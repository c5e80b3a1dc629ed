package guard_test

import (
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
