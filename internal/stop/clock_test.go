package stop

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A clock that jumps forward and comes back ends no pause. A clock that stays there is believed
// after a while, and one that is set back at once. // I23
func TestClockThatJumpsEndsNoStop(t *testing.T) {
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := &jumpTolerantClock{wall: start}
	p := stop{by: "ada", until: start.Add(time.Hour)}
	over := func(now time.Time) bool { return !p.active(now) }
	at := func(mono, jump time.Duration) time.Time { return s.at(start.Add(mono+jump), mono) }
	assert.Equal(t, start.Add(time.Second), at(time.Second, 0))
	assert.False(t, over(at(2*time.Second, 2*time.Hour)), "it jumps")
	assert.False(t, over(at(9*time.Minute, 2*time.Hour)))
	assert.Equal(t, start.Add(10*time.Minute), at(10*time.Minute, 0), "it is back")
	assert.False(t, over(at(11*time.Minute, 2*time.Hour)), "it jumps again")
	assert.False(t, over(at(21*time.Minute-1, 2*time.Hour)))
	assert.True(t, over(at(21*time.Minute, 2*time.Hour)), "it was right")
	assert.False(t, over(at(22*time.Minute, 0)), "it is set back")
	assert.False(t, over(at(time.Hour-1, 0)))
	assert.True(t, over(at(time.Hour, 0)), "time itself is no jump")
	late := &jumpTolerantClock{wall: start}
	late.at(start.Add(time.Hour), 0)
	late.at(start.Add(time.Hour+9*time.Minute+365*24*time.Hour), 9*time.Minute)
	assert.Equal(t, start.Add(10*time.Minute), late.at(start.Add(10*time.Minute+365*24*time.Hour), 10*time.Minute), "a jump on top of one is as new")
	for mono := time.Hour; mono < 2*time.Hour; mono += time.Second {
		slow := (mono - time.Hour) / 100 // it is slewed
		assert.Equal(t, start.Add(mono+slow), at(mono, slow))
	}
}

// If a clock jumps over the end of a stop, the quiet period begins when the jump is believed,
// not at the end that the clock skipped. // I16, I23
func TestStopThatTheClockJumpedOverHasJustEnded(t *testing.T) {
	start := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	s := &jumpTolerantClock{wall: start}
	end := start.Add(time.Hour)
	at := func(mono time.Duration) time.Time { return s.at(start.Add(mono+2*time.Hour), mono) }
	at(time.Second)
	assert.Equal(t, end, s.endedAt(end), "the jump is not believed yet")
	now := at(doubtTime + time.Second)
	assert.Equal(t, start.Add(2*time.Hour+doubtTime+time.Second), now)
	assert.Equal(t, now, s.endedAt(end))
	assert.Equal(t, start, s.endedAt(start), "ended before the jump")
	later := at(time.Hour)
	assert.Equal(t, now, s.endedAt(end), "still then")
	assert.Equal(t, later, s.endedAt(later), "ended after it")
}
