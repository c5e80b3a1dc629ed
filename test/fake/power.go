package fake

import (
	"context"
	"errors"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// BMC is the client of the BMC of a host: it answers at once.
func (c *Cluster) BMC(host string) bmc.Power {
	return &client{c: c, device: func(s *State) device { return &s.Host(host).BMC }}
}

// device is a BMC or an outlet, as a client asks it.
type device interface {
	ask(now time.Time) (bmc.Reading, error)
	tell(c bmc.Command, now time.Time)
}

func (b *BMC) ask(now time.Time) (bmc.Reading, error) {
	b.reads++
	if b.Fails != nil {
		return bmc.Reading{}, b.Fails
	}
	if !b.Up(now) {
		return bmc.Reading{}, &bmc.Error{Kind: bmc.KindUnreachable, Op: "read power state", Err: errors.New("no answer")}
	}
	r, _ := b.Reading(now)
	return r, nil
}

func (b *BMC) tell(c bmc.Command, now time.Time) { b.commands = append(b.commands, c); b.Obey(c, now) }

func (o *Outlet) ask(now time.Time) (bmc.Reading, error) { o.reads++; return o.Reading(now), nil }

func (o *Outlet) tell(c bmc.Command, now time.Time) {
	o.commands = append(o.commands, c)
	o.Obey(c, now)
}

// Open finds the BMC that an entry of hosts.d leads to; it is a bmc.Opener.
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

func (p *client) Read(context.Context) (r bmc.Reading, err error) {
	p.c.Do(func(s *State) { r, err = p.device(s).ask(time.Now()) })
	return r, err
}

func (p *client) Send(_ context.Context, cmd bmc.Command) (bmc.Receipt, error) {
	p.c.Do(func(s *State) { p.device(s).tell(cmd, time.Now()) })
	return bmc.Receipt{}, nil
}

func (p *client) Close(context.Context) error { return nil }
