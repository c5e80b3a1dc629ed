package fake

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// BMC is the client of a host's BMC. It answers at once, unless the BMC is Slow.
func (c *Cluster) BMC(host string) bmc.Power {
	return &client{c: c, device: func(s *State) device { return &s.Host(host).BMC }}
}

// device is a BMC or an outlet, as seen by a client.
type device interface {
	fault() Fault
	up(now time.Time) bool
	read(now time.Time) (bmc.Reading, error)
	send(c bmc.Command, now time.Time)
}

func (b *BMC) fault() Fault { return b.Fault }

func (o *Outlet) fault() Fault { return o.Fault }

func (b *BMC) up(now time.Time) bool { return b.Up(now) }

func (o *Outlet) up(time.Time) bool { return true }

func (b *BMC) read(now time.Time) (bmc.Reading, error) {
	b.reads++
	if b.Fails != nil {
		return bmc.Reading{}, b.Fails
	}
	r, _ := b.Reading(now)
	return r, nil
}

func (b *BMC) send(c bmc.Command, now time.Time) { b.commands = append(b.commands, c); b.Obey(c, now) }

func (o *Outlet) read(now time.Time) (bmc.Reading, error) { o.reads++; return o.Reading(now), nil }

func (o *Outlet) send(c bmc.Command, now time.Time) {
	o.commands = append(o.commands, c)
	o.Obey(c, now)
}

// Open finds the BMC of an entry of hosts.d; it is a bmc.Opener.
func (c *Cluster) Open(d bmc.Device) (p bmc.Power, err error) {
	err = errors.New("no such BMC")
	c.Do(func(s *State) {
		for node, e := range s.Entries {
			if e.Levels[0].Devices[0].Key() == d.Key() {
				p, err = c.BMC(node), nil
			}
		}
	})
	return p, err
}

type client struct {
	c      *Cluster
	device func(*State) device
}

// reach delivers a request to the device.
func (p *client) reach(ctx context.Context, op string) error {
	var f Fault
	var up bool
	p.c.Do(func(s *State) { f, up = p.device(s).fault(), p.device(s).up(time.Now()) })
	if f == Hangs {
		<-ctx.Done()
		return &bmc.Error{Kind: bmc.KindUnreachable, Op: op, Err: ctx.Err()}
	}
	if kind, err := f.Refusal(); err != nil {
		return &bmc.Error{Kind: kind, Op: op, Err: err}
	}
	if !up {
		return &bmc.Error{Kind: bmc.KindUnreachable, Op: op, Err: errors.New("no answer")}
	}
	if f == Slow {
		select {
		case <-ctx.Done():
			return &bmc.Error{Kind: bmc.KindUnreachable, Op: op, Err: ctx.Err()}
		case <-time.After(slowness):
		}
	}
	return nil
}

func (p *client) Read(ctx context.Context) (r bmc.Reading, err error) {
	if err := p.reach(ctx, "read power state"); err != nil {
		return bmc.Reading{}, err
	}
	p.c.Do(func(s *State) { r, err = p.device(s).read(time.Now()) })
	return r, err
}

func (p *client) Send(ctx context.Context, cmd bmc.Command) (bmc.Receipt, error) {
	if err := p.reach(ctx, "send "+cmd.String()); err != nil {
		return bmc.Receipt{}, err
	}
	p.c.Do(func(s *State) { p.device(s).send(cmd, time.Now()) })
	return bmc.Receipt{}, nil
}

func (p *client) Close(context.Context) error { return nil }

// OutletHandle is one outlet, for tests to read and change. Each method takes the
// lock of the cluster. It is also a client of the outlet.
type OutletHandle struct {
	bmc.Power
	c    *Cluster
	host string
	i    int
}

func (c *Cluster) AddOutlet(host string) *OutletHandle {
	p := &OutletHandle{c: c, host: host}
	c.Do(func(s *State) {
		h := s.Host(host)
		p.i = len(h.Outlets)
		h.AddOutlet()
	})
	p.Power = &client{c: c, device: func(s *State) device { return s.Host(host).Outlets[p.i] }}
	return p
}

func (p *OutletHandle) Change(change func(*Outlet)) {
	p.c.Do(func(s *State) { change(s.Host(p.host).Outlets[p.i]) })
}

// On reports whether the outlet is on.
func (p *OutletHandle) On() (on bool) { p.Change(func(o *Outlet) { on = o.On }); return on }

// Reads is how often it was read.
func (p *OutletHandle) Reads() (n int) { p.Change(func(o *Outlet) { n = o.reads }); return n }

func (p *OutletHandle) Commands() (list []bmc.Command) {
	p.Change(func(o *Outlet) { list = slices.Clone(o.commands) })
	return list
}

// Fault is how a BMC or an outlet misbehaves for a while. // reliability A.3
type Fault string

// The faults of BMCs. Outlets have some of them, too.
const (
	NoFault     Fault = ""
	Hangs       Fault = "bmc-hangs"
	Refuses     Fault = "bmc-refuses"
	BarsAccount Fault = "bmc-account"
	Deaf        Fault = "bmc-deaf"        // accepts and does nothing
	IgnoresOff  Fault = "bmc-ignores-off" // accepts Off and does nothing
	Late        Fault = "bmc-late"        // carries out commands some seconds later
	Stale       Fault = "bmc-stale"       // reports the state of a while ago
	Liar        Fault = "bmc-liar"        // reports Off for a host that is on
	Restarts    Fault = "bmc-restarts"    // once, when the fault begins
	Stranger    Fault = "bmc-stranger"    // another machine answers
	Slow        Fault = "bmc-slow"        // takes seconds for each answer
	Busy        Fault = "bmc-busy"
)

