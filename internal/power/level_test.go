package power

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/test/law"
	"github.com/fenced/fenced/test/must"
)

// outlet is a Power whose answers a test sets; by become while it is in use.
type outlet struct {
	mu      sync.Mutex
	reading bmc.Reading
	err     error         // of Read
	after   time.Duration // Read takes this long
	receipt bmc.Receipt
	refusal error // of Send
	reads   int
	busy    bool
	sent    []bmc.Command
	closed  int
}

func (o *outlet) become(s bmc.PowerState, after time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reading.State, o.err, o.after = s, nil, after
}

func (o *outlet) refuses(k bmc.Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = refusing(k)
}

func (o *outlet) Read(ctx context.Context) (bmc.Reading, error) {
	o.mu.Lock()
	if o.busy {
		panic("read by two at once")
	}
	o.reads++
	o.busy = true
	after := o.after
	o.mu.Unlock()
	failed := pause(ctx, after)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy = false
	if failed != nil {
		return bmc.Reading{}, &bmc.Error{Kind: bmc.KindUnreachable, Err: failed}
	}
	r := o.reading
	if r.At.IsZero() {
		r.At = time.Now()
	}
	return r, o.err
}

func (o *outlet) Send(_ context.Context, c bmc.Command) (bmc.Receipt, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sent = append(o.sent, c)
	return o.receipt, o.refusal
}

func (o *outlet) Close(context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.busy {
		panic("closed while it is read")
	}
	o.closed++
	return nil
}

// rack is a host with levels of outlets.
type rack struct {
	host    bmc.Host
	outlets map[string]*outlet // by Device.Key
}

// newRack makes a host; levels[i] are the outlets of level i.
func newRack(levels ...[]*outlet) rack {
	r := rack{host: bmc.Host{Name: "c/n"}, outlets: map[string]*outlet{}}
	for i, level := range levels {
		var l bmc.Level
		for j, o := range level {
			d := deviceAt(fmt.Sprintf("l%d-d%d", i, j))
			r.outlets[d.Key()] = o
			l.Devices = append(l.Devices, d)
		}
		r.host.Levels = append(r.host.Levels, l)
	}
	return r
}

func (r rack) open(d bmc.Device) (bmc.Power, error) {
	if o := r.outlets[d.Key()]; o != nil {
		return o, nil
	}
	return nil, &bmc.Error{Kind: bmc.KindTLS, Op: "open", Addr: d.String(), Err: errors.New("no CA file")}
}

// level opens the last level of the rack.
func (r rack) level(t *testing.T) bmc.Power {
	t.Helper()
	return must.Do(OpenLevel(r.open, r.host, len(r.host.Levels)-1))(t)
}

func says(s bmc.PowerState) *outlet { return &outlet{reading: bmc.Reading{State: s, Session: 7}} }

func fails(k bmc.Kind) *outlet {
	o := &outlet{err: &bmc.Error{Kind: k, Op: "read power state", Addr: "fake", Err: errors.New("x")}}
	o.reading.State = bmc.Off // what comes with an error is not believed
	return o
}

// failsOn fails with a reading of On beside the error.
func failsOn() *outlet {
	o := fails(bmc.KindUnreachable)
	o.reading.State = bmc.On
	return o
}

