package sim

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/test/fake"
)

// confirmLostHost lets a host fail together with its BMC, at random. Somebody
// goes there, disconnects its power and confirms that it is off; sometimes it was
// another host that nobody noticed. w.mu is held. // I26
func (w *World) confirmLostHost(now time.Time) {
	if w.plan.Metal || w.pen.Float64() >= w.plan.Words/3600 { // otherwise its owner powers it on again
		return
	}
	h, _ := w.pickHosts()
	if _, open := w.open(h.Name); open || !h.On || h.Gone {
		return
	}
	if w.pen.IntN(2) == 0 {
		h.Hang(time.Time{})
	} else {
		h.Cut = now.Add(between(w.pen, 2*time.Minute, 10*time.Minute))
	}
	h.BMC.Fault, h.until = fake.Hangs, now.Add(between(w.pen, 2*time.Minute, 10*time.Minute))
	w.fault("host-and-bmc-lost", h.Name, "the BMC until %s", h.until.Sub(w.began).Round(time.Second))
	pulled := w.pen.IntN(4) > 0
	again := between(w.pen, 30*time.Second, 3*time.Minute)
	w.after(between(w.pen, 50*time.Second, 3*time.Minute), func() {
		w.do(func() {
			if pulled && !w.calm {
				h.Power(false, "foreign hand")
			}
			w.confirmOff(h)
		})
		if sleep(w.ctx, again) == nil {
			w.do(func() { w.confirmOff(h) })
		}
	})
}

// confirmOff is a person's confirmation that a host is off. w.mu is held.
func (w *World) confirmOff(h *host) {
	c := w.orderTarget()
	if c == nil || w.calm {
		return
	}
	e, o := c.engine, order.Order{Cluster: cluster, Node: h.Name, Actor: "uid 1000", Reason: "its plug is pulled"}
	w.ask("confirm-off", h.Name, c, func(ctx context.Context) error { _, err := e.ConfirmOff(ctx, o); return err })
}
