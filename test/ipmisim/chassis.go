package ipmisim

import (
	"context"
	"sync"

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
	counts    Counts
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
	if on {
		c.counts.On++
		c.on = true
		return nil
	}
	c.counts.Off++
	if !c.ignoreOff {
		c.on = false
	}
	return nil
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