func TestLevelState(t *testing.T) {
	const offline = bmc.KindUnreachable
	for _, c := range []struct {
		name      string
		devices   []*outlet
		witnesses []*outlet
		want      bmc.PowerState
		partial   bool // or, of an Off, contradicted
		kind      bmc.Kind
	}{
		{"both off", []*outlet{says(bmc.Off), says(bmc.Off)}, nil, bmc.Off, false, ""},
		{"both on", []*outlet{says(bmc.On), says(bmc.On)}, nil, bmc.On, false, ""},
		{"one of two on", []*outlet{says(bmc.Off), says(bmc.On)}, nil, bmc.On, true, ""},
		{"one unknown", []*outlet{says(bmc.Off), says(bmc.Unknown)}, nil, bmc.Unknown, false, ""},
		{"one unknown, one on", []*outlet{says(bmc.Unknown), says(bmc.On)}, nil, bmc.On, true, ""},
		{"one unreadable, one off", []*outlet{says(bmc.Off), fails(offline)}, nil, bmc.Unknown, false, offline},
		{"one unreadable, one on: it has power", []*outlet{fails(offline), says(bmc.On)}, nil, bmc.On, true, ""},
		{"one refuses the account, one on", []*outlet{says(bmc.On), fails(bmc.KindAuth)}, nil, bmc.Unknown, false, bmc.KindAuth},
		{"the refused account is told first", []*outlet{fails(offline), fails(bmc.KindPrivilege)}, nil, bmc.Unknown, false, bmc.KindPrivilege},
		{"what comes with an error is not believed", []*outlet{says(bmc.Off), failsOn()}, nil, bmc.Unknown, false, offline},
		{"off, the witness is off", []*outlet{says(bmc.Off)}, []*outlet{says(bmc.Off)}, bmc.Off, false, ""},
		{"off, the witness is dead", []*outlet{says(bmc.Off)}, []*outlet{fails(offline)}, bmc.Off, false, ""},
		{"off, the witness does not know", []*outlet{says(bmc.Off)}, []*outlet{says(bmc.Unknown)}, bmc.Off, false, ""},
		{"off, the witness is on", []*outlet{says(bmc.Off)}, []*outlet{says(bmc.On)}, bmc.On, true, ""},
		{"both off, one of two witnesses is on", []*outlet{says(bmc.Off), says(bmc.Off)}, []*outlet{fails(offline), says(bmc.On)}, bmc.On, true, ""},
		{"unknown, the witness is on", []*outlet{says(bmc.Unknown)}, []*outlet{says(bmc.On)}, bmc.Unknown, false, ""},
		{"unreadable, the witness is off", []*outlet{fails(offline)}, []*outlet{says(bmc.Off)}, bmc.Unknown, false, offline},
		{"unreadable, the witness is on", []*outlet{fails(offline)}, []*outlet{says(bmc.On)}, bmc.Unknown, false, offline},
		{"on, the witness is off", []*outlet{says(bmc.On)}, []*outlet{says(bmc.Off)}, bmc.On, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			levels := [][]*outlet{c.devices}
			if c.witnesses != nil {
				levels = [][]*outlet{c.witnesses, c.devices}
			}
			l := newRack(levels...).level(t)
			_, _ = l.Read(t.Context()) // one failure of a witness may be chance
			got, err := l.Read(t.Context())
			assert.Equal(t, c.kind, bmc.KindOf(err), "%v", err)
			assert.Equal(t, c.want, got.State)
			assert.Equal(t, c.partial, got.Partial || got.Contradicted)
			assert.Equal(t, c.partial && c.devices[0].reading.State == bmc.Off && c.witnesses != nil, got.Contradicted)
			require.NoError(t, l.Close(t.Context()))
		})
	}
}

func TestLevelFaultsVoid(t *testing.T) {
	broken := says(bmc.Off)
	broken.reading.Fault = "control fault"
	r := must.Do(newRack([]*outlet{says(bmc.Off), broken}).level(t).Read(t.Context()))(t)
	assert.Equal(t, "control fault", r.Fault)
	assert.Equal(t, empty(), empty().Add(r), "no proof begins with it")
}

// TestLevelSession: it changes when any device's does, and is no other level's.
func TestLevelSession(t *testing.T) {
	a, b := says(bmc.Off), says(bmc.Off)
	rack := newRack([]*outlet{a, b})
	l := rack.level(t)
	session := func(p bmc.Power) uint64 {
		r := must.Do(p.Read(t.Context()))(t)
		return r.Session
	}
	first := session(l)
	assert.Equal(t, first, session(l))
	b.reading.Session++
	second := session(l)
	assert.NotEqual(t, first, second, "a BMC restarted")
	b.reading.Session--
	assert.NotContains(t, []uint64{first, second}, session(l), "the old number comes back, the old session does not")
	assert.NotContains(t, []uint64{first, second, 7}, session(rack.level(t)), "opened again")
}

