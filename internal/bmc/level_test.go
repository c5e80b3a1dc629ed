package bmc

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
)

// outlet is a Power whose answers a test sets; by become while it is in use.
type outlet struct {
	mu      sync.Mutex
	reading Reading
	err     error         // of Read
	after   time.Duration // Read takes this long
	receipt Receipt
	refusal error // of Send
	reads   int
	busy    bool
	sent    []Command
	closed  int
}

func (o *outlet) become(s PowerState, after time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reading.State, o.err, o.after = s, nil, after
}

func (o *outlet) Read(ctx context.Context) (Reading, error) {
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
		return Reading{}, &Error{Kind: KindUnreachable, Err: failed}
	}
	r := o.reading
	if r.At.IsZero() {
		r.At = time.Now()
	}
	return r, o.err
}

func (o *outlet) Send(_ context.Context, c Command) (Receipt, error) {
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
	host    Host
	outlets map[string]*outlet // by Device.Key
}

// newRack makes a host; levels[i] are the outlets of level i.
func newRack(levels ...[]*outlet) rack {
	r := rack{host: Host{Name: "c/n"}, outlets: map[string]*outlet{}}
	for i, level := range levels {
		var l Level
		for j, o := range level {
			d := deviceAt(fmt.Sprintf("l%d-d%d", i, j))
			r.outlets[d.Key()] = o
			l.Devices = append(l.Devices, d)
		}
		r.host.Levels = append(r.host.Levels, l)
	}
	return r
}

func (r rack) open(d Device) (Power, error) {
	if o := r.outlets[d.Key()]; o != nil {
		return o, nil
	}
	return nil, &Error{Kind: KindTLS, Op: "open", Addr: d.String(), Err: errors.New("no CA file")}
}

// level opens the last level of the rack.
func (r rack) level(t *testing.T) Power {
	t.Helper()
	p, err := OpenLevel(r.open, r.host, len(r.host.Levels)-1)
	require.NoError(t, err)
	return p
}

func says(s PowerState) *outlet { return &outlet{reading: Reading{State: s, Session: 7}} }

func fails(k Kind) *outlet {
	o := &outlet{err: &Error{Kind: k, Op: "read power state", Addr: "fake", Err: errors.New("x")}}
	o.reading.State = Off // what comes with an error is not believed
	return o
}

// failsOn fails with a reading of On beside the error.
func failsOn() *outlet {
	o := fails(KindUnreachable)
	o.reading.State = On
	return o
}

func TestLevelState(t *testing.T) {
	const offline = KindUnreachable
	for _, c := range []struct {
		name      string
		devices   []*outlet
		witnesses []*outlet
		want      PowerState
		partial   bool // or, of an Off, contradicted
		kind      Kind
	}{
		{"both off", []*outlet{says(Off), says(Off)}, nil, Off, false, ""},
		{"both on", []*outlet{says(On), says(On)}, nil, On, false, ""},
		{"one of two on", []*outlet{says(Off), says(On)}, nil, On, true, ""},
		{"one unknown", []*outlet{says(Off), says(Unknown)}, nil, Unknown, false, ""},
		{"one unknown, one on", []*outlet{says(Unknown), says(On)}, nil, On, true, ""},
		{"one unreadable, one off", []*outlet{says(Off), fails(offline)}, nil, Unknown, false, offline},
		{"one unreadable, one on: it has power", []*outlet{fails(offline), says(On)}, nil, On, true, ""},
		{"one refuses the account, one on", []*outlet{says(On), fails(KindAuth)}, nil, Unknown, false, KindAuth},
		{"the refused account is told first", []*outlet{fails(offline), fails(KindPrivilege)}, nil, Unknown, false, KindPrivilege},
		{"what comes with an error is not believed", []*outlet{says(Off), failsOn()}, nil, Unknown, false, offline},
		{"off, the witness is off", []*outlet{says(Off)}, []*outlet{says(Off)}, Off, false, ""},
		{"off, the witness is dead", []*outlet{says(Off)}, []*outlet{fails(offline)}, Off, false, ""},
		{"off, the witness does not know", []*outlet{says(Off)}, []*outlet{says(Unknown)}, Off, false, ""},
		{"off, the witness is on", []*outlet{says(Off)}, []*outlet{says(On)}, On, true, ""},
		{"both off, one of two witnesses is on", []*outlet{says(Off), says(Off)}, []*outlet{fails(offline), says(On)}, On, true, ""},
		{"unknown, the witness is on", []*outlet{says(Unknown)}, []*outlet{says(On)}, Unknown, false, ""},
		{"unreadable, the witness is off", []*outlet{fails(offline)}, []*outlet{says(Off)}, Unknown, false, offline},
		{"unreadable, the witness is on", []*outlet{fails(offline)}, []*outlet{says(On)}, Unknown, false, offline},
		{"on, the witness is off", []*outlet{says(On)}, []*outlet{says(Off)}, On, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			levels := [][]*outlet{c.devices}
			if c.witnesses != nil {
				levels = [][]*outlet{c.witnesses, c.devices}
			}
			l := newRack(levels...).level(t)
			_, _ = l.Read(t.Context()) // one failure of a witness may be chance
			got, err := l.Read(t.Context())
			assert.Equal(t, c.kind, KindOf(err), "%v", err)
			assert.Equal(t, c.want, got.State)
			assert.Equal(t, c.partial, got.Partial || got.Contradicted)
			assert.Equal(t, c.partial && c.devices[0].reading.State == Off && c.witnesses != nil, got.Contradicted)
			require.NoError(t, l.Close(t.Context()))
		})
	}
}

