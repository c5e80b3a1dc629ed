package fake

import (
	"slices"

	"github.com/fenced/fenced/internal/bmc"
)

// OutletHandle is one outlet, for tests to read and change. Each method takes the
// lock of the cluster. It is also a client of the outlet.
type OutletHandle struct {
	bmc.Power
	c    *Cluster
	host string
	i    int
}

// AddOutlet adds an outlet to a host.
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

// Change changes the outlet.
func (p *OutletHandle) Change(change func(*Outlet)) {
	p.c.Do(func(s *State) { change(s.Host(p.host).Outlets[p.i]) })
}

// On reports whether the outlet is on.
func (p *OutletHandle) On() (on bool) { p.Change(func(o *Outlet) { on = o.On }); return on }

// Reads is how often it was read.
func (p *OutletHandle) Reads() (n int) { p.Change(func(o *Outlet) { n = o.reads }); return n }

// Commands are the commands that it received.
func (p *OutletHandle) Commands() (list []bmc.Command) {
	p.Change(func(o *Outlet) { list = slices.Clone(o.commands) })
	return list
}
