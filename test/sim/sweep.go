package sim

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
	"github.com/fenced/fenced/internal/engine"
	"github.com/fenced/fenced/internal/guard"
	"github.com/fenced/fenced/internal/hosts"
	"github.com/fenced/fenced/test/fake"
)

// checkHealth lets each fenced ask the BMC of one host in turn, as package sweep does, and record
// whose it is. It does so where names move to other machines. w.mu is held.
func (w *World) checkHealth(now time.Time) {
	const every = 10 // seconds
	n := int(now.Sub(w.began) / time.Second)
	h := w.hosts[n/every%len(w.hosts)]
	if w.plan.Names == 0 || n%every > 0 || h.BMC.Fault != fake.NoFault || !h.BMC.Up(now) {
		return
	}
	for _, i := range w.instances {
		if c := i.cur; c != nil && !c.dead && c.engine != nil {
			r, _ := h.BMC.Reading(now)
			r.Session = 1
			e := c.engine
			w.workers.Go(func() { c.checkBMC(e, h, r) })
		}
	}
}

// checkBMC records a reading of a BMC.
func (c *incarnation) checkBMC(e *engine.Engine, h *host, r bmc.Reading) {
	w, ctx := h.w, c.ctx
	s, err := e.SubjectOf(ctx, cluster, h.Name)
	var at *host
	if err == nil && s.Err == nil {
		w.do(func() { at, _ = w.deviceAt(s.Host.Levels[0].Devices[0]) })
	}
	if at != h { // its entry leads elsewhere for a while
		return
	}
	k := hosts.Checked{Subject: s, At: time.Now(), Reading: r, Identity: e.Identify(ctx, s, 0, 0, r)}
	e.Checked(ctx, k)
	w.do(func() {
		switch {
		case c.dead, w.plan.Instances > 1 && w.owners.holder != c, w.plan.StoreFails > 0, c.isDisturbed(time.Now()): // it may not have stored anything
		case k.Identity == guard.IdentityMatches:
			h.spare.refuted = time.Time{}
		case k.Identity == guard.IdentityDiffers && h.Retired && h.spare.refuted.IsZero():
			h.spare.refuted = time.Now()
		}
	})
}
