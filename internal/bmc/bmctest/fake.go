package bmctest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fenced/fenced/internal/bmc"
)

const (
	fakePassword = "bmctest-right-pw"
	fakeUUID     = "4c4c4544-0042-4810-8056-b4c04f4d3132"
	otherUUID    = "4c4c4544-0042-4810-8056-b4c04f4d3133"
)

// fakeBMC is a BMC in memory, with its host and its network. A zero mutant is
// an honest driver of an honest BMC.
type fakeBMC struct {
	mutant mutant

	mu       sync.Mutex
	on       bool
	uuid     string
	sessions map[uint64]bool
	serial   uint64
	logins   int
	requests int
	changed  chan struct{} // closed when a fault begins or ends

	ignoreOff, refuseSame, transitional, hung, bad, loseAnswer, cutBodies, endsSilently bool
	lateOff, backOn                                                                     time.Duration
}

// fakeWorld is a world with an honest BMC behind a driver with this fault.
func fakeWorld(m mutant) *World {
	b := &fakeBMC{mutant: m, on: true, uuid: fakeUUID, sessions: map[uint64]bool{}, changed: make(chan struct{})}
	flag := func(f *bool) func(bool) error {
		return func(v bool) error { return b.change(func() { *f = v }) }
	}
	length := func(f *time.Duration) func(time.Duration) error {
		return func(v time.Duration) error { return b.change(func() { *f = v }) }
	}
	return &World{
		Open: func(d bmc.Device) (bmc.Power, error) { return &fakePower{bmc: b, password: d.Password.Reveal()}, nil },
		Device: bmc.Device{
			Driver:   bmc.DriverIPMI,
			Endpoint: bmc.Endpoint{Protocol: bmc.ProtocolIPMI, Host: "fake", Port: 623},
			Username: "admin", Password: bmc.NewSecret(fakePassword),
		},
		UUID:     fakeUUID,
		On:       func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.on },
		SetPower: flag(&b.on),

		IgnoreOff: flag(&b.ignoreOff), RefuseSame: flag(&b.refuseSame), Transitional: flag(&b.transitional),
		LateOff: length(&b.lateOff), BackOn: length(&b.backOn),
		Hang: flag(&b.hung), HalfOpen: flag(&b.hung), Bad: flag(&b.bad), LoseAnswer: flag(&b.loseAnswer),
		CutBodies: flag(&b.cutBodies), CloseSilently: flag(&b.endsSilently),
		Restart:        func() error { return b.change(func() { clear(b.sessions) }) },
		Logins:         func() int { b.mu.Lock(); defer b.mu.Unlock(); return b.logins },
		Sessions:       b.open,
		CutLogins:      b.open,
		ChangeIdentity: func() error { return b.change(func() { clear(b.sessions); b.uuid = otherUUID }) },
	}
}

// open is how many sessions there are.
func (b *fakeBMC) open() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.sessions)
}

// change changes the BMC, and wakes whoever waits for it.
func (b *fakeBMC) change(f func()) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	close(b.changed)
	b.changed = make(chan struct{})
	return nil
}

// arrive carries one request to the BMC, which takes a while, for ever when it
// hangs, and is lost each third time in a bad network.
func (b *fakeBMC) arrive(ctx context.Context) error {
	for {
		b.mu.Lock()
		b.requests++
		hung, lost, changed := b.hung, b.bad && b.requests%3 == 0, b.changed
		b.mu.Unlock()
		wait := time.After(time.Millisecond)
		switch {
		case hung:
			wait = nil
		case lost && b.mutant.fragile:
			return errors.New("no answer")
		case lost:
			wait = time.After(20 * time.Millisecond) // and sent again
		}
		select {
		case <-wait:
			if !lost {
				return ctx.Err()
			}
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errPassword = errors.New("wrong password")

// login opens a session.
func (b *fakeBMC) login(password string) (uint64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logins++
	if password != fakePassword {
		return 0, errPassword
	}
	b.serial++
	b.sessions[b.serial] = true
	return b.serial, nil
}

// says is what the BMC tells about its host.
func (b *fakeBMC) says() (bmc.PowerState, string) {
	switch {
	case b.transitional:
		return bmc.Unknown, "PoweringOff"
	case b.on:
		return bmc.On, "On"
	}
	return bmc.Off, "Off"
}

var errSame = errors.New("the host is in that state already")

// control carries out a command, as far as the BMC does.
func (b *fakeBMC) control(c bmc.Command) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	on := c == bmc.CommandOn
	if b.mutant.toggles {
		on = !b.on
	}
	switch {
	case b.refuseSame && on == b.on:
		return errSame
	case !on && b.ignoreOff:
	case !on && b.lateOff > 0:
		time.AfterFunc(b.lateOff, func() { _ = b.change(func() { b.on = false }) })
	default:
		b.on = on
		if !on && b.backOn > 0 {
			time.AfterFunc(b.backOn, func() { _ = b.change(func() { b.on = true }) })
		}
	}
	return nil
}

func fakeError(op string, k bmc.Kind, sent bmc.Sent, err error) error {
	return &bmc.Error{Kind: k, Op: op, Addr: "fake", Sent: sent, Err: fmt.Errorf("%w", err)}
}
