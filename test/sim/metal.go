package sim

import (
	"time"

	"github.com/fenced/fenced/internal/policy"
	"github.com/fenced/fenced/test/fake"
)

// point sets the address of a BareMetalHost. Its owner wants the host on unless
// it has a power lock.
func (w *World) point(h, to *host) {
	if h.metal == to {
		return
	}
	if h.metal != nil {
		w.note(h.Name, "BareMetalHost leads to %s", to.Name)
	}
	h.metal = to
	w.api.ChangeMetal(h.Name, func(m *policy.Host) {
		m.Address, m.CredentialsName, m.ConsumerRef = "ipmi://"+to.address(), "bmc-"+h.Name, fake.Namespace+"/m-"+h.Name
	})
}

// tickMetal simulates the owner of the hosts' power: our power lock powers a host
// off, and without one it powers on what is off.
func (w *World) tickMetal(now time.Time) {
	for _, h := range w.hosts {
		m := w.api.Metal[h.Name]
		if m == nil || now.Before(h.acts) || h.Gone {
			continue
		}
		h.acts = now.Add(between(h.rng, 5*time.Second, 40*time.Second))
		switch b := &h.BMC; {
		case h.metal != h: // it no longer knows the hardware
		case b.Fault != fake.NoFault && b.Fault != fake.Slow && b.Fault != fake.Stale, !b.Up(now):
		case fake.Held(m) && h.On:
			h.Power(false, "BareMetalHost is held")
		case !fake.Held(m) && m.Online && !h.On:
			h.Power(true, "BareMetalHost is online")
		}
	}
}