// Refusal is the error of a device with such a fault for every request; nil if it
// accepts them.
func (f Fault) Refusal() (bmc.Kind, error) {
	switch f {
	case Refuses:
		return bmc.KindRefused, errors.New("connection refused")
	case BarsAccount:
		return bmc.KindAuth, errors.New("the account is refused")
	case Busy:
		return bmc.KindBusy, errors.New("come back later")
	}
	return "", nil
}

const strangersUUID = "4c4c4544-0042-3510-8054-b4c04f4dffff"

// BMC is the controller of one host.
type BMC struct {
	h     *Host
	Fault Fault
	UUID  *string // what it reports; nil: the host's
	// Serial is the serial number that it reports with each reading.
	Serial string
	Fails  error     // error of each reading
	Boot   int       // changes with each restart of the BMC: sessions end
	UpAt   time.Time // it does not answer before
	IllAt  time.Time // when it last misbehaved

	reads    int
	commands []bmc.Command
}

// Up reports whether the BMC has power and has booted.
func (b *BMC) Up(now time.Time) bool { return b.h.Supplied() && !now.Before(b.UpAt) }

func (b *BMC) well(now time.Time) bool { return b.Fault == NoFault && b.Fails == nil && b.Up(now) }

const (
	lateBy       = 5 * time.Second
	slowness     = 2 * time.Second  // duration of each request
	faultyReboot = 20 * time.Second // of a BMC without a boot time
)

// SetFault makes the BMC misbehave. Each fault also affects the client of this
// package: a BMC that restarts also ends its sessions and does not answer until
// it has booted.
func (b *BMC) SetFault(f Fault, now time.Time) {
	if b.Fault = f; f != Restarts {
		return
	}
	if b.Restart(now); b.h.BMCBootTime == nil {
		b.UpAt = now.Add(faultyReboot)
	}
}

// Restart ends all sessions. The BMC answers again after its boot.
func (b *BMC) Restart(now time.Time) {
	b.Boot++
	b.UpAt = now.Add(chosen(b.h.BMCBootTime, 0))
}

// Reading is what the BMC reports about the host, and whether that is true.
func (b *BMC) Reading(now time.Time) (r bmc.Reading, honest bool) {
	on := b.h.On
	switch b.Fault {
	case Liar:
		on = false
	case Stale:
		if now.Sub(b.h.OnSince) < 6*time.Second {
			on = !on
		}
	}
	r = bmc.Reading{State: stateOf(on), At: now, Session: uint64(b.Boot), Identity: bmc.Identity{UUID: b.h.UUID}}
	r.Identity.Serial = b.Serial
	if b.UUID != nil {
		r.Identity.UUID = *b.UUID
	}
	if b.Fault == Stranger {
		r.Identity.UUID, r.Identity.Serial = strangersUUID, ""
	}
	return r, on == b.h.On
}

// Obey carries out a command as the BMC would.
func (b *BMC) Obey(c bmc.Command, now time.Time) {
	switch on := c == bmc.CommandOn; {
	case b.Fault == Deaf, (b.Fault == Liar || b.Fault == IgnoresOff) && !on:
	case b.Fault == Stranger: // the command goes to another machine
	case b.Fault == Late && on != b.h.On:
		b.h.later, b.h.laterAt = &on, now.Add(chosen(b.h.LateBy, lateBy))
	default:
		b.h.Power(on, "BMC")
	}
}

func stateOf(on bool) bmc.PowerState {
	if on {
		return bmc.On
	}
	return bmc.Off
}

// Outlet feeds a power supply of a host.
type Outlet struct {
	h            *Host
	On           bool
	Fault        Fault
	FixedReading *bmc.PowerState // reported whatever is true; nil: the truth
	FeedsAnother bool            // it does not feed the host of its entry

	reads    int
	commands []bmc.Command
}

func (h *Host) AddOutlet() *Outlet {
	o := &Outlet{h: h, On: true}
	h.Outlets = append(h.Outlets, o)
	return o
}

// Reading is what the outlet reports; it has no identity.
func (o *Outlet) Reading(now time.Time) bmc.Reading {
	r := bmc.Reading{State: stateOf(o.On), At: now, Session: 1}
	if o.FixedReading != nil {
		r.State = *o.FixedReading
	}
	return r
}

// Obey switches the outlet. A host without any supply is off, and so is its BMC.
// When it has a supply again, the BMC boots; the host boots only if
// StartsWithMains.
func (o *Outlet) Obey(c bmc.Command, now time.Time) {
	on := c == bmc.CommandOn
	if o.Fault == Deaf || o.On == on {
		return
	}
	before := o.h.Supplied()
	o.On = on
	o.h.s.Note(o.h.Name, "outlet %t", on)
	switch after := o.h.Supplied(); {
	case before && !after:
		o.h.Power(false, "outlets")
	case !before && after:
		o.h.BMC.Restart(now)
		if o.h.StartsWithMains {
			o.h.Power(true, "outlets")
		}
	}
}
