package ipmisim

import (
	"fmt"
	"time"

	"github.com/bougou/go-ipmi/pkg/bmc"
)

// Faults are what a BMC of either kind can be made to do wrong, beyond BMC.
type Faults interface {
	BMC
	// Hang makes the BMC take no notice of anything, and answer nothing.
	Hang(hang bool) error
	// LateOff makes the host go off only d after the BMC accepted the command,
	// as one does that asks the operating system; 0 ends it.
	LateOff(d time.Duration) error
	// BackOn makes the host come on again by itself d after it went off by a
	// command; 0 ends it.
	BackOn(d time.Duration) error
	// Restart restarts the BMC, not the host: it forgets all sessions.
	Restart() error
}

var _ Faults = (*GoBMC)(nil)

// Hang makes the BMC deaf and mute; it returns nil.
func (b *GoBMC) Hang(hang bool) error {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	b.conn.hung = hang
	return nil
}

// Slow makes each answer leave d late.
func (b *GoBMC) Slow(d time.Duration) {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	b.conn.slow = d
}

// LateOff makes the host go off d after the command; it returns nil.
func (b *GoBMC) LateOff(d time.Duration) error {
	b.host.change(func() { b.host.lateOff = d })
	return nil
}

// BackOn makes the host come on again d after it went off; it returns nil.
func (b *GoBMC) BackOn(d time.Duration) error {
	b.host.change(func() { b.host.backOn = d })
	return nil
}

// Restart makes the BMC forget all sessions, and nothing else; it returns nil.
func (b *GoBMC) Restart() error {
	b.conn.mu.Lock()
	ids := b.conn.sessions
	b.conn.sessions = nil
	b.conn.mu.Unlock()
	for _, id := range ids {
		_ = b.state.Sessions.Close(id) // most were closed by their client
	}
	return nil
}

// SetUUID makes the BMC that of another machine, from the next session on.
func (b *GoBMC) SetUUID(uuid string) error {
	_, guid, err := Options{UUID: uuid}.withDefaults()
	if err != nil {
		return err
	}
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	b.conn.guid = &guid
	return nil
}

// RefuseControl answers each Chassis Control with the completion code, like 0xd5
// (not in the present state), and carries none out; 0 ends it.
func (b *GoBMC) RefuseControl(code byte) {
	if code == 0 {
		b.Intercept(nil)
		return
	}
	const chassis, control = 0x00, 0x02
	b.Intercept(func(c Command) *Reply {
		if c.NetFn == chassis && c.Cmd == control {
			return &Reply{Code: code}
		}
		return nil
	})
}

// Exhaust takes all sessions that are left, as clients do that died without
// closing theirs. Restart frees them, and so does a minute of silence.
func (b *GoBMC) Exhaust() error {
	for {
		s, err := b.state.Sessions.Allocate(1, 0, 0, 0, bmc.PrivilegeLevelUser, 1)
		if err != nil {
			return nil // full: what was wanted
		}
		if err := b.state.Sessions.Activate(s.BMCID); err != nil {
			return fmt.Errorf("take a session: %w", err)
		}
		b.conn.mu.Lock()
		b.conn.sessions = append(b.conn.sessions, s.BMCID)
		b.conn.mu.Unlock()
	}
}
