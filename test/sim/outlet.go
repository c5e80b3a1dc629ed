package sim

import (
	"time"

	"github.com/fenced/fenced/test/fake"
)

// outlet feeds one of the two power supplies of a host. Guarded by the world's
// mutex.
type outlet struct {
	*fake.Outlet
	h     *host
	until time.Time // end of its fault
}

// trouble makes the outlet's PDU unreachable or deaf, at random.
func (o *outlet) trouble(now time.Time) {
	w := o.h.w
	if o.Fault != fake.NoFault && now.After(o.until) {
		o.Fault = fake.NoFault
	}
	if !w.chance(w.plan.BMCs / 4) {
		return
	}
	o.Fault, o.until = []fake.Fault{fake.Refuses, fake.Deaf, fake.Slow}[w.rng.IntN(3)], now.Add(between(w.rng, 10*time.Second, 3*time.Minute))
	w.fault("outlet-"+string(o.Fault), o.h.Name, "until %s", o.until.Sub(w.began).Round(time.Second))
}
