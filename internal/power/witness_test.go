package power

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/state"
	"github.com/fenced/fenced/test/must"
)

// look is one reading of a level, begun at a time since the first.
type look struct {
	begun, took time.Duration
	bmc.Reading
}

// looks reads a level as a run does, once a second after each answer, for as long
// as d, and gives what was read and when it was proven first; 0 is never.
func looks(t *testing.T, l bmc.Power, d time.Duration) (list []look, proven time.Duration) {
	t.Helper()
	start, proof := time.Now(), empty()
	for time.Since(start) < d {
		begun := time.Since(start)
		r := must.Do(l.Read(within(t, 5*time.Second)))(t)
		list = append(list, look{begun, time.Since(start) - begun, r})
		if proof = proof.Add(r); proven == 0 && proof.Proven(time.Now()) {
			proven = time.Since(start)
		}
		time.Sleep(time.Second)
	}
	return list, proven
}

// states is what was read, without repetitions.
func states(list []look) (s []bmc.PowerState) {
	for _, l := range list {
		if len(s) == 0 || s[len(s)-1] != l.State {
			s = append(s, l.State)
		}
	}
	return s
}

// witnessed opens the second of two levels, an outlet that reads Off, and has given
// it an Off.
func witnessed(t *testing.T, w *outlet) (bmc.Power, *outlet) {
	t.Helper()
	device := says(bmc.Off)
	l := newRack([]*outlet{w}, []*outlet{device}).level(t)
	must.Do(l.Send(t.Context(), bmc.CommandOff))(t)
	return l, device
}

// A witness may take longer to say On than a level waits for it: the host runs. // I1
func TestSlowWitnessIsHeard(t *testing.T) {
	for _, after := range []time.Duration{1999 * time.Millisecond, 2500 * time.Millisecond, 9 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := says(bmc.On)
			w.after = after
			l, _ := witnessed(t, w)
			list, proven := looks(t, l, 5*time.Minute)
			assert.Zero(t, proven)
			assert.NotContains(t, states(list), bmc.Off)
			for _, r := range list {
				assert.LessOrEqual(t, r.took, witnessWait)
				assert.NotEqual(t, r.State == bmc.On, r.Unwitnessed)
				assert.Equal(t, r.State == bmc.On, r.Contradicted)
				assert.LessOrEqual(t, len(r.Raw), maxRaw)
			}
			if after > witnessWait {
				assert.Equal(t, "waiting for ipmi://l0-d0:623", list[0].Raw)
			}
			assert.Equal(t, "ipmi://l0-d0:623 reads On", list[len(list)-1].Raw)
			require.NoError(t, l.Close(t.Context()))
		})
	}
}

// A dead witness says nothing when its own time is over, or at its second failure,
// and from then on it delays no reading: the proof stays fresh.
func TestDeadWitness(t *testing.T) {
	for _, c := range []struct {
		name   string
		dies   time.Duration // by itself
		proven time.Duration
	}{
		{"never answers", time.Hour, 17 * time.Second},
		{"gives up after 5 s", 5 * time.Second, 18 * time.Second},
		{"is refused at once", 0, 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := fails(bmc.KindUnreachable)
			w.after = c.dies
			l, _ := witnessed(t, w)
			list, proven := looks(t, l, 2*time.Minute)
			assert.Equal(t, []bmc.PowerState{bmc.Unknown, bmc.Off}, states(list), c.name)
			assert.Positive(t, proven, c.name)
			assert.LessOrEqual(t, proven, c.proven, c.name)
			for _, r := range list {
				assert.LessOrEqual(t, r.took, witnessWait)
				assert.Equal(t, time.Duration(0), r.Took, "the wait for a witness is not the device's")
			}
			require.NoError(t, l.Close(t.Context()))
		})
	}
}

// What a witness says later is heard: Off is Off no longer when it reads On.
func TestWitnessComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := says(bmc.On)
		w.after = 3 * time.Second
		l, _ := witnessed(t, w)
		list, _ := looks(t, l, 20*time.Second)
		assert.Equal(t, []bmc.PowerState{bmc.Unknown, bmc.On}, states(list))
		w.become(bmc.On, time.Hour) // it dies
		list, proven := looks(t, l, 40*time.Second)
		assert.Equal(t, []bmc.PowerState{bmc.On, bmc.Off}, states(list))
		assert.GreaterOrEqual(t, proven, witnessTime-5*time.Second)
		w.become(bmc.On, 8*time.Second)
		list, _ = looks(t, l, 40*time.Second)
		assert.Equal(t, []bmc.PowerState{bmc.Off, bmc.On}, states(list))
		require.NoError(t, l.Close(t.Context()))
	})
}