func TestLevelIdentity(t *testing.T) {
	a, b, witness := says(bmc.Off), says(bmc.Off), says(bmc.Off)
	a.reading.Identity, b.reading.Identity = bmc.Identity{UUID: hostUUID, Serial: "A"}, bmc.Identity{UUID: swapped, Serial: "B"}
	witness.reading.Identity = bmc.Identity{UUID: "of the witness"}
	one := must.Do(newRack([]*outlet{witness}, []*outlet{a}).level(t).Read(t.Context()))(t)
	assert.Equal(t, a.reading.Identity, one.Identity, "the device's, never the witness's")
	assert.Empty(t, one.Parts)

	l := newRack([]*outlet{a, b}).level(t)
	two := must.Do(l.Read(t.Context()))(t)
	assert.False(t, bmc.UsableUUID(two.Identity.UUID), "two devices are not taken for one")
	require.Len(t, two.Parts, 2)
	assert.Equal(t, a.reading.Identity, two.Parts[0].Identity)
	assert.Equal(t, b.reading.Identity, two.Parts[1].Identity)
	b.reading.Identity.UUID = reversed
	again := must.Do(l.Read(t.Context()))(t)
	assert.NotEqual(t, two.Identity, again.Identity, "any device's counts")
}

// TestLevelAge: a reading is as old as its oldest part.
func TestLevelAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := says(bmc.Off)
		slow.after = time.Second
		l := newRack([]*outlet{says(bmc.Off), slow}).level(t)
		start := time.Now()
		r := must.Do(l.Read(t.Context()))(t)
		assert.Equal(t, bmc.Off, r.State)
		assert.Equal(t, start, r.At)
		assert.Equal(t, start.Add(time.Second), r.Parts[1].At)
		early, late := r, r
		early.Parts[1].Took, late.At = 3*time.Second, start.Add(2*time.Second)
		together := new(levelPower).combine([]bmc.Reading{early.Parts[1], late})
		assert.Equal(t, start.Add(-2*time.Second), together.At.Add(-together.Took), "when the first device was asked")
	})
}

// TestWitnessAccount: one that refuses the account is not asked again: that
// would lock it.
func TestWitnessAccount(t *testing.T) {
	for _, c := range []struct {
		kind  bmc.Kind
		first bmc.PowerState
		want  int
	}{{bmc.KindAuth, bmc.Off, 1}, {bmc.KindPrivilege, bmc.Off, 1}, {bmc.KindUnreachable, bmc.Unknown, 3}, {bmc.KindTLS, bmc.Unknown, 3}} {
		witness := fails(c.kind)
		l := newRack([]*outlet{witness}, []*outlet{says(bmc.Off)}).level(t)
		assert.Equal(t, c.first, readState(t, l), "one failure may be chance, a refusal is none")
		for range 2 {
			assert.Equal(t, bmc.Off, readState(t, l))
		}
		require.NoError(t, l.Close(t.Context()))
		assert.Equal(t, c.want, witness.reads, string(c.kind))
	}
}

func TestLevelRawIsBounded(t *testing.T) {
	a, b := says(bmc.Off), says(bmc.Off)
	a.reading.Raw, b.reading.Raw = "Chassis Power is off, says the first of both PDUs at length", "ä€ß off"
	r := must.Do(newRack([]*outlet{a, b}).level(t).Read(t.Context()))(t)
	assert.LessOrEqual(t, len(r.Raw), 64)
	assert.Contains(t, r.Raw, "first of both")
	rack := newRack([]*outlet{says(bmc.On)}, []*outlet{says(bmc.Off)})
	d := &rack.host.Levels[0].Devices[0]
	o := rack.outlets[d.Key()]
	d.Endpoint.Host = "a-very-long-name-of-a-bmc.in-a-deep-domain.of-a-datacentre.example.org"
	rack.outlets[d.Key()] = o
	r = must.Do(rack.level(t).Read(t.Context()))(t)
	assert.Equal(t, bmc.On, r.State)
	assert.LessOrEqual(t, len(r.Raw), 64)
}

func refuses(k bmc.Kind, s bmc.Sent) *outlet {
	return &outlet{refusal: &bmc.Error{Kind: k, Op: "send off", Addr: "fake", Sent: s, Err: errors.New("x")}}
}

