package power

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/fenced/fenced/internal/bmc"
)

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
	_, err := p.Send(within(t, 10*time.Second), bmc.CommandOff)
	require.NoError(t, err)
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
				p, err := OpenLevel(a.Urgent(), h, len(h.Levels)-1)
				require.NoError(t, err)
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
		p, err := OpenLevel(a.Urgent(), h, 1)
		require.NoError(t, err)
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
