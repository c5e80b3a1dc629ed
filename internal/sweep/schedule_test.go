package sweep

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

// Whatever comes, ends, fails or goes: the bounds hold, no look is lost, and none
// is begun before its time.
func TestScheduleLaws(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		s := newSchedule(rapid.IntRange(1, 5).Draw(t, "concurrency"))
		now := noon
		var all, running []*entry
		freed, held := map[string]time.Time{}, map[string]int{}
		begin := func() {
			for e := s.next(now); e != nil; e = s.next(now) {
				require.False(t, e.gone)
				require.False(t, e.due.After(now), "begun before its time")
				require.False(t, now.Before(freed[e.service]), "no gap")
				require.Zero(t, held[e.service], "in the way of a person")
				for _, other := range running {
					require.NotEqual(t, other.service, e.service, "two at one service")
				}
				running = append(running, e)
			}
			require.LessOrEqual(t, len(running), s.concurrency)
			suspects := 0
			for _, e := range running {
				if e.countedSuspect {
					suspects++
				}
			}
			require.LessOrEqual(t, suspects, s.suspectSlots())
			require.Equal(t, len(running), s.running)
			require.Equal(t, suspects, s.suspects)
		}
		t.Repeat(map[string]func(*rapid.T){
			"come": func(t *rapid.T) {
				e := &entry{place: -1, service: strconv.Itoa(rapid.IntRange(0, 6).Draw(t, "service"))}
				all = append(all, e)
				s.add(e, now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "in"))*time.Second))
			},
			"go": func(t *rapid.T) {
				if len(all) > 0 {
					rapid.SampledFrom(all).Draw(t, "gone").gone = true
				}
			},
			"hasten": func(t *rapid.T) {
				if len(all) > 0 {
					s.bringForward(rapid.SampledFrom(all).Draw(t, "entry"), now)
				}
			},
			"end": func(t *rapid.T) {
				if len(running) == 0 {
					t.Skip("nothing runs")
				}
				i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				e := running[i]
				running = append(running[:i:i], running[i+1:]...)
				e.failures = rapid.IntRange(0, 5).Draw(t, "failures")
				freed[e.service] = now.Add(serviceGap)
				s.end(e, now, now.Add(every))
			},
			"hold": func(t *rapid.T) {
				if len(all) > 0 {
					e := rapid.SampledFrom(all).Draw(t, "entry")
					s.block(e)
					held[e.service]++
				}
			},
			"let": func(t *rapid.T) {
				for _, e := range all {
					if held[e.service] > 0 {
						held[e.service]--
						s.unblock(e, now)
						freed[e.service] = now.Add(serviceGap)
						return
					}
				}
				t.Skip("nothing is held")
			},
			"pass": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(1, 30).Draw(t, "seconds")) * time.Second)
				s.forget(now)
			},
			"": func(*rapid.T) { begin() },
		})
		for _, e := range all {
			for ; held[e.service] > 0; held[e.service]-- {
				s.unblock(e, now)
			}
		}
		for range 20 * (len(all) + 1) { // with time, everybody has a turn
			now = now.Add(every)
			for _, e := range running {
				e.lastGood = now
				s.end(e, now, now.Add(time.Hour))
			}
			running = nil
			clear(freed)
			now = now.Add(serviceGap)
			begin()
		}
		for _, e := range all {
			require.True(t, e.gone || !e.lastGood.IsZero() || s.running > 0, "lost")
		}
	})
}