// TestLevelSend: a level has accepted when each device has, and what one of them
// may have done is never told as not done. // I2
func TestLevelSend(t *testing.T) {
	took, already := func() *outlet { return &outlet{} }, func() *outlet { return &outlet{receipt: bmc.Receipt{Already: true}} }
	untyped := func() *outlet { return &outlet{refusal: errors.New("untyped")} }
	for _, c := range []struct {
		name    string
		devices []*outlet
		already bool
		kind    bmc.Kind
		sent    bmc.Sent
	}{
		{"both accept", []*outlet{took(), took()}, false, "", 0},
		{"both are there already", []*outlet{already(), already()}, true, "", 0},
		{"one is there already", []*outlet{already(), took()}, false, "", 0},
		{"one accepts, one refuses", []*outlet{took(), refuses(bmc.KindBusy, bmc.SentNo)}, false, bmc.KindBusy, bmc.SentMaybe},
		{"one refuses, one accepts", []*outlet{refuses(bmc.KindBusy, bmc.SentNo), took()}, false, bmc.KindBusy, bmc.SentMaybe},
		{"one accepts, one was told and refuses", []*outlet{took(), refuses(bmc.KindBusy, bmc.SentYes)}, false, bmc.KindBusy, bmc.SentYes},
		{"neither was reached", []*outlet{refuses(bmc.KindUnreachable, bmc.SentNo), refuses(bmc.KindRefused, bmc.SentNo)}, false, bmc.KindUnreachable, bmc.SentNo},
		{"one may have been reached", []*outlet{refuses(bmc.KindUnreachable, bmc.SentNo), refuses(bmc.KindUnreachable, bmc.SentMaybe)}, false, bmc.KindUnreachable, bmc.SentMaybe},
		{"the refused account is told first", []*outlet{refuses(bmc.KindUnreachable, bmc.SentNo), refuses(bmc.KindAuth, bmc.SentNo)}, false, bmc.KindAuth, bmc.SentNo},
		{"an untyped error", []*outlet{untyped(), untyped()}, false, bmc.KindProtocol, bmc.SentMaybe},
	} {
		t.Run(c.name, func(t *testing.T) {
			witness := &outlet{}
			receipt, err := newRack([]*outlet{witness}, c.devices).level(t).Send(t.Context(), bmc.CommandOff)
			assert.Equal(t, c.already, receipt.Already)
			assert.Equal(t, c.kind, bmc.KindOf(err))
			if err != nil {
				e, ok := errors.AsType[*bmc.Error](err)
				require.True(t, ok)
				assert.Equal(t, c.sent, e.Sent)
			}
			for _, o := range c.devices {
				assert.Equal(t, []bmc.Command{bmc.CommandOff}, o.sent, "each is told, whatever another says")
			}
			assert.Empty(t, witness.sent, "a witness is only read")
		})
	}
}

func TestOpenLevel(t *testing.T) {
	board, left, right := says(bmc.On), says(bmc.On), says(bmc.On)
	rack := newRack([]*outlet{board}, []*outlet{left, right})
	p, err := OpenLevel(rack.open, rack.host, 0)
	require.NoError(t, err)
	assert.Same(t, board, p, "one device and no witness is itself")
	for _, n := range []int{-1, 2} {
		_, err = OpenLevel(rack.open, rack.host, n)
		assert.Equal(t, bmc.KindUnsupported, bmc.KindOf(err))
	}

	p = must.Do(OpenLevel(rack.open, rack.host, 1))(t)
	require.NoError(t, p.Close(t.Context()))
	assert.Equal(t, []int{1, 1, 1}, []int{board.closed, left.closed, right.closed}, "the witness too")

	rack.host.Levels[0].Devices[0].Unusable = errors.New("no password file")
	_, err = OpenLevel(rack.open, rack.host, 0)
	require.EqualError(t, err, "no password file")
	p, err = OpenLevel(rack.open, rack.host, 1)
	require.NoError(t, err, "a witness that cannot be opened stands in nobody's way")
	assert.Equal(t, bmc.On, readState(t, p))

	rack.host.Levels[1].Devices[1].Endpoint.Host = "elsewhere"
	_, err = OpenLevel(rack.open, rack.host, 1)
	assert.Equal(t, bmc.KindTLS, bmc.KindOf(err))
	assert.Equal(t, 2, left.closed, "what was opened before is closed")
}

