// Package ipmisim gives tests and the demo IPMI BMCs that speak the real
// protocol on loopback, and hosts behind them that we control.
//
// Three peers that share nothing with our own client stand behind one small
// interface: StartGo runs the BMC server of go-ipmi in this process (cipher
// suites 3 and 17, cheap enough for a thousand), StartDebian runs ipmi_sim of
// the Debian package openipmi as a process (suite 3 only), StartPyghmi the BMC
// of python3-pyghmi, which is that of virtualbmc (suite 3 only). A Relay between
// client and BMC drops, repeats, changes and forges datagrams, and is as slow and
// lossy as its Network says. Faults are what the BMCs themselves can do wrong.
//
// Nothing here depends on package testing, so that the demo can use it too.
package ipmisim

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/hal"
	"github.com/bougou/go-ipmi/pkg/hal/mock"
)

// BMC is a simulated BMC with the host behind it.
type BMC interface {
	// Addr is the host:port that speaks RMCP+.
	Addr() string
	// Power says whether the host is truly on now, whatever the BMC claims. A
	// state that cannot be told is on: an error must not look like a fence.
	Power() bool
	// Source is Power in the form a simulated kubelet asks.
	Source(ctx context.Context) (on bool, err error)
	// SetPower switches the host behind the BMC's back, as a human would.
	SetPower(on bool) error
	// IgnoreOff makes the BMC accept a power off and do nothing.
	IgnoreOff(ignore bool) error
	// LieOff makes the BMC say that the host is off, whatever it is.
	LieOff(lie bool) error
	// Stop ends the BMC; it may be called more than once.
	Stop()
}

// Options describe a BMC. The zero value is a host that is on, behind a BMC
// with the account admin, password secret, ADMINISTRATOR, and a random GUID.
type Options struct {
	// Addr is where to listen; empty lets the kernel choose on loopback.
	Addr string
	// User and Password are the one account.
	User, Password string
	// Operator limits the account to OPERATOR.
	Operator bool
	// NullUser adds an account without a name and without a password.
	NullUser bool
	// UUID is the GUID as its bytes go over the wire: hex, dashes allowed.
	UUID string
	// KG is the BMC key [Kg]; empty is a login with the password alone.
	KG string
	// Suites are the cipher suites served; empty is 3 and 17. The processes have only 3.
	Suites []int
	// Off starts the host powered off.
	Off bool
	// Sessions is how many may be open at once; go-ipmi's 4 if zero. Those of
	// the processes are their own affair.
	Sessions int
	// Machine: ipmi_sim alone; the lines of its configuration that run a machine, in place of a host that we control.
	Machine string
	// NewGUID: pyghmi alone; a new GUID at each start, as virtualbmc has.
	NewGUID bool
}

// withDefaults fills what o leaves open, and returns the GUID's bytes.
func (o Options) withDefaults() (Options, [16]byte, error) {
	o.Addr = cmp.Or(o.Addr, "127.0.0.1:0")
	o.User = cmp.Or(o.User, "admin")
	o.Password = cmp.Or(o.Password, "secret")
	var guid [16]byte
	if o.UUID == "" {
		rand.Read(guid[:]) // never fails, by its documentation
		return o, guid, nil
	}
	b, err := hex.DecodeString(strings.ReplaceAll(o.UUID, "-", ""))
	if err != nil || len(b) != len(guid) {
		return o, guid, fmt.Errorf("UUID %q is not 16 bytes of hex", o.UUID)
	}
	copy(guid[:], b)
	return o, guid, nil
}

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
	onChange  func(on bool)
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
		if c.onChange != nil {
			c.onChange(on)
		}
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
