package bmc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/test/law"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// empty is the proof of the product: 3 s apart, 5 s old at most.
func empty() Proof { return Proof{Spacing: 3 * time.Second, MaxAge: 5 * time.Second} }

func at(d time.Duration, state PowerState) Reading { return Reading{State: state, At: noon.Add(d)} }

func TestProof(t *testing.T) {
	const s = time.Second
	session := func(r Reading) Reading { r.Session = 2; return r }
	named := func(r Reading) Reading { r.Identity.UUID = "other"; return r }
	slow := func(r Reading, took time.Duration) Reading { r.Took = took; return r }
	fault := func(r Reading) Reading { r.Fault = "interlock"; return r }
	for _, c := range []struct {
		name     string
		readings []Reading
		now      time.Duration
		want     bool
	}{
		{"no reading", nil, 0, false},
		{"one Off", []Reading{at(0, Off)}, 0, false},
		{"one Off, long ago", []Reading{at(0, Off)}, 4 * s, false},
		{"exactly 3 s apart", []Reading{at(0, Off), at(3*s, Off)}, 3 * s, true},
		{"a nanosecond less", []Reading{at(0, Off), at(3*s-1, Off)}, 3 * s, false},
		{"the second asked too early, and answered late", []Reading{at(0, Off), slow(at(3*s, Off), 1)}, 3 * s, false},
		{"the second asked in time, and answered late", []Reading{at(0, Off), slow(at(5*s, Off), 2*s)}, 5 * s, true},
		{"the first answered late", []Reading{slow(at(2*s, Off), 2*s), at(5*s, Off)}, 5 * s, true},
		{"many reads, the ends 3 s apart", []Reading{at(0, Off), at(s, Off), at(2*s, Off), at(3*s, Off)}, 3 * s, true},
		{"the newest exactly 5 s old", []Reading{at(0, Off), at(3*s, Off)}, 8 * s, true},
		{"a nanosecond older", []Reading{at(0, Off), at(3*s, Off)}, 8*s + 1, false},
		{"a newer read makes it young again", []Reading{at(0, Off), at(3*s, Off), at(9*s, Off)}, 9 * s, true},
		{"from the future", []Reading{at(0, Off), at(3*s, Off)}, 3*s - 1, false},
		{"On between", []Reading{at(0, Off), at(s, On), at(3*s, Off)}, 3 * s, false},
		{"Unknown between", []Reading{at(0, Off), at(s, Unknown), at(3*s, Off)}, 3 * s, false},
		{"On at the end", []Reading{at(0, Off), at(3*s, Off), at(4*s, On)}, 4 * s, false},
		{"proven again after On", []Reading{at(0, On), at(s, Off), at(4*s, Off)}, 4 * s, true},
		{"another session", []Reading{at(0, Off), session(at(3*s, Off))}, 3 * s, false},
		{"proven on the other session", []Reading{at(0, Off), session(at(3*s, Off)), session(at(6*s, Off))}, 6 * s, true},
		{"another identity", []Reading{at(0, Off), named(at(3*s, Off))}, 3 * s, false},
		{"a fault", []Reading{at(0, Off), fault(at(3*s, Off))}, 3 * s, false},
		{"a fault between", []Reading{at(0, Off), fault(at(s, Off)), at(3*s, Off)}, 3 * s, false},
		{"a clock that ran backwards", []Reading{at(10*s, Off), at(0, Off), at(2*s, Off)}, 2 * s, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := empty()
			for _, r := range c.readings {
				p = p.Add(r)
			}
			assert.Equal(t, c.want, p.Proven(noon.Add(c.now)))
		})
	}
}

func TestProofWithoutSpacingProvesNothing(t *testing.T) {
	p := Proof{MaxAge: time.Hour}.Add(at(0, Off)).Add(at(time.Second, Off))
	assert.False(t, p.Proven(noon.Add(time.Second)), "a spacing that was forgotten must not make one read a proof")
}