func readState(t *testing.T, p bmc.Power) bmc.PowerState {
	t.Helper()
	r := must.Do(p.Read(t.Context()))(t)
	return r.State
}

// TestLevelLaw: Off is read only when each device was read Off and no witness On;
// a proof follows only from such readings.
func TestLevelLaw(t *testing.T) {
	answer := rapid.Custom(func(t *rapid.T) *outlet {
		if rapid.IntRange(0, 9).Draw(t, "fails") == 0 {
			return fails(rapid.SampledFrom([]bmc.Kind{bmc.KindUnreachable, bmc.KindAuth, bmc.KindTLS}).Draw(t, "kind"))
		}
		o := says(rapid.SampledFrom([]bmc.PowerState{bmc.Off, bmc.Off, bmc.Off, bmc.On, bmc.Unknown}).Draw(t, "state"))
		o.reading.At = noon.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "at")) * time.Second)
		return o
	})
	law.Check(t, func(t *rapid.T) {
		witnesses := rapid.SliceOfN(answer, 0, 2).Draw(t, "witnesses")
		devices := rapid.SliceOfN(answer, 1, 3).Draw(t, "devices")
		levels := [][]*outlet{devices}
		if len(witnesses) > 0 {
			levels = [][]*outlet{witnesses, devices}
		}
		rack := newRack(levels...)
		p, err := OpenLevel(rack.open, rack.host, len(levels)-1)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.Read(t.Context()) // one failure of a witness may be chance
		r, err := p.Read(t.Context())
		off := true
		for _, o := range devices {
			off = off && o.err == nil && o.reading.State == bmc.Off
		}
		for _, o := range witnesses {
			off = off && (o.err != nil || o.reading.State != bmc.On)
		}
		if got := err == nil && r.State == bmc.Off; got != off {
			t.Fatalf("read Off: %v, is off: %v (%+v, %v)", got, off, r, err)
		}
		if err != nil && len(devices) > 1 && (r.State != bmc.Unknown || len(r.Parts) > 0) {
			t.Fatalf("an error with a reading: %+v", r)
		}
	})
}

// TestLevelProofLaw: each device of a proven level read Off twice, the spacing
// apart, and last within the age, however its answers were delayed.
func TestLevelProofLaw(t *testing.T) {
	proven := 0
	law.CheckTested(t, func() bool { return proven > 0 }, func(t *rapid.T) {
		rack := newRack([]*outlet{says(bmc.Off), says(bmc.Off)})
		p, err := OpenLevel(rack.open, rack.host, 0)
		if err != nil {
			t.Fatal(err)
		}
		proof, now := empty(), noon
		var answers [2][]time.Time // of plain Off readings without a break
		for range rapid.IntRange(2, 5).Draw(t, "readings") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 3 * time.Second}).Draw(t, "pause"))
			end := now
			broken := rapid.IntRange(0, 9).Draw(t, "breaks") == 0
			for i := range 2 {
				o := rack.outlets[fmt.Sprintf("l0-d%d", i)]
				o.reading.State = bmc.Off
				o.reading.At = now.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "delay")) * time.Second)
				if end.Before(o.reading.At) {
					end = o.reading.At
				}
				answers[i] = append(answers[i], o.reading.At)
			}
			if broken {
				rack.outlets["l0-d1"].reading.State = bmc.Unknown
				answers = [2][]time.Time{}
			}
			r, err := p.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			proof, now = proof.Add(r), end
		}
		if !proof.Proven(now) {
			return
		}
		proven++
		for i, at := range answers {
			if n := len(at); n < 2 || at[n-1].Sub(at[0]) < 3*time.Second || now.Sub(at[n-1]) > 5*time.Second {
				t.Fatalf("device %d is not proven off at %v by %v", i, now, at)
			}
		}
	})
}
