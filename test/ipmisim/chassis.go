package ipmisim

import (
	"context"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/hal"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
)

// chassis is the host behind a GoBMC: what is true, and what the BMC makes of it.
type chassis struct {
	mock.Chassis // everything that is not power

	mu        sync.Mutex
	on        bool
	ignoreOff bool
	lieOff    bool
	lateOff   time.Duration
	backOn    time.Duration
	orders    int // commands so far; one that came later overrules a delayed change
	counts    Counts
	changes   []Change
}

// Change is a moment at which the host went on or off.
type Change struct {
	At time.Time
	On bool
}

// Counts are the chassis commands that a BMC carried out or pretended to.
type Counts struct {
	Status, Off, On int
}

// PowerState is what Get Chassis Status reports.
func (c *chassis) PowerState(context.Context) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.Status++
	return c.on && !c.lieOff, nil
}

// SetPower is Chassis Control with power up or power down.
func (c *chassis) SetPower(_ context.Context, on bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.orders++
	if on {
		c.counts.On++
		c.turn(true)
		return nil
	}
	c.counts.Off++
	if !c.ignoreOff {
		c.in(c.lateOff, c.goOff)
	}
	return nil
}

// goOff switches the host off, to come on again when it is one that does.
func (c *chassis) goOff() {
	c.turn(false)
	if c.backOn > 0 {
		c.in(c.backOn, func() { c.turn(true) })
	}
}

// turn switches the host, and notes when.
func (c *chassis) turn(on bool) {
	if c.on != on {
		c.on, c.changes = on, append(c.changes, Change{At: time.Now(), On: on})
	}
}

// in runs fn after d, under the lock, unless another command came meanwhile.
func (c *chassis) in(d time.Duration, fn func()) {
	if d == 0 {
		fn()
		return
	}
	order := c.orders
	time.AfterFunc(d, func() {
		c.change(func() {
			if c.orders == order {
				fn()
			}
		})
	})
}

// change runs fn on the chassis under its lock.
func (c *chassis) change(fn func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn()
}

// hardware is go-ipmi's mock hardware with our chassis in it.
type hardware struct {
	*mock.HAL
	host *chassis
}

func (h hardware) Chassis() hal.ChassisHAL { return h.host }