func TestLevelFaultsVoid(t *testing.T) {
	broken := says(Off)
	broken.reading.Fault = "control fault"
	r, err := newRack([]*outlet{says(Off), broken}).level(t).Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "control fault", r.Fault)
	assert.Equal(t, empty(), empty().Add(r), "no proof begins with it")
}

// TestLevelSession: it changes when any device's does, and is no other level's.
func TestLevelSession(t *testing.T) {
	a, b := says(Off), says(Off)
	rack := newRack([]*outlet{a, b})
	l := rack.level(t)
	session := func(p Power) uint64 {
		r, err := p.Read(t.Context())
		require.NoError(t, err)
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
	a, b, witness := says(Off), says(Off), says(Off)
	a.reading.Identity, b.reading.Identity = Identity{UUID: asIs, Serial: "A"}, Identity{UUID: swapped, Serial: "B"}
	witness.reading.Identity = Identity{UUID: "of the witness"}
	one, err := newRack([]*outlet{witness}, []*outlet{a}).level(t).Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, a.reading.Identity, one.Identity, "the device's, never the witness's")
	assert.Empty(t, one.Parts)

	l := newRack([]*outlet{a, b}).level(t)
	two, err := l.Read(t.Context())
	require.NoError(t, err)
	assert.False(t, UsableUUID(two.Identity.UUID), "two devices are not taken for one")
	require.Len(t, two.Parts, 2)
	assert.Equal(t, a.reading.Identity, two.Parts[0].Identity)
	assert.Equal(t, b.reading.Identity, two.Parts[1].Identity)
	b.reading.Identity.UUID = reversed
	again, err := l.Read(t.Context())
	require.NoError(t, err)
	assert.False(t, two.Identity.Equal(again.Identity), "any device's counts")
}

// TestLevelAge: a reading is as old as its oldest part.
func TestLevelAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := says(Off)
		slow.after = time.Second
		l := newRack([]*outlet{says(Off), slow}).level(t)
		start := time.Now()
		r, err := l.Read(t.Context())
		require.NoError(t, err)
		assert.Equal(t, Off, r.State)
		assert.Equal(t, start, r.At)
		assert.Equal(t, start.Add(time.Second), r.Parts[1].At)
		early, late := r, r
		early.Parts[1].Took, late.At = 3*time.Second, start.Add(2*time.Second)
		together := new(levelPower).together([]Reading{early.Parts[1], late})
		assert.Equal(t, start.Add(-2*time.Second), together.At.Add(-together.Took), "when the first device was asked")
	})
}

// TestWitnessAccount: one that refuses the account is not asked again: that
// would lock it.
func TestWitnessAccount(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		first PowerState
		want  int
	}{{KindAuth, Off, 1}, {KindPrivilege, Off, 1}, {KindUnreachable, Unknown, 3}, {KindTLS, Unknown, 3}} {
		witness := fails(c.kind)
		l := newRack([]*outlet{witness}, []*outlet{says(Off)}).level(t)
		assert.Equal(t, c.first, readState(t, l), "one failure may be chance, a refusal is none")
		for range 2 {
			assert.Equal(t, Off, readState(t, l))
		}
		require.NoError(t, l.Close(t.Context()))
		assert.Equal(t, c.want, witness.reads, string(c.kind))
	}
}

func TestLevelRawIsBounded(t *testing.T) {
	a, b := says(Off), says(Off)
	a.reading.Raw, b.reading.Raw = "Chassis Power is off, says the first of both PDUs at length", "ä€ß off"
	r, err := newRack([]*outlet{a, b}).level(t).Read(t.Context())
	require.NoError(t, err)
	assert.LessOrEqual(t, len(r.Raw), 64)
	assert.Contains(t, r.Raw, "first of both")
	rack := newRack([]*outlet{says(On)}, []*outlet{says(Off)})
	d := &rack.host.Levels[0].Devices[0]
	o := rack.outlets[d.Key()]
	d.Endpoint.Host = "a-very-long-name-of-a-bmc.in-a-deep-domain.of-a-datacentre.example.org"
	rack.outlets[d.Key()] = o
	r, err = rack.level(t).Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, On, r.State)
	assert.LessOrEqual(t, len(r.Raw), 64)
}
