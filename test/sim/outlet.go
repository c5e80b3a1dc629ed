package sim

import (
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

// outlet feeds one of the two supplies of a host. Guarded by the world's mutex.
type outlet struct {
	h     *host
	on    bool
	mood  mood
	until time.Time
}

func (o *outlet) heal() { o.mood = wellBehaved }

// trouble makes the outlet's PDU unreachable or deaf, by its dice.
func (o *outlet) trouble(now time.Time) {
	w := o.h.w
	if o.mood != wellBehaved && now.After(o.until) {
		o.mood = wellBehaved
	}
	if !w.chance(w.plan.BMCs / 4) {
		return
	}
	o.mood, o.until = []mood{refuses, deaf, slow}[w.rng.IntN(3)], now.Add(between(w.rng, 10*time.Second, 3*time.Minute))
	w.fault("outlet-"+string(o.mood), o.h.name, "until %s", o.until.Sub(w.began).Round(time.Second))
}

func (o *outlet) says() (bmc.PowerState, bool) {
	if o.on {
		return bmc.On, true
	}
	return bmc.Off, true
}

// obey switches the outlet. A host without any supply is off, and its BMC too; with
// one again the BMC boots and the host stays off.
func (o *outlet) obey(on bool) {
	if o.mood == deaf || o.on == on {
		return
	}
	before := o.h.supplied()
	o.on = on
	o.h.w.note(o.h.name, "outlet %t", on)
	switch after := o.h.supplied(); {
	case before && !after:
		o.h.power(false, "outlets")
	case !before && after:
		o.h.bmc.restart(time.Now())
	}
}
