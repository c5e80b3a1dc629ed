package fake

import (
	"context"
	"errors"
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
