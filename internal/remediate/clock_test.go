package remediate

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/fenced/fenced/internal/bmc"
)

// A record of a clock that was hours ahead is read by one that is right: the host that was
// switched off comes back in the usual time. // I20
func TestClockSetBackLeavesNoHostOff(t *testing.T) {
	for name, later := range map[string]func(r *Run){
		"all times":     func(r *Run) { *r = mapTimes(*r, func(at time.Time) time.Time { return at.Add(5 * time.Hour) }) },
		"the step":      func(r *Run) { r.StepStarted = noon.Add(5 * time.Hour) },
		"the isolation": func(r *Run) { r.Isolated = noon.Add(5 * time.Hour) },
		"the command":   func(r *Run) { r.Intent = Intent{SendOn, noon.Add(5 * time.Hour)} },
	} {
		t.Run(name, func(t *testing.T) {
			r, s := begin(PowerOn, time.Second)
			later(&r)
			s.PodsGone = CannotTell
			on := time.Duration(-1)
			for d := time.Duration(0); d < 2*time.Minute && on < 0; d += time.Second {
				s.At, s.Power.At = noon.Add(d), noon.Add(d)
				var a Action
				if r, a, _ = Next(r, s, noon.Add(d)); a == SendOn {
					on = d
				}
			}
			assert.GreaterOrEqual(t, on, time.Duration(0), "On was never sent, and the run is at %s", r.Step)
			assert.LessOrEqual(t, on, r.Limits.PodsGoneTimeout)
		})
	}
}

// A later attempt waits for its back-off, and not for a clock that was ahead.
func TestBackOffOfAClockThatWasAhead(t *testing.T) {
	r, s := begin(PowerOff, time.Second)
	again(&r, &s)
	r.NotBefore = noon.Add(3 * time.Minute)
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, noon.Add(3*time.Minute), got.NotBefore, "one interval ahead is as it should be")
	r.NotBefore = noon.Add(5 * time.Hour)
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, noon.Add(3*time.Minute), got.NotBefore)
}

// While this clock is known to be wrong no deadline expires, in no step, and On is sent. // I16
func TestNoDeadlineExpiresByAWrongClock(t *testing.T) {
	for _, step := range []Step{PowerOn, AwaitNode, RestoreNode, Held} {
		t.Run(string(step), func(t *testing.T) {
			r, s := begin(step, time.Minute)
			s.Clock, s.Paused, s.PausedReason = No, true, "ClockSkew"
			s.Node, s.Power.State, s.Restored = Node{Exists: No}, bmc.Off, No
			if step == AwaitNode || step == RestoreNode {
				s.Power.State = bmc.On
			}
			if step == RestoreNode {
				s.Node = Node{Exists: Yes, UID: "u2", BootID: "b2", SystemUUID: "s"}
			}
			commanded := false
			for d := time.Duration(0); d < 24*time.Hour; d += time.Minute {
				s.At = noon.Add(d)
				var a Action
				r, a, _ = Next(r, s, noon.Add(d))
				assert.Equal(t, step, r.Step, "after %s", d)
				assert.False(t, a.Destructive(), a)
				commanded = commanded || a == SendOn
			}
			assert.Equal(t, step == PowerOn || step == Held, commanded)
		})
	}
}

// A clock that is an hour ahead takes a run over whose host has booted for a minute. What
// it would do waits until it is right, and then has its whole time. // I16
func TestClockAheadErasesNoMachine(t *testing.T) {
	r, s := begin(AwaitNode, time.Minute)
	r.Limits.MaxAttempts, s.Node = 1, Node{Exists: No}
	ahead := noon.Add(time.Hour)
	for _, clock := range []Answer{CannotTell, No} {
		s.Clock, s.Paused, s.At = clock, clock == No, ahead
		for range 3 {
			var a Action
			r, a, _ = Next(r, s, ahead)
			assert.Equal(t, Nothing, a)
			assert.Equal(t, AwaitNode, r.Step)
			assert.True(t, r.WrongClock)
			ahead = ahead.Add(time.Second)
		}
	}
	s.Clock, s.Paused, s.At = Yes, false, noon.Add(10*time.Second)
	r, _, _ = Next(r, s, s.At)
	assert.False(t, r.WrongClock)
	assert.Equal(t, AwaitNode, r.Step)
	assert.Equal(t, s.At.Add(r.Limits.ReadyTimeout), r.Deadline())
}

// One wrong clock after another is not taken for the same. // I7, I16
func TestEachWrongClockBeginsAnew(t *testing.T) {
	r, s := begin(PowerOn, 10*time.Second)
	r.WrongClock, s.Clock, s.ClockSet, s.PodsGone = true, No, true, No
	s.At = noon.Add(2 * time.Hour)
	got, a, _ := Next(r, s, s.At)
	assert.Equal(t, Nothing, a, "pods are bound")
	assert.Equal(t, s.At, got.Isolated)
	s.ClockSet = false
	s.At = s.At.Add(got.Limits.PodsGoneTimeout)
	_, a, _ = Next(got, s, s.At)
	assert.Equal(t, SendOn, a)
}

// What protects a host starts anew with the clock, too.
func TestWaitsStartAnewWithTheClock(t *testing.T) {
	r, s := begin(PowerOff, 20*time.Second)
	r.OffLease.RenewTime, r.OffLease.Seen = ago(30*time.Second), ago(20*time.Second)
	s.Proof = proof(bmc.Off, 20*time.Second, 0)
	r.WrongClock = true
	got, _, _ := Next(r, s, noon)
	assert.Equal(t, PowerOff, got.Step, "the Lease is watched again")
	assert.Equal(t, noon, got.OffLease.Seen)
	r.WrongClock = false
	got, _, _ = Next(r, s, noon)
	assert.Equal(t, DeleteNode, got.Step)
}