func TestProofTells(t *testing.T) {
	p := empty()
	assert.True(t, p.Since().IsZero() && p.Until().IsZero())
	assert.Equal(t, noon, p.NextRead(noon), "while nothing was read: now")
	p = p.Add(at(0, Off)).Add(at(time.Second, Off))
	assert.Equal(t, noon, p.Since())
	assert.Equal(t, noon.Add(time.Second+5*time.Second), p.Until())
	assert.Equal(t, noon.Add(3*time.Second), p.NextRead(noon.Add(time.Second)), "the end of the spacing")
	assert.Equal(t, empty(), p.Reset())
	assert.Equal(t, empty(), p.Add(at(2*time.Second, On)), "On leaves nothing behind")
}

// TestProofLaw says what a proof is, in another way than Add does: some suffix
// of the readings is all plain Off of one session and identity in order of
// time, spans the spacing, and ends within the age.
func TestProofLaw(t *testing.T) {
	law.Check(t, func(t *rapid.T) {
		var rs []Reading
		clock := noon
		for range rapid.IntRange(0, 12).Draw(t, "readings") {
			clock = clock.Add(rapid.SampledFrom([]time.Duration{-time.Second, 0, time.Second, 2 * time.Second, 3 * time.Second}).Draw(t, "step"))
			rs = append(rs, Reading{
				State:    rapid.SampledFrom([]PowerState{Off, Off, Off, Off, Off, On, Unknown}).Draw(t, "state"),
				At:       clock,
				Session:  rapid.SampledFrom([]uint64{1, 1, 1, 1, 2}).Draw(t, "session"),
				Identity: Identity{UUID: rapid.SampledFrom([]string{"a", "a", "a", "a", "b"}).Draw(t, "identity")},
				Fault:    rapid.SampledFrom([]string{"", "", "", "", "", "interlock"}).Draw(t, "fault"),
			})
		}
		now := clock.Add(rapid.SampledFrom([]time.Duration{-1, 0, 5 * time.Second, 5*time.Second + 1}).Draw(t, "age"))
		p := empty()
		for _, r := range rs {
			p = p.Add(r)
		}
		if got, want := p.Proven(now), provenBySuffix(rs, now); got != want {
			t.Fatalf("proven %v, want %v: %+v at %v", got, want, rs, now)
		}
	})
}

func provenBySuffix(rs []Reading, now time.Time) bool {
	if len(rs) == 0 {
		return false
	}
	last := rs[len(rs)-1]
	if last.At.After(now) || now.Sub(last.At) > 5*time.Second {
		return false
	}
	for i := len(rs) - 1; i >= 0; i-- {
		r := rs[i]
		if r.State != Off || r.Fault != "" || r.Session != last.Session || r.Identity != last.Identity {
			return false
		}
		if i+1 < len(rs) && r.At.After(rs[i+1].At) {
			return false
		}
		if last.At.Sub(r.At) >= 3*time.Second {
			return true
		}
	}
	return false
}

// An Off counts as accepted in the session that took it, and in no other. // I1
func TestAcceptance(t *testing.T) {
	in := func(session uint64) Reading { return Reading{State: Off, At: noon, Session: session} }
	var a Acceptance
	assert.False(t, a.AddCommand(CommandOff, nil).OffAccepted(), "nothing was read before: nobody knows in which session")
	a = a.AddReading(in(7))
	assert.False(t, a.OffAccepted())
	assert.False(t, a.AddCommand(CommandOff, assert.AnError).OffAccepted())
	assert.False(t, a.AddCommand(CommandOn, nil).OffAccepted())
	a = a.AddCommand(CommandOff, nil)
	assert.True(t, a.OffAccepted())
	assert.True(t, a.AddReading(in(7)).OffAccepted())
	assert.False(t, a.AddCommand(CommandOn, nil).OffAccepted(), "the last command counts")
	a = a.AddReading(in(8))
	assert.False(t, a.OffAccepted(), "the BMC restarted")
	assert.False(t, a.AddReading(in(7)).OffAccepted(), "and does not take it back")
	assert.True(t, a.AddCommand(CommandOff, nil).OffAccepted(), "sent again")
}
