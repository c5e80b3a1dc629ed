package guard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/guard"
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
			assert.Equal(t, at(c.now + c.want)[0], later(b.Next(c.starts, now), now))
		})
	}
	assert.Equal(t, epoch, guard.Bucket{Burst: 1}.Next(at(0, 0, 0), epoch), "no limit")
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
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