// One failure may be chance: the slow On that follows it is waited for.
func TestOneFailureOfAWitnessIsChance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := fails(bmc.KindSessions)
		l, _ := witnessed(t, w)
		assert.Equal(t, bmc.Unknown, readState(t, l))
		w.become(bmc.On, 8*time.Second)
		list, _ := looks(t, l, time.Minute)
		assert.Equal(t, []bmc.PowerState{bmc.Unknown, bmc.On}, states(list))
		require.NoError(t, l.Close(t.Context()))
	})
}

// What a witness said before the Off, or long ago, says nothing about it; that the
// Off is repeated changes nothing.
func TestWitnessIsAskedAfterTheOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, device := says(bmc.Off), says(bmc.Off)
		l := newRack([]*outlet{w}, []*outlet{device}).level(t)
		assert.Equal(t, bmc.Off, readState(t, l))
		w.become(bmc.Off, 3*time.Second)
		time.Sleep(time.Second)
		send := func(want bmc.Kind) {
			_, err := l.Send(t.Context(), bmc.CommandOff)
			require.Equal(t, want, bmc.KindOf(err))
		}
		send("")
		assert.Equal(t, bmc.Unknown, readState(t, l), "it spoke before the command")
		time.Sleep(time.Second)
		assert.Equal(t, bmc.Off, readState(t, l))
		send("")
		assert.Equal(t, bmc.Off, readState(t, l), "the same command again")
		device.refusal = &bmc.Error{Kind: bmc.KindBusy, Op: "send off", Addr: "fake", Err: errors.New("x")}
		send(bmc.KindBusy)
		device.refusal = nil
		send("")
		synctest.Wait()
		assert.Equal(t, bmc.Unknown, readState(t, l), "the one before was not accepted")
		time.Sleep(5 * time.Second)
		assert.Equal(t, bmc.Off, readState(t, l))
		w.become(bmc.Off, time.Hour)
		time.Sleep(2*witnessTime + witnessValidity + time.Second)
		assert.Equal(t, bmc.Unknown, readState(t, l), "that is too long ago")
		require.NoError(t, l.Close(t.Context()))
	})
}

// A level that is closed leaves nothing behind, also with a witness that does not
// return when it is told to.
func TestCloseEndsTheWitnessesRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := says(bmc.On)
		w.after = time.Hour
		l, _ := witnessed(t, w)
		assert.Equal(t, bmc.Unknown, readState(t, l))
		start := time.Now()
		require.NoError(t, l.Close(t.Context()))
		assert.Zero(t, time.Since(start))
		assert.Equal(t, 1, w.closed)

		stuck, device := &stuckPower{until: make(chan struct{})}, says(bmc.Off)
		rack := newRack([]*outlet{says(bmc.On)}, []*outlet{device})
		l = must.Do(OpenLevel(func(d bmc.Device) (bmc.Power, error) {
			if d.Key() == "l0-d0" {
				return stuck, nil
			}
			return rack.open(d)
		}, rack.host, 1))(t)
		list, proven := looks(t, l, time.Minute)
		assert.Equal(t, []bmc.PowerState{bmc.Unknown}, states(list), "nobody knows what it would say")
		assert.Zero(t, proven)
		start = time.Now()
		require.NoError(t, l.Close(t.Context()))
		assert.Equal(t, CloseTimeout, time.Since(start))
		assert.Equal(t, 1, device.closed)
		assert.False(t, stuck.closed.Load())
		close(stuck.until)
		synctest.Wait()
		assert.True(t, stuck.closed.Load(), "when it returned")
	})
}

// stuckPower ignores its ctx.
type stuckPower struct {
	until  chan struct{}
	closed atomic.Bool
}

func (p *stuckPower) Read(context.Context) (bmc.Reading, error) { <-p.until; return bmc.Reading{}, nil }

func (p *stuckPower) Send(context.Context, bmc.Command) (bmc.Receipt, error) {
	return bmc.Receipt{}, errors.New("a witness is only read")
}

func (p *stuckPower) Close(context.Context) error { p.closed.Store(true); return nil }

// oneBMC is a host with a BMC that is asked natively, as two systems, then through a
// library; and with an outlet elsewhere.
func oneBMC(y *yard, native func(context.Context, bmc.Device) (bmc.Reading, error)) (*Actors, bmc.Host) {
	first, second, library, outlet := deviceAt("a"), deviceAt("a"), deviceAt("a"), deviceAt("pdu")
	second.Endpoint.System = "2"
	library.Driver = bmc.DriverBMCLib
	y.read = func(ctx context.Context, d bmc.Device) (bmc.Reading, error) {
		if d.Driver == bmc.DriverIPMI && d.Endpoint.Host == "a" {
			return native(ctx, d)
		}
		return bmc.Reading{State: bmc.Off, At: time.Now()}, nil
	}
	level := func(d ...bmc.Device) bmc.Level { return bmc.Level{Devices: d} }
	return NewActors(y.open), bmc.Host{Name: "c/n", Levels: []bmc.Level{level(first, second), level(library), level(outlet)}}
}

