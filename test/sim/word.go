package sim

import (
	"context"
	"time"

	"github.com/fenced/fenced/internal/order"
	"github.com/fenced/fenced/test/fake"
)

// vouch makes up, at random, a host that is lost together with its BMC. Somebody goes
// there, pulls its plug and says so; now and then it is the plug of another host that
// nobody missed. w.mu is held. // I26
func (w *World) vouch(now time.Time) {
	if w.plan.Metal || w.pen.Float64() >= w.plan.Words/3600 { // else its owner switches it on again
		return
	}
	h, _ := w.two()
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
			w.word(h)
		})
		if sleep(w.ctx, again) == nil {
			w.do(func() { w.word(h) })
		}
	})
}

// word is a person's that a host is off. w.mu is held.
func (w *World) word(h *host) {
	c := w.someone()
	if c == nil || w.calm {
		return
	}
	e, o := c.engine, order.Order{Cluster: cluster, Node: h.Name, Actor: "uid 1000", Reason: "its plug is pulled"}
	w.ask("confirm-off", h.Name, c, func(ctx context.Context) error { _, err := e.ConfirmOff(ctx, o); return err })
}
