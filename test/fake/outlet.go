package fake

import (
	"slices"

	"github.com/fenced/fenced/internal/bmc"
)

// OutletHandle is one outlet, as a test looks at it and changes it: each method holds the lock
// of the cluster. It is a client of the outlet, too.
type OutletHandle struct {
	bmc.Power
	c    *Cluster
	host string
	i    int
}

// AddOutlet gives a host one more outlet.
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

// On says whether it is.
func (p *OutletHandle) On() (on bool) { p.Change(func(o *Outlet) { on = o.On }); return on }

// Reads is how often it was read.
func (p *OutletHandle) Reads() (n int) { p.Change(func(o *Outlet) { n = o.reads }); return n }

// Commands are those that it was given.
func (p *OutletHandle) Commands() (list []bmc.Command) {
	p.Change(func(o *Outlet) { list = slices.Clone(o.commands) })
	return list
}