// reads looks at a level for two minutes as a run does that has sent its Off, and
// sends it again while the level does not read Off.
func reads(t *testing.T, p bmc.Power) (proven, unbroken time.Duration, saw map[bmc.PowerState]int) {
	t.Helper()
	start, sent, proof := time.Now(), time.Now(), empty()
	must.Do(p.Send(within(t, 10*time.Second), bmc.CommandOff))(t)
	saw = map[bmc.PowerState]int{}
	for time.Since(start) < 2*time.Minute {
		r, err := p.Read(within(t, 5*time.Second))
		if err != nil {
			r = bmc.Reading{At: time.Now()}
		}
		saw[r.State]++
		proof = proof.Add(r)
		now := time.Now()
		if proof.Proven(now) {
			unbroken = max(unbroken, now.Sub(proof.Since()))
			if proven == 0 {
				proven = now.Sub(start)
			}
		}
		if r.State != bmc.Off && time.Since(sent) >= 10*time.Second {
			_, _ = p.Send(within(t, 10*time.Second), bmc.CommandOff)
			sent = time.Now()
		}
		time.Sleep(time.Second)
	}
	return proven, unbroken, saw
}

// TestWitnessAtTheSameService: one BMC answers one at a time. What asks it natively
// in vain must leave the library its turn, for as long as a proof needs.
func TestWitnessAtTheSameService(t *testing.T) {
	for _, c := range []struct {
		name   string
		outlet bool // at last, in place of the library
		native func(context.Context, bmc.Device) (bmc.Reading, error)
		proven time.Duration // 0: never
	}{
		{"dead", false, takes(time.Hour), 30 * time.Second},
		{"slow", false, takes(8 * time.Second), 0},
		{"quick", false, takes(10 * time.Millisecond), 0},
		{"two there are dead, for an outlet elsewhere", true, takes(time.Hour), 50 * time.Second},
		{"two there are slow, for an outlet elsewhere", true, takes(9 * time.Second), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				y := newYard()
				a, h := oneBMC(y, c.native)
				if c.outlet {
					h.Levels = append(h.Levels[:1:1], h.Levels[2])
				} else {
					h.Levels = h.Levels[:2]
				}
				p := must.Do(OpenLevel(a.Urgent(), h, len(h.Levels)-1))(t)
				proven, unbroken, saw := reads(t, p)
				if c.proven == 0 {
					assert.Zero(t, proven)
					assert.Zero(t, saw[bmc.Off])
					assert.Positive(t, saw[bmc.On])
				} else {
					assert.Positive(t, proven)
					assert.LessOrEqual(t, proven, c.proven)
					assert.Greater(t, unbroken, 18*time.Second, "a Lease must stand still for 15 s")
				}
				require.NoError(t, p.Close(t.Context()))
				assert.Equal(t, 1, y.most["a"])
				quiet(t, a)
				n, closed := y.sessions()
				assert.Equal(t, n, closed)
			})
		})
	}
}

// TestWitnessThatIsNotAsked: others who keep its BMC busy are not its answer. // I1
func TestWitnessThatIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		y := newYard()
		a, h := oneBMC(y, takes(10*time.Millisecond))
		y.send = func(ctx context.Context, d bmc.Device, _ bmc.Command) (bmc.Receipt, error) {
			if d.Endpoint.Host == "a" {
				return bmc.Receipt{}, pause(ctx, time.Hour)
			}
			return bmc.Receipt{}, nil
		}
		h.Levels = append(h.Levels[:1:1], h.Levels[2])
		other := opened(t, a.Urgent(), deviceAt("a"))
		busy, cancel := context.WithCancel(t.Context())
		go func() { _, _ = other.Send(busy, bmc.CommandOn) }()
		synctest.Wait()
		p := must.Do(OpenLevel(a.Urgent(), h, 1))(t)
		proven, _, saw := reads(t, p)
		assert.Zero(t, proven)
		assert.Equal(t, map[bmc.PowerState]int{bmc.Unknown: saw[bmc.Unknown]}, saw)
		cancel()
		time.Sleep(11 * time.Second)
		assert.Equal(t, bmc.On, readState(t, p))
		require.NoError(t, p.Close(t.Context()))
		require.NoError(t, other.Close(t.Context()))
		quiet(t, a)
	})
}

