package sweep

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/internal/power"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
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
				e := &entry{results: unpolled, place: -1, service: strconv.Itoa(rapid.IntRange(0, 6).Draw(t, "service"))}
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
					s.hasten(rapid.SampledFrom(all).Draw(t, "entry"), now)
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

// A poll that is in flight when something changes may have read what was before: another one follows at once, and only one.
func TestPollInFlightIsFollowedByAnother(t *testing.T) {
	s, e := newSchedule(1), &entry{results: unpolled, place: -1, service: "a"}
	s.add(e, noon)
	require.Equal(t, e, s.next(noon))
	s.hasten(e, noon)
	s.end(e, noon, noon.Add(time.Hour))
	require.Nil(t, s.next(noon), "the BMC has its pause")
	require.Equal(t, e, s.next(noon.Add(serviceGap)))
	s.end(e, noon.Add(serviceGap), noon.Add(time.Hour))
	assert.Equal(t, noon.Add(time.Hour), s.nextDue())
}

func TestARefusedAccountIsNotLocked(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	m.err = failing(bmc.KindAuth)
	w.run(t, func(t *testing.T) {
		w.wait(every + every/5)
		require.Len(t, m.reads, 1)
		require.Len(t, w.events, 1, "it is told at once")
		assert.Equal(t, "BMCAuth", string(w.events[0].Reason))
		w.wait(24 * time.Hour)
		assert.Less(t, len(m.reads), 30)
		for i := 1; i < len(m.reads); i++ {
			assert.GreaterOrEqual(t, m.reads[i].Sub(m.reads[i-1]), min(power.AccountPause<<(i-1), time.Hour))
		}
		require.Len(t, w.events, 1)

		asked := len(m.reads)
		w.change(func() { w.subjects[0] = withPassword(w.subjects[0], "the new one"); m.err = nil })
		w.wait(2*every + every/5)
		require.Greater(t, len(m.reads), asked, "new credentials are tried soon")
		assert.Equal(t, "the new one", m.passwords[asked])
		assert.True(t, w.result(t, 1).Dependable)
	})
}

// 20 outlets of one PDU have one account: it would be locked by the first round.
func TestOneAccountOfManyOutletsIsTriedOnce(t *testing.T) {
	w := newWorld()
	var pdu *machine
	for n := range 20 {
		pdu = w.device(n, bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc_snmp", Endpoint: bmc.Endpoint{Host: "pdu", Port: 161},
			Parameters: map[string]string{"plug": strconv.Itoa(n)}, Username: "apc", Password: bmc.NewSecret("x")})
	}
	pdu.err = failing(bmc.KindAuth)
	w.run(t, func(t *testing.T) {
		w.wait(4 * time.Minute)
		assert.Len(t, pdu.reads, 1)
		for n := range 20 {
			assert.Equal(t, "BMCAuth", string(w.result(t, n).Reason))
			assert.Equal(t, pdu.reads[0].Add(pdu.takes), w.result(t, n).Checked, "nobody was asked since")
		}
		assert.Len(t, w.events, 20)
	})
}

// A health check does not try an account again that a run was refused a moment ago.
func TestAccountThatARunWasRefusedIsNotChecked(t *testing.T) {
	w := newWorld()
	m := w.host(1)
	w.run(t, func(t *testing.T) {
		w.wait(every + every/5)
		asked := len(m.reads)
		w.change(func() { m.err = failing(bmc.KindAuth) })
		run := must.Do(w.lockOut.Guard(w.actors.Urgent())(w.subjects[0].Host.Levels[0].Devices[0]))(t)
		_, err := run.Read(t.Context())
		require.Equal(t, bmc.KindAuth, bmc.KindOf(err))
		require.NoError(t, run.Close(t.Context()))
		w.wait(power.AccountPause - time.Second)
		assert.Len(t, m.reads, asked+1)
		assert.Equal(t, "BMCAuth", string(w.result(t, 1).Reason))
		w.wait(2 * every)
		assert.Len(t, m.reads, asked+2)
	})
}

func TestOneAtATimeAtAService(t *testing.T) {
	w := newWorld()
	var pdu *machine
	for n := range 8 {
		pdu = w.device(n, bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc", Endpoint: bmc.Endpoint{Host: "pdu", Port: 23},
			Parameters: map[string]string{"plug": strconv.Itoa(n)}})
	}
	pdu.takes = 4 * time.Second // less than the timeout, and all of them more
	w.run(t, func(t *testing.T) {
		w.wait(10 * time.Minute)
		assert.Zero(t, pdu.clash)
		for i := 1; i < len(pdu.reads); i++ {
			assert.GreaterOrEqual(t, pdu.reads[i].Sub(pdu.reads[i-1]), pdu.takes+serviceGap)
		}
		for n := range 8 {
			assert.Zero(t, w.result(t, n).Failures)
			assert.False(t, w.result(t, n).Checked.IsZero())
		}
	})
}

func withPassword(s hosts.Subject, text string) hosts.Subject {
	d := s.Host.Levels[0].Devices[0]
	d.Password = bmc.NewSecret(text)
	s.Host.Levels = []bmc.Level{{Devices: []bmc.Device{d}}}
	return s
}

// Programs of others start and log in at every look: they have the time that the
// engine gives them.
func TestSlowAgentIsNotDead(t *testing.T) {
	w := newWorld()
	pdu := w.device(1, bmc.Device{Driver: bmc.DriverFenceAgent, Agent: "fence_apc", Endpoint: bmc.Endpoint{Host: "pdu", Port: 23},
		Parameters: map[string]string{"plug": "1"}})
	pdu.takes = power.AgentReadTimeout - time.Second
	own := w.host(2)
	own.takes = readTimeout + time.Second
	w.run(t, func(t *testing.T) {
		w.wait(5 * time.Minute)
		assert.True(t, w.result(t, 1).Dependable)
		assert.Equal(t, pdu.takes, w.result(t, 1).Latency)
		assert.False(t, w.result(t, 2).Dependable, "a BMC that is asked by fenced itself")
		w.change(func() { pdu.hangs = true })
		w.wait(5 * time.Minute)
		assert.False(t, w.result(t, 1).Dependable)
	})
}
