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