// A BMC that refused a command, because its account may only read, is still a witness: it is read, and says that the host runs. A right
// that its reading lacks is asked for once. // I1
func TestWitnessWhoseAccountMayOnlyRead(t *testing.T) {
	for _, known := range []string{"since the run tried", "since before a restart"} {
		synctest.Test(t, func(t *testing.T) {
			w, device := says(bmc.On), says(bmc.Off)
			w.refusal = refusing(bmc.KindPrivilege)
			r := newRack([]*outlet{w}, []*outlet{device})
			a := newAccounts(state.RefusedAccounts{}, time.Now())
			first := must.Do(OpenLevel(a.Guard(r.open), r.host, 0))(t)
			_, err := first.Send(t.Context(), bmc.CommandOff)
			require.Equal(t, bmc.KindPrivilege, bmc.KindOf(err))
			require.NoError(t, first.Close(t.Context()))
			if known == "since before a restart" {
				a = newAccounts(state.RefusedAccounts{Accounts: a.list(time.Now())}, time.Now())
			}

			l := must.Do(OpenLevel(a.Guard(r.open), r.host, 1))(t)
			must.Do(l.Send(t.Context(), bmc.CommandOff))(t)
			list, proven := looks(t, l, 2*time.Minute)
			assert.Zero(t, proven)
			assert.Equal(t, []bmc.PowerState{bmc.On}, states(list), known)
			assert.Equal(t, "ipmi://l0-d0:623", OnAmong(t.Context(), a.Guard(r.open), r.host, 0, ReadTiming{ReadTimeout: time.Second}), "nor does the last question before an isolation pass it over")
			assert.Len(t, w.sent, 1)
			require.NoError(t, l.Close(t.Context()))

			w.err = refusing(bmc.KindPrivilege)
			for range 2 {
				before := w.reads
				l = must.Do(OpenLevel(a.Guard(r.open), r.host, 1))(t)
				looks(t, l, time.Minute)
				require.NoError(t, l.Close(t.Context()))
				assert.LessOrEqual(t, w.reads-before, 1, known)
			}
			before := w.reads
			assert.Empty(t, OnAmong(t.Context(), a.Guard(r.open), r.host, 0, ReadTiming{ReadTimeout: time.Second}))
			assert.Equal(t, before, w.reads)
			w.become(bmc.On, 0)
			a.accepted(r.host.Levels[0].Devices[0])
			assert.NotEmpty(t, OnAmong(t.Context(), a.Guard(r.open), r.host, 0, ReadTiming{ReadTimeout: time.Second}), "a health check has read it since")
		})
	}
}

// A witness that has read On since the Off, and then refuses its account, runs: who is dead refuses nothing. What it said before the
// Off does not count. // I1, I26
func TestWitnessThatReadsOnAndThenRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := says(bmc.On)
		l, device := witnessed(t, w)
		confirmed := time.Now()
		assert.Equal(t, bmc.On, readState(t, l))
		time.Sleep(time.Second)
		w.refuses(bmc.KindAuth)
		list, proven := looks(t, l, 2*time.Minute)
		assert.Zero(t, proven)
		assert.Equal(t, []bmc.PowerState{bmc.On}, states(list))
		device.become(bmc.Unknown, 0)
		assert.Equal(t, bmc.Unknown, readState(t, l))
		assert.Equal(t, "ipmi://l0-d0:623", l.(*levelPower).LowerLevelOn(confirmed))

		must.Do(l.Send(t.Context(), bmc.CommandOn))(t)
		must.Do(l.Send(t.Context(), bmc.CommandOff))(t)
		device.become(bmc.Off, 0)
		assert.Equal(t, bmc.Off, readState(t, l), "of the Off after that it has said nothing")
		require.NoError(t, l.Close(t.Context()))
	})
}

// An On that a witness read contradicts a confirmation, also when the next reading fails before anybody has asked. // I26
func TestOnOfAWitnessOutlivesItsFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := says(bmc.On)
		w.after = 2 * time.Second
		device := fails(bmc.KindUnreachable)
		l := newRack([]*outlet{w}, []*outlet{device}).level(t)
		confirmed := time.Now()
		time.Sleep(time.Second)
		_, err := l.Read(within(t, time.Second)) // it is read meanwhile
		require.Error(t, err)
		time.Sleep(5 * time.Second)
		w.become(bmc.On, time.Hour)
		device.after = 15 * time.Second // an agent that takes long
		_, err = l.Read(within(t, 20*time.Second))
		require.Error(t, err)
		assert.Equal(t, "ipmi://l0-d0:623", l.(*levelPower).LowerLevelOn(confirmed))
		assert.Empty(t, l.(*levelPower).LowerLevelOn(confirmed.Add(2*time.Second)), "of a later confirmation it says nothing")
		require.NoError(t, l.Close(t.Context()))
	})
}
